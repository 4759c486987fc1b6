"""Admission: what the API server answered when a controller wanted to create pods and could not.

There is no pod and no log then; the answer stands in an event about the ReplicaSet, the DaemonSet, the StatefulSet or the Job.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.citations import quote_event
from suture.remediation.evidence import Evidence, event_message, involved, split, template_path
from suture.remediation.incident import Citation
from suture.remediation.paths import Object, join, lookup, mapping, maps, text, whole
from suture.remediation.sightings import GROUPS, Scene


@dataclass(frozen=True, eq=False)
class Refusal:
    """The newest answer of one kind to one owner."""

    scene: Scene
    maker: str
    event: Object
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
        return quote_event(self.event, why)


def refusals(scene: Scene, pattern: re.Pattern[str]) -> Iterator[Refusal]:
    """The owners whose pods are refused still, each with the newest answer that fits."""
    newest: dict[str, Refusal] = {}
    for event in scene.evidence.of_kind("Event"):
        if text(event, "reason") in ("FailedCreate", "ReplicaSetCreateError", "FailedUpdate"):
            found = pattern.search(event_message(event))
            maker = involved(event)
            if found is not None and not _satisfied(scene.evidence, maker):
                newest[scene.evidence.top(maker)] = Refusal(scene, maker, event, found)
    yield from newest.values()


def _satisfied(evidence: Evidence, maker: str) -> bool:
    """The controller has all the pods that it wanted: what it complained of is over."""
    document = evidence.get(maker)
    if document is None:
        return False
    kind = split(maker)[0]
    if kind == "DaemonSet":
        wanted, there = whole(document, "status", "desiredNumberScheduled"), whole(document, "status", "currentNumberScheduled")
        return bool(wanted) and wanted == there
    if kind == "Job":
        return any(text(c, "type") == "Complete" and text(c, "status") == "True" for c in maps(document, "status", "conditions"))
    wanted = whole(document, "spec", "replicas")
    return wanted is not None and (whole(document, "status", "replicas") or 0) >= wanted
