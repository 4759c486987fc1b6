"""LimitRangeViolation: the pod's numbers break a LimitRange, or one that it fills in contradicts them.

256Mi is more than 256M: quantities are compared as numbers.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from suture.remediation.admission import Refusal, refusals
from suture.remediation.citations import quote
from suture.remediation.evidence import reference, template_path
from suture.remediation.incident import Change, Finding
from suture.remediation.paths import Object, Pick, join, mapping, maps, text
from suture.remediation.quantity import amount
from suture.remediation.sightings import Scene

CODES = ("LimitRangeViolation",)

_ABOVE_LIMIT = re.compile(
    r'spec\.(?P<group>containers|initContainers)\[(?P<place>\d{1,4})\]\.resources\.requests: Invalid value: "(?P<value>[^"]+)": '
    r"must be less than or equal to (?P<resource>[a-z-]+) limit"
)
_BOUND = re.compile(
    r"(?P<side>minimum|maximum) (?P<resource>\S+) (?:usage )?per (?P<type>Container|Pod) is (?P<bound>[^,\s]+), but (?P<part>limit"
    r"|request) is (?P<value>[^\s,.\]]+)"
)


def findings(scene: Scene) -> Iterator[Finding]:
    for refusal in refusals(scene, _ABOVE_LIMIT):
        yield _above_limit(refusal)
    for refusal in refusals(scene, _BOUND):
        yield _out_of_bounds(refusal)


def _above_limit(refusal: Refusal) -> Finding:
    group, place = refusal.found["group"], int(refusal.found["place"])
    listed = maps(refusal.pod_spec, group)
    container = listed[place] if place < len(listed) else {}
    resource, value = refusal.found["resource"], refusal.found["value"]
    default = _default(refusal, resource) if resource not in mapping(container, "resources", "limits") else None
    request = join(template_path(refusal.owner), "spec", group, Pick("name", text(container, "name")), "resources.requests", resource)
    asked = quote(refusal.evidence.get(refusal.owner) or {}, request, "what the container asks for")
    if default is None:
        changes = _raise_own_limit(refusal, group, container, resource, value)
        return _finding(refusal, refusal.owner, container, (*asked,), changes)
    path = join("spec.limits", Pick("type", "Container"), "default", resource)
    written = mapping(_container_limits(default), "default").get(resource)
    cited = (*asked, *quote(default, path, f"the limit that is filled in; as numbers, {value} is more than {written}"))
    ceiling, number = amount(mapping(_container_limits(default), "max").get(resource)), amount(value)
    fits = number is not None and (ceiling is None or number <= ceiling)
    change = Change.model_validate({"object": reference(default), "operation": "set", "path": path, "value": value, "before": written})
    return _finding(refusal, reference(default), container, cited, (change,) if fits else ())


def _default(refusal: Refusal, resource: str) -> Object | None:
    ranges = refusal.evidence.of_kind("LimitRange", refusal.namespace)
    return next((r for r in ranges if resource in mapping(_container_limits(r), "default")), None)


def _container_limits(limit_range: Object) -> Object:
    return next((item for item in maps(limit_range, "spec", "limits") if text(item, "type") == "Container"), {})


def _raise_own_limit(refusal: Refusal, group: str, container: Object, resource: str, value: str) -> tuple[Change, ...]:
    limit = mapping(container, "resources", "limits").get(resource)
    if limit is None:
        return ()
    path = join(template_path(refusal.owner), "spec", group, Pick("name", text(container, "name")), "resources.limits", resource)
    return (Change.model_validate({"object": refusal.owner, "operation": "set", "path": path, "value": value, "before": limit}),)


def _out_of_bounds(refusal: Refusal) -> Finding:
    """One container that states one number outside of the bounds: the bound is the nearest number that is allowed.

    A limit that comes down takes a request above it along.
    """
    resource, bound = refusal.found["resource"], refusal.found["bound"]
    part = "limits" if refusal.found["part"] == "limit" else "requests"
    stated = amount(refusal.found["value"]) or Fraction(0)
    wrong = [(g, c) for g, c in refusal.containers() if amount(mapping(c, "resources", part).get(resource)) == stated]
    changes: list[Change] = []
    if len(wrong) == 1 and refusal.found["type"] == "Container":
        group, container = wrong[0]
        request = amount(mapping(container, "resources", "requests").get(resource))
        along = part == "limits" and request is not None and request > (amount(bound) or request)
        for side in ("limits", "requests") if along else (part,):
            path = join(template_path(refusal.owner), "spec", group, Pick("name", text(container, "name")), "resources", side, resource)
            before = mapping(container, "resources", side).get(resource)
            change = {"object": refusal.owner, "operation": "set", "path": path, "value": bound, "before": before}
            changes.append(Change.model_validate(change))
    return _finding(refusal, refusal.owner, wrong[0][1] if len(wrong) == 1 else {}, (), tuple(changes))


def _finding(refusal: Refusal, carrier: str, container: Object, cited: tuple[object, ...], changes: tuple[Change, ...]) -> Finding:
    name = text(container, "name")
    return Finding.model_validate({
        "code": "LimitRangeViolation", "object": carrier, "container": name or None,
        "sentence": f"{refusal.owner} has no pod: the numbers of container {name or '?'} contradict the limits of namespace "
        f"{refusal.namespace}.",
        "confidence": 0.95, "citations": (*refusal.cite("the API server refuses the pod"), *cited), "changes": changes,
        "advice": "" if changes else "Bring the container's requests and limits into the bounds of the namespace's LimitRange.",
    })  # fmt: skip
