"""PodSecurityViolation: the namespace enforces a Pod Security level and the pod misses some of its rules.

The answer lists each missing field, so the whole fix is in it. What only makes a pod stricter is proposed; what takes something away that
the pod was given on purpose (host access, privileges) is a question.
"""

import re
from collections.abc import Iterator

from suture.remediation.admission import Refusal, refusals
from suture.remediation.citations import quote
from suture.remediation.evidence import template_path
from suture.remediation.incident import Change, Finding
from suture.remediation.paths import Field, Pick, join, mapping, maps, text
from suture.remediation.sightings import GROUPS, Scene

CODES = ("PodSecurityViolation",)

_VIOLATES = re.compile(r'violates PodSecurity "(?P<level>[^"]+)": (?P<rules>.+)', re.DOTALL)
_NAMED = re.compile(r'(?:pod or )?containers? (?P<names>"[^"]+"(?:, "[^"]+")*)')
_REPAIRS: dict[str, tuple[str, object]] = {
    "allowPrivilegeEscalation != false": ("securityContext.allowPrivilegeEscalation", False),
    "unrestricted capabilities": ("securityContext.capabilities.drop", ["ALL"]),
    "runAsNonRoot != true": ("securityContext.runAsNonRoot", True),
    "seccompProfile": ("securityContext.seccompProfile.type", "RuntimeDefault"),
}
_MODE = "pod-security.kubernetes.io/enforce"


def findings(scene: Scene) -> Iterator[Finding]:
    for refusal in refusals(scene, _VIOLATES):
        yield _finding(refusal)


def _finding(refusal: Refusal) -> Finding:
    rules = list(_rules(refusal.found["rules"]))
    open_questions = [rule for rule, detail in rules if rule not in _REPAIRS or "must not include" in detail]
    changes = tuple(c for rule, detail in rules for c in _repair(refusal, rule, detail)) if not open_questions else ()
    names = sorted({name for _, detail in rules for name in _names(refusal, detail)})
    namespace = refusal.evidence.get(f"Namespace//{refusal.namespace}")
    level = (
        quote(namespace, join("metadata.labels", Field(_MODE)), "the level that the namespace enforces") if namespace is not None else ()
    )
    return Finding(
        code="PodSecurityViolation", object=refusal.owner, container=names[0] if len(names) == 1 else None,
        sentence=f"{refusal.owner} has no pod: namespace {refusal.namespace} enforces the level {refusal.found['level']}, "
        f"and the pod misses {', '.join(rule for rule, _ in rules) or 'its rules'}.",
        confidence=0.97, citations=(*refusal.cite("the API server refuses the pod and lists what is missing"), *level), changes=changes,
        advice="" if changes else f"Decide whether the pod needs {', '.join(open_questions)}: it must go without, or run in another "
        f"namespace.",
    )  # fmt: skip


def _rules(listed: str) -> Iterator[tuple[str, str]]:
    """Each rule and what its parentheses say; they may hold parentheses of their own."""
    depth, start, rule = 0, 0, ""
    for place, letter in enumerate(listed):
        if letter == "(":
            if depth == 0:
                rule, start = listed[start:place].strip(" ,"), place + 1
            depth += 1
        elif letter == ")" and depth > 0:
            depth -= 1
            if depth == 0:
                yield rule, listed[start:place]
                start = place + 1


def _names(refusal: Refusal, detail: str) -> list[str]:
    found = _NAMED.search(detail)
    if found is not None:
        return re.findall(r'"([^"]+)"', found["names"])
    return [text(c, "name") for _, c in refusal.containers()]


def _repair(refusal: Refusal, rule: str, detail: str) -> Iterator[Change]:
    field, value = _REPAIRS[rule]
    spec = join(template_path(refusal.owner), "spec")
    for name in _names(refusal, detail):
        group = next((g for g in GROUPS if any(text(c, "name") == name for c in maps(refusal.pod_spec, g))), None)
        if group is None:
            continue
        path = join(spec, group, Pick("name", name), field)
        container = next(c for c in maps(refusal.pod_spec, group) if text(c, "name") == name)
        outer, _, last = field.rpartition(".")
        before = mapping(container, *outer.split(".")).get(last)
        operation = "add" if before is None else "set"
        yield Change.model_validate({"object": refusal.owner, "operation": operation, "path": path, "value": value, "before": before})
