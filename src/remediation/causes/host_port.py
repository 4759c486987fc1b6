"""HostPortConflict: the port on the node that a pod wants is taken, most often by the pod that it is to replace."""

from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import Index, Pick, join, maps, text
from suture.remediation.rollout import old_first
from suture.remediation.scheduling import Unplaced, unplaced
from suture.remediation.sightings import Scene

CODES = ("HostPortConflict",)


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if "free ports" in pod.verdict:
            yield _finding(pod)


def _finding(pod: Unplaced) -> Finding:
    changes = old_first(pod.evidence, pod.owner) if pod.old_pods else ()
    holder = "its own old pod" if pod.old_pods else "another pod"
    return Finding(
        code="HostPortConflict", object=pod.owner,
        sentence=f"A new pod of {pod.owner} waits for a node: the host port that it wants is held by {holder}.",
        confidence=0.95 if changes else 0.85, citations=(*pod.cited, *_ports(pod)), changes=changes,
        advice="" if changes else "Free the port on a node, or give one of the two another host port.",
    )  # fmt: skip


def _ports(pod: Unplaced) -> tuple[Citation, ...]:
    if pod.evidence.get(pod.ref) is None:
        return ()
    for container in maps(pod.pod, "spec", "containers"):
        for number, port in enumerate(maps(container, "ports")):
            if port.get("hostPort"):
                place = join("spec.containers", Pick("name", text(container, "name")), "ports", Index(number), "hostPort")
                return quote(pod.pod, place, "the port of the node that it wants")
    return quote(pod.pod, "spec.hostNetwork", "all its ports are ports of the node")
