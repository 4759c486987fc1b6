"""AutoscalerMissingRequest, MetricsUnavailable: an autoscaler cannot compute, and the object that reports is not the one to change.

Utilisation is a share of the request: without a request there is none. Without metrics no manifest helps.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import LONGEST_MESSAGE, reference, template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Object, Pick, join, lookup, mapping, maps, text
from suture.remediation.sightings import Scene

CODES = ("AutoscalerMissingRequest", "MetricsUnavailable")

_NO_REQUEST = re.compile(r"missing request for (?P<resource>\w+)(?: in container (?P<container>\S+) of Pod (?P<pod>\S+))?")
_NO_METRICS = re.compile(
    r"unable to (?:get|fetch) metrics|no metrics returned|the server (?:could not find the requested resource|is currently unable)"
    r"|metrics API"
)
_STARTING = {"cpu": "100m", "memory": "64Mi"}
"""A modest request where none is known; the autoscaler's own numbers then show what it should be."""
_CONDITION = "status.conditions[type=ScalingActive]"


def findings(scene: Scene) -> Iterator[Finding]:
    for scaler in scene.evidence.of_kind("HorizontalPodAutoscaler"):
        condition = next((c for c in maps(scaler, "status", "conditions") if text(c, "type") == "ScalingActive"), {})
        message = text(condition, "message")[:LONGEST_MESSAGE]
        if text(condition, "status") != "False":
            continue
        if found := _NO_REQUEST.search(message):
            yield _no_request(scene, scaler, found)
        elif _NO_METRICS.search(message):
            yield _no_metrics(scene, scaler)


def _target(scaler: Object) -> str:
    target = mapping(scaler, "spec", "scaleTargetRef")
    return f"{text(target, 'kind')}/{text(scaler, 'metadata', 'namespace')}/{text(target, 'name')}"


def _no_request(scene: Scene, scaler: Object, found: re.Match[str]) -> Finding:
    target, resource, name = _target(scaler), found["resource"], found["container"]
    owner = scene.evidence.get(target)
    lacking = [text(c, "name") for c in _containers(owner, target) if resource not in mapping(c, "resources", "requests")]
    names = [name] if name in lacking else lacking
    spec = join(template_path(target), "spec.containers")
    changes = tuple(
        Change(object=target, operation="add", path=join(spec, Pick("name", n), "resources.requests", resource), value=_STARTING[resource])
        for n in names if resource in _STARTING
    )  # fmt: skip
    stated: tuple[Citation, ...] = tuple(
        c for n in names for c in quote(owner or {}, join(spec, Pick("name", n), "resources"), f"it requests no {resource}")
    )
    return Finding(
        code="AutoscalerMissingRequest", object=target, container=names[0] if len(names) == 1 else name,
        sentence=f"{reference(scaler)} does not scale {target}: it works on a share of the {resource} request, and container "
        f"{', '.join(names) or name or '?'} has none.",
        confidence=0.96, citations=(*quote(scaler, f"{_CONDITION}.message", "why the autoscaler cannot compute"), *stated), changes=changes,
        advice="" if changes else f"State a {resource} request on every container of {target}.",
    )  # fmt: skip


def _containers(owner: Object | None, target: str) -> list[Object]:
    found = lookup(owner, join(template_path(target), "spec")) if owner is not None else {}
    return maps(found, "containers")


def _no_metrics(scene: Scene, scaler: Object) -> Finding:
    service = scene.evidence.get("APIService//v1beta1.metrics.k8s.io")
    down = quote(service, "status.conditions[type=Available].message", "why the metrics API does not answer") if service is not None else ()
    return Finding(
        code="MetricsUnavailable", object=reference(scaler),
        sentence=f"{reference(scaler)} does not scale {_target(scaler)}: the metrics that it needs are not served.",
        confidence=0.9, citations=(*quote(scaler, f"{_CONDITION}.message", "why the autoscaler cannot compute"), *down),
        advice="Repair the metrics server (APIService v1beta1.metrics.k8s.io); neither the autoscaler nor the workload has to change.",
    )  # fmt: skip
