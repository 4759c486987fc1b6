"""NodeLost: a node stopped reporting, and its pods are listed as they were last seen. No manifest is at fault."""

from collections.abc import Iterator

from suture.remediation.citations import quote, quote_event
from suture.remediation.evidence import Evidence, reference
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import Object, maps, text
from suture.remediation.sightings import Scene

CODES = ("NodeLost",)

MOST_SHOWN = 50
"""Workloads, one pod of each, that the proof names: whoever asks about one of them shall find this cause."""


def findings(scene: Scene) -> Iterator[Finding]:
    nodes = scene.evidence.of_kind("Node")
    for node in nodes:
        if cited := _silent(node):
            yield _finding(scene.evidence, text(node, "metadata", "name"), cited)
    if not nodes:
        yield from _by_its_pods(scene.evidence)


def _by_its_pods(evidence: Evidence) -> Iterator[Finding]:
    """Where the evidence holds no node: what the node's controller says of each pod that was on it."""
    for pod in evidence.of_kind("Pod"):
        told = [e for e in evidence.events(reference(pod)) if text(e, "reason") == "NodeNotReady"]
        if told and _unready(pod) and text(pod, "spec", "nodeName"):
            yield _finding(evidence, text(pod, "spec", "nodeName"), quote_event(told[-1], "the node of this pod is not ready"))


def _silent(node: Object) -> tuple[Citation, ...]:
    """Unknown is silence; False with a reason of its own is a kubelet that still speaks."""
    for condition in maps(node, "status", "conditions"):
        if text(condition, "type") == "Ready" and text(condition, "status") == "Unknown":
            path = "status.conditions[type=Ready]"
            return (
                *quote(node, f"{path}.status", "nothing is known of the node"),
                *quote(node, f"{path}.message", "since when its kubelet is silent is told beside it"),
            )
    return ()


def _finding(evidence: Evidence, name: str, cited: tuple[Citation, ...]) -> Finding:
    pods = [p for p in evidence.of_kind("Pod") if text(p, "spec", "nodeName") == name]
    unready = [p for p in pods if _unready(p)]
    owners = sorted({evidence.top(reference(p)) for p in unready})
    one_each = {evidence.top(reference(p)): p for p in unready}
    shown = tuple(c for p in list(one_each.values())[:MOST_SHOWN] for c in quote(p, "spec.nodeName", "this pod was on the node"))
    return Finding(
        code="NodeLost", object=f"Node//{name}",
        sentence=f"Node {name} does not report any more and took {len(unready)} pods with it"
        + (f", of {', '.join(owners[:6])}." if owners else "."),
        confidence=0.97, citations=(*cited, *shown),
        advice="Bring the node back or replace it. Its pods move by themselves after five minutes; no manifest has to change.",
    )  # fmt: skip


def _unready(pod: Object) -> bool:
    return any(text(c, "type") == "Ready" and text(c, "status") != "True" for c in maps(pod, "status", "conditions"))
