"""InsufficientCpu, InsufficientMemory: no node has as much left as the pod asks for.

The fix goes back to what an earlier revision asked for, where that fits now; else it lowers the request to what the largest fitting node
has left. Not where an autoscaler is at work, not where an empty node would do
(the cluster is full, the request is not too large), and not by much unless the workload has asked for as little before.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from suture.remediation.citations import quote
from suture.remediation.evidence import Evidence, reference, split, template_path
from suture.remediation.history import earlier
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import ABSENT, Object, Pick, join, lookup, mapping, maps, text
from suture.remediation.quantity import amount, cpu, memory
from suture.remediation.scheduling import Unplaced, free, request, requested, schedulable, unplaced
from suture.remediation.sightings import Scene

CODES = ("InsufficientCpu", "InsufficientMemory")

SMALLEST_SHARE = Fraction(1, 4)
"""A request is never cut below this share of what it was, but to what it was before: less is another program, not a correction."""


class Kind(NamedTuple):
    code: str
    resource: str
    smallest: Fraction
    step: Fraction

    def print(self, value: Fraction) -> str:
        return cpu(value) if self.resource == "cpu" else memory(value)


KINDS = (
    Kind("InsufficientCpu", "cpu", Fraction(1, 100), Fraction(1, 10)),
    Kind("InsufficientMemory", "memory", Fraction(16 << 20), Fraction(1 << 20)),
)
"""Each with the least request that makes sense, and the step that a proposal is rounded down to."""


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        for kind in KINDS:
            if f"Insufficient {kind.resource}" in pod.verdict:
                yield _finding(pod, kind)


def _finding(pod: Unplaced, kind: Kind) -> Finding:
    largest = max((c for c in maps(pod.pod, "spec", "containers")), key=lambda c: request(c, kind.resource), default={})
    name = text(largest, "name")
    changes, proof, advice = _fixes(pod, kind, largest)
    place = quote(pod.pod, join("spec.containers", Pick("name", name), "resources.requests", kind.resource), "what it asks for")
    return Finding(
        code=kind.code, object=pod.owner, container=name or None, sentence=_explain(pod, kind), confidence=0.93,
        citations=(*pod.cited, *(place if pod.evidence.get(pod.ref) else ()), *proof), changes=changes, advice=advice,
    )  # fmt: skip


def _explain(pod: Unplaced, kind: Kind) -> str:
    asked = requested(pod.pod, kind.resource)
    want = f"asks for {kind.print(asked)} of {kind.resource}" if asked else f"asks for more {kind.resource}"
    return f"A pod of {pod.owner} waits for a node: it {want}, and no node has as much left."


def _fixes(pod: Unplaced, kind: Kind, container: Object) -> tuple[tuple[Change, ...], tuple[Citation, ...], str]:
    if pod.grows:
        return (), (), "Wait: the autoscaler has said that it adds a node."
    nodes = schedulable(pod.evidence, pod.pod)
    room = [(left, node) for node in nodes if (left := free(pod.evidence, node, kind.resource)) is not None]
    if not room:
        return (), (), "Add a node or lower the request: the evidence holds no node that the pod could be put on."
    left, node = max(room, key=lambda found: found[0])
    allocatable = join("status.allocatable", kind.resource)
    proof = quote(node, allocatable, f"the most that is left on a node is {kind.print(max(left, Fraction(0)))} of this")
    asked = requested(pod.pod, kind.resource)
    if pod.grows_not or _fits_when_empty(pod, kind, nodes, asked):
        return (
            (),
            proof,
            "The cluster is full, the request is not too large: add a node, or find what else may go. Lowering the request would hide "
            "that.",
        )
    if asked <= left:
        return (
            (),
            proof,
            "The evidence does not hold all pods of the nodes, so what is left there cannot be counted: compare with `kubectl "
            "describe node`.",
        )
    left_for_it = left - (asked - request(container, kind.resource))
    changes, was = _restored(pod, kind, container, left_for_it)
    changes = changes or _lowered(pod, kind, container, left_for_it)
    return changes, (*proof, *was), "" if changes else "No node has room for a request near this one: add a larger node."


def _fits_when_empty(pod: Unplaced, kind: Kind, nodes: list[Object], asked: Fraction) -> bool:
    """Whether it would fit on a node that holds nothing but its daemons; a request of a whole node never does."""
    for node in nodes:
        whole = amount(mapping(node, "status", "allocatable").get(kind.resource)) or Fraction(0)
        held = sum((requested(p, kind.resource) for p in _daemons(pod.evidence, text(node, "metadata", "name"))), Fraction(0))
        if asked < whole and asked <= whole - held:
            return True
    return False


def _daemons(evidence: Evidence, node: str) -> list[Object]:
    """The pods that every node has: those of DaemonSets, and static ones."""
    here = [p for p in evidence.of_kind("Pod") if text(p, "spec", "nodeName") == node]
    return [p for p in here if split(evidence.top(reference(p)))[0] in ("DaemonSet", "Pod")]


def _restored(pod: Unplaced, kind: Kind, container: Object, room: Fraction) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The request as the newest earlier revision that asked for less had it, where there is room for that."""
    mine = [c for c in pod.scene.containers if c.ref == pod.ref and not c.init and c.name == text(container, "name")]
    field = join("resources.requests", kind.resource)
    for revision in earlier(mine[0]) if mine else []:
        was = mapping(revision.spec, "resources", "requests").get(kind.resource)
        value = amount(was)
        if isinstance(was, str | int) and value is not None and value < request(container, kind.resource):
            changes = _set(pod, kind, container, was) if 0 < value <= room else ()
            return changes, revision.cite(field, "an earlier revision asked for this, and a node has as much left") if changes else ()
    return (), ()


def _lowered(pod: Unplaced, kind: Kind, container: Object, room: Fraction) -> tuple[Change, ...]:
    """The request, set to what fits, rounded down."""
    value = (room // kind.step) * kind.step
    asked = request(container, kind.resource)
    if value < kind.smallest or value < asked * SMALLEST_SHARE or value >= asked:
        return ()
    return _set(pod, kind, container, kind.print(value))


def _set(pod: Unplaced, kind: Kind, container: Object, value: str | int) -> tuple[Change, ...]:
    """The request with this value; none where it is not the workload itself that asks."""
    place = join(template_path(pod.owner), "spec.containers", Pick("name", text(container, "name")), "resources.requests", kind.resource)
    owner = pod.evidence.get(pod.owner)
    before = lookup(owner, place) if owner is not None else mapping(container, "resources", "requests").get(kind.resource, ABSENT)
    if not isinstance(before, str | int):
        return ()
    return (Change(object=pod.owner, operation="set", path=place, value=value, before=before),)
