"""Admission: what the API server answered when a controller wanted to create pods and could not.

There is no pod and no log then; the answer stands in an event about the ReplicaSet, the DaemonSet, the StatefulSet or the Job, and for
some of them in a condition of their status.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.evidence import LONGEST_MESSAGE, Evidence, event_time, involved, reference, split, template_path
from suture.remediation.incident import Citation
from suture.remediation.paths import Object, join, lookup, mapping, maps, text, whole
from suture.remediation.sightings import GROUPS, Saying, Scene, saying


@dataclass(frozen=True, eq=False)
class Refusal:
    """The newest answer of one kind to one owner."""

    scene: Scene
    maker: str
    said: Saying
    found: re.Match[str]

    @property
    def evidence(self) -> Evidence:
        return self.scene.evidence

    @property
    def owner(self) -> str:
        return self.evidence.top(self.maker)

    @property
    def namespace(self) -> str:
        return split(self.owner)[1]

    @property
    def pod_spec(self) -> Object:
        """The spec of the pods that were to be made."""
        document = self.evidence.get(self.owner)
        found = lookup(document, join(template_path(self.owner), "spec")) if document is not None else None
        return mapping({"spec": found}, "spec")

    def containers(self) -> Iterator[tuple[str, Object]]:
        for group in GROUPS:
            for container in maps(self.pod_spec, group):
                yield group, container

    def cite(self, why: str) -> tuple[Citation, ...]:
        return self.said.cite(why)


def refusals(scene: Scene, pattern: re.Pattern[str]) -> Iterator[Refusal]:
    """The owners whose pods are refused still, each with the newest answer that fits."""
    newest: dict[str, Refusal] = {}
    for maker, said in (*_from_conditions(scene.evidence), *_from_events(scene.evidence)):
        found = pattern.search(said.message)
        if found is not None and not _satisfied(scene.evidence, maker):
            newest[scene.evidence.top(maker)] = Refusal(scene, maker, said, found)
    yield from newest.values()


def _from_conditions(evidence: Evidence) -> Iterator[tuple[str, Saying]]:
    """What a controller keeps in its status: it is still there when the events have expired."""
    path = "status.conditions[type=ReplicaFailure]"
    for kind in ("Deployment", "ReplicaSet", "ReplicationController"):
        for maker in evidence.of_kind(kind):
            condition = mapping({"found": lookup(maker, path)}, "found")
            if text(condition, "status") == "True":
                message = text(condition, "message")[:LONGEST_MESSAGE]
                yield reference(maker), Saying(maker, f"{path}.message", text(condition, "reason"), message)


def _from_events(evidence: Evidence) -> Iterator[tuple[str, Saying]]:
    for event in sorted(evidence.of_kind("Event"), key=event_time):
        if text(event, "reason") in ("FailedCreate", "ReplicaSetCreateError", "FailedUpdate"):
            yield involved(event), saying(event)


def _satisfied(evidence: Evidence, maker: str) -> bool:
    """The controller has all the pods that it wanted: what it complained of is over."""
    document = evidence.get(maker)
    if document is None or split(maker)[0] == "Deployment":
        return False
    kind = split(maker)[0]
    if kind == "DaemonSet":
        wanted, there = whole(document, "status", "desiredNumberScheduled"), whole(document, "status", "currentNumberScheduled")
        return bool(wanted) and wanted == there
    if kind == "Job":
        return any(text(c, "type") == "Complete" and text(c, "status") == "True" for c in maps(document, "status", "conditions"))
    wanted = whole(document, "spec", "replicas")
    return wanted is not None and (whole(document, "status", "replicas") or 0) >= wanted
