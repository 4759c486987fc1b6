"""DisruptionBudgetBlocks: a budget allows no eviction at all, so that a node can never be drained. No pod is unhealthy."""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote, quote_bytes, quote_event
from suture.remediation.evidence import Evidence, event_message, reference
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Object, mapping, text, whole
from suture.remediation.sightings import Scene

CODES = ("DisruptionBudgetBlocks",)

_REFUSED = re.compile(
    rb"evicting pods?/?\"?(?P<pod>[a-z0-9.-]+)\"?(?: -n \"(?P<ns>[a-z0-9-]+)\")?[^\n]{0,200}?violate the pod's disruption budget"
)
_PHRASE = "violate the pod's disruption budget"


def findings(scene: Scene) -> Iterator[Finding]:
    for budget in scene.evidence.of_kind("PodDisruptionBudget"):
        if _is_closed(budget) and (proof := _refused(scene.evidence, budget)):
            yield _finding(scene.evidence, budget, proof)


def _is_closed(budget: Object) -> bool:
    """It allows no disruption although all its pods are well: it never will."""
    status = mapping(budget, "status")
    healthy, expected = whole(status, "currentHealthy") or 0, whole(status, "expectedPods") or 0
    return whole(status, "disruptionsAllowed") == 0 and 0 < expected <= healthy and (whole(status, "desiredHealthy") or 0) >= healthy


def _refused(evidence: Evidence, budget: Object) -> tuple[Citation, ...]:
    """The refused eviction of one of its pods, told by the drain, by an event, or by a cordoned node that holds one."""
    pods = _selected(evidence, budget)
    names = {text(p, "metadata", "name") for p in pods}
    for note in evidence.notes:
        for found in _REFUSED.finditer(note.content):
            if found["pod"].decode() in names:
                return quote_bytes(note, found.start(), found.end(), "the drain was refused")
    for pod in pods:
        told = [e for e in evidence.events(reference(pod)) if _PHRASE in event_message(e)]
        if told:
            return quote_event(told[-1], "the eviction was refused")
    for pod in pods:
        node = evidence.get(f"Node//{text(pod, 'spec', 'nodeName')}")
        if node is not None and mapping(node, "spec").get("unschedulable") is True:
            return quote(node, "spec.unschedulable", "the node is to be emptied and still holds one of its pods")
    return ()


def _selected(evidence: Evidence, budget: Object) -> list[Object]:
    wanted = mapping(budget, "spec", "selector", "matchLabels")
    pods = evidence.of_kind("Pod", text(budget, "metadata", "namespace"))
    return [p for p in pods if wanted and wanted.items() <= mapping(p, "metadata", "labels").items()]


def _finding(evidence: Evidence, budget: Object, proof: tuple[Citation, ...]) -> Finding:
    ref = reference(budget)
    pods = _selected(evidence, budget)
    owners = sorted({evidence.top(reference(p)) for p in pods})
    return Finding(
        code="DisruptionBudgetBlocks", object=ref,
        sentence=f"{ref} forbids every eviction of its {len(pods)} pods ({', '.join(owners[:3])}): their node cannot be drained.",
        confidence=0.95,
        citations=(
            *proof,
            *quote(budget, "status.disruptionsAllowed", "it allows none"),
            *quote(budget, "spec", "the budget as it is written"),
            *(c for pod in pods[:1] for c in quote(pod, "metadata.labels", "the budget selects this pod")),
        ),
        changes=_fixes(budget, ref),
    )  # fmt: skip


def _fixes(budget: Object, ref: str) -> tuple[Change, ...]:
    """One pod at a time may go; the two fields exclude each other, so one leaves when the other comes."""
    spec = mapping(budget, "spec")
    if "maxUnavailable" in spec:
        return (Change(object=ref, operation="set", path="spec.maxUnavailable", value=1, before=spec["maxUnavailable"]),)
    remove = Change(object=ref, operation="remove", path="spec.minAvailable", before=spec.get("minAvailable"))
    return (remove, Change(object=ref, operation="add", path="spec.maxUnavailable", value=1))
