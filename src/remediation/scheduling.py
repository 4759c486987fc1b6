"""Scheduling: what the scheduler said of a pod that has no node, and what each node has left.

Shared by the causes of pods that wait for a node. Only the newest verdict counts: older ones may be of a cluster that was different.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from suture.remediation.citations import quote, quote_event
from suture.remediation.evidence import LONGEST_MESSAGE, Evidence, event_message, reference
from suture.remediation.incident import Citation
from suture.remediation.paths import Object, mapping, maps, text
from suture.remediation.quantity import amount
from suture.remediation.sightings import Scene, Sighting

_PREEMPTION = re.compile(r"(?:no new claims to deallocate, )?preemption: .*", re.DOTALL)
_COUNT = re.compile(r"(\d+)/(\d+) nodes are available")


@dataclass(frozen=True, eq=False)
class Unplaced(Sighting):
    """A pod without a node, and the scheduler's newest verdict on it."""

    verdict: str
    cited: tuple[Citation, ...]

    @property
    def nodes(self) -> int:
        """How many nodes the scheduler looked at."""
        found = _COUNT.search(self.verdict)
        return int(found[2]) if found else 0

    def said(self, phrase: str) -> int:
        """How many nodes were refused for a reason that holds `phrase`; 0 where none was."""
        found = re.search(rf"(?:(\d+) (?:node\(s\) )?)?[^,.]*?{phrase}", self.verdict)
        return 0 if found is None else int(found[1] or 1)

    @property
    def grows(self) -> bool:
        """An autoscaler has said that it adds a node: waiting is the cure."""
        return any(text(e, "reason") == "TriggeredScaleUp" for e in self.evidence.events(self.ref))

    @property
    def grows_not(self) -> bool:
        """An autoscaler is at work and has said that it will not help."""
        return any(text(e, "reason") == "NotTriggerScaleUp" for e in self.evidence.events(self.ref))

    @property
    def old_pods(self) -> list[Object]:
        """Running pods of the same owner: the rollout is held up, the service is not down."""
        return [p for p in self.evidence.pods(self.owner) if text(p, "spec", "nodeName") and text(p, "status", "phase") == "Running"]


def unplaced(scene: Scene) -> Iterator[Unplaced]:
    """Every pod that waits for a node, with the verdict in its status or, failing that, its newest event."""
    for pod in scene.evidence.of_kind("Pod"):
        if text(pod, "spec", "nodeName") or text(pod, "status", "phase") not in ("Pending", ""):
            continue
        found = _from_condition(pod) or _from_event(scene.evidence, reference(pod))
        if found is not None:
            verdict, cited = found
            yield Unplaced(scene, pod, _PREEMPTION.sub("", verdict), cited)
    yield from _gone(scene)


def _gone(scene: Scene) -> Iterator[Unplaced]:
    for container in scene.containers:
        if container.gone and (found := _from_event(scene.evidence, container.ref)) is not None:
            verdict, cited = found
            yield Unplaced(scene, container.pod, _PREEMPTION.sub("", verdict), cited)


def _from_condition(pod: Object) -> tuple[str, tuple[Citation, ...]] | None:
    for condition in maps(pod, "status", "conditions"):
        if text(condition, "type") == "PodScheduled" and text(condition, "reason") == "Unschedulable":
            return text(condition, "message")[:LONGEST_MESSAGE], quote(
                pod, "status.conditions[type=PodScheduled].message", "the scheduler's verdict"
            )
    return None


def _from_event(evidence: Evidence, ref: str) -> tuple[str, tuple[Citation, ...]] | None:
    failed = [e for e in evidence.events(ref) if text(e, "reason") == "FailedScheduling"]
    return (event_message(failed[-1]), quote_event(failed[-1], "the scheduler's verdict")) if failed else None


def requested(pod: Object, resource: str) -> Fraction:
    """What a pod asks of its node, as the scheduler counts: the sum of its containers or its largest init container, and the overhead."""
    running = maps(pod, "spec", "containers")
    inits = maps(pod, "spec", "initContainers")
    sidecars = [c for c in inits if text(c, "restartPolicy") == "Always"]
    total = sum((request(c, resource) for c in [*running, *sidecars]), Fraction(0))
    largest = max((request(c, resource) for c in inits if c not in sidecars), default=Fraction(0))
    return max(total, largest) + (amount(mapping(pod, "spec", "overhead").get(resource)) or 0)


def request(container: Object, resource: str) -> Fraction:
    """What a container asks for; a limit without a request is a request."""
    resources = mapping(container, "resources")
    asked = amount(mapping(resources, "requests").get(resource))
    return asked if asked is not None else amount(mapping(resources, "limits").get(resource)) or Fraction(0)


def free(evidence: Evidence, node: Object, resource: str) -> Fraction | None:
    """What a node has left: allocatable less what its pods ask for; None where the node does not say."""
    whole = amount(mapping(node, "status", "allocatable").get(resource))
    if whole is None:
        return None
    name = text(node, "metadata", "name")
    here = [p for p in evidence.of_kind("Pod") if text(p, "spec", "nodeName") == name]
    alive = [p for p in here if text(p, "status", "phase") not in ("Succeeded", "Failed")]
    return whole - sum((requested(p, resource) for p in alive), Fraction(0))


def schedulable(evidence: Evidence, pod: Object) -> list[Object]:
    """The nodes that the pod could be put on, were they empty: ready, not cordoned, tolerated, selected."""
    return [node for node in evidence.of_kind("Node") if _open(node) and _tolerated(node, pod) and _selected(node, pod)]


def _open(node: Object) -> bool:
    ready = [text(c, "status") for c in maps(node, "status", "conditions") if text(c, "type") == "Ready"]
    return mapping(node, "spec").get("unschedulable") is not True and ready in (["True"], [])


def _tolerated(node: Object, pod: Object) -> bool:
    return all(any(tolerates(t, taint) for t in maps(pod, "spec", "tolerations")) for taint in hard_taints(node))


def hard_taints(node: Object) -> list[Object]:
    """The taints that keep pods off a node."""
    return [t for t in maps(node, "spec", "taints") if text(t, "effect") in ("NoSchedule", "NoExecute")]


def tolerates(toleration: Object, taint: Object) -> bool:
    """Whether a toleration covers a taint, by the API's rules."""
    if text(toleration, "effect") not in ("", text(taint, "effect")):
        return False
    if not text(toleration, "key"):
        return text(toleration, "operator") == "Exists"
    same = text(toleration, "key") == text(taint, "key")
    return same and (text(toleration, "operator") == "Exists" or text(toleration, "value") == text(taint, "value"))


def _selected(node: Object, pod: Object) -> bool:
    labels = mapping(node, "metadata", "labels")
    return all(labels.get(key) == value for key, value in mapping(pod, "spec", "nodeSelector").items())
