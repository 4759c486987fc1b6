"""Sightings: views that causes share over the evidence: containers with their state, what the kubelet said of them, what they wrote.

A view finds and names; it never judges. Pods that are gone but left events are seen too, when nothing newer of their owner is there.
Neighbours: `evidence` below, `causes` above.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from suture.remediation.citations import quote, quote_bytes
from suture.remediation.evidence import (
    LONGEST_MESSAGE,
    Evidence,
    Log,
    event_count,
    event_message,
    event_time,
    involved,
    reference,
    split,
    template_path,
)
from suture.remediation.incident import Citation
from suture.remediation.paths import ABSENT, Object, Pick, Step, join, lookup, mapping, maps, text, whole

_FIELD_PATH = re.compile(r"spec\.(containers|initContainers|ephemeralContainers)\{([^}]*)\}")
GROUPS = ("initContainers", "containers")
RECOVERED = timedelta(minutes=15)
"""Longer than the longest pause between two restarts (five minutes) and the ten after which the kubelet forgets about a crash."""


class Scene:
    """The evidence with its views, made once for all causes."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @cached_property
    def containers(self) -> list["Container"]:
        """Every container of every pod, init containers first; then those of pods that are gone."""
        present = [c for pod in self.evidence.of_kind("Pod") if not _is_over(self.evidence, pod) for c in _of_pod(self, pod)]
        return [*present, *_gone(self)]

    @cached_property
    def broken(self) -> list["Container"]:
        """The containers that do not do their work, or of which too little is known to say that they do."""
        return [c for c in self.containers if c.broken]

    def of_owner(self, owner: str) -> list["Container"]:
        """The containers of a workload's pods."""
        return self._owned.get(owner, [])

    @cached_property
    def _owned(self) -> dict[str, list["Container"]]:
        owned: dict[str, list[Container]] = {}
        for container in self.containers:
            owned.setdefault(container.owner, []).append(container)
        return owned

    @cached_property
    def now(self) -> datetime | None:
        """The newest time that the evidence tells: when it was taken, or shortly before."""
        beats = (text(c, "lastHeartbeatTime") for n in self.evidence.of_kind("Node") for c in maps(n, "status", "conditions"))
        times = (*beats, *(event_time(e) for e in self.evidence.of_kind("Event")))
        return max((t for t in map(moment, times) if t is not None), default=None)


@dataclass(frozen=True, eq=False)
class Sighting:
    """Something about one pod."""

    scene: Scene
    pod: Object
    """The pod; for a pod that is gone, a stand-in with its name and its owner's template."""

    @property
    def evidence(self) -> Evidence:
        return self.scene.evidence

    @cached_property
    def ref(self) -> str:
        return reference(self.pod)

    @cached_property
    def owner(self) -> str:
        """What a person wrote: the top of the owner chain."""
        return self.evidence.top(self.ref)

    @property
    def namespace(self) -> str:
        return text(self.pod, "metadata", "namespace")


@dataclass(frozen=True, eq=False)
class Container(Sighting):
    """One container of one pod. `status` and `spec` are empty where the evidence does not hold the pod."""

    group: str
    """`containers` or `initContainers`."""
    name: str
    gone: bool = False

    @property
    def init(self) -> bool:
        return self.group == "initContainers"

    @cached_property
    def spec(self) -> Object:
        return _named(maps(self.pod, "spec", self.group), self.name)

    @cached_property
    def status(self) -> Object:
        return _named(maps(self.pod, "status", self.status_group), self.name)

    @property
    def status_group(self) -> str:
        return "initContainerStatuses" if self.init else "containerStatuses"

    def status_path(self, *rest: str | Step) -> str:
        return join("status", self.status_group, Pick("name", self.name), *rest)

    def spec_path(self, *rest: str | Step) -> str:
        """A field of this container in the pod."""
        return join("spec", self.group, Pick("name", self.name), *rest)

    def source_path(self, *rest: str | Step) -> str:
        """A field of this container in its owner: what a change names."""
        return join(template_path(self.owner), "spec", self.group, Pick("name", self.name), *rest)

    def pod_source_path(self, *rest: str | Step) -> str:
        """A field of the pod's spec in its owner."""
        return join(template_path(self.owner), "spec", *rest)

    def source_value(self, path: str) -> Any:
        """What stands at a `source_path` in the owner, or in the pod where the owner is not in the evidence; ABSENT where there is none."""
        document, prefix = self.evidence.get(self.owner), template_path(self.owner)
        if document is not None:
            return lookup(document, path)
        return lookup(self.pod, path.removeprefix(f"{prefix}.") if prefix else path)

    @property
    def waiting(self) -> str:
        """Why the container waits; empty when it does not."""
        return text(self.status, "state", "waiting", "reason")

    @property
    def running(self) -> bool:
        return isinstance(mapping(self.status, "state").get("running"), dict)

    @property
    def ready(self) -> bool:
        return self.status.get("ready") is True

    @property
    def restarts(self) -> int:
        return whole(self.status, "restartCount") or 0

    @cached_property
    def death(self) -> tuple[str, Object] | None:
        """The newest end of the container, and where it stands in the status."""
        for state in ("state", "lastState"):
            if found := mapping(self.status, state, "terminated"):
                return f"{state}.terminated", found
        return None

    @property
    def exit_code(self) -> int | None:
        return None if self.death is None else whole(self.death[1], "exitCode")

    @cached_property
    def crashing(self) -> bool:
        """It ended by itself with a complaint, and not long ago enough to have recovered for good."""
        if self.probed_to_death and self.exit_code in (0, 137, 143):
            return False
        failed = self.exit_code not in (None, 0)
        return failed and not self.recovered and not (self.running and self.ready and self.restarts == 0)

    @property
    def recovered(self) -> bool:
        """It has been ready for so long that how it began no longer matters."""
        since, now = moment(text(self.status, "state", "running", "startedAt")), self.scene.now
        return self.ready and since is not None and now is not None and now - since > RECOVERED

    @property
    def spoke_last(self) -> bool:
        """Its log may hold why it ended: it ended with a complaint, or nothing but events and logs tells of it."""
        return self.exit_code != 0 and (self.crashing or self.gone or not self.status)

    @cached_property
    def broken(self) -> bool:
        """It does not do its work now: waits for more than its turn, has failed, or is not known well enough to say it is fine."""
        if self.gone:
            return True
        if self.waiting not in ("", "ContainerCreating", "PodInitializing"):
            return True
        return self.crashing and not (self.running and self.ready)

    @cached_property
    def probed_to_death(self) -> bool:
        """The kubelet killed it because of its liveness or startup probe."""
        wanted = ("failed liveness probe", "failed startup probe")
        return any(s.reason == "Killing" and any(w in s.message for w in wanted) for s in self.said)

    @cached_property
    def said(self) -> tuple["Saying", ...]:
        """What the kubelet said of this container: its state first, then events, the newest first."""
        return (*_from_status(self), *_from_events(self))

    @cached_property
    def logs(self) -> list[Log]:
        """What it wrote, the previous life first. A log that came without names belongs to the only container that is broken."""
        return self.evidence.logs_of(self.namespace, split(self.ref)[2], self.name) or _nameless_logs(self)

    def cite(self, path: str, why: str) -> tuple[Citation, ...]:
        """The citation of a field of the pod; none where the pod is gone."""
        return () if self.gone else quote(self.pod, path, why)

    def cite_source(self, path: str, why: str) -> tuple[Citation, ...]:
        """The citation of a field of the owner, or of the pod where the owner is not in the evidence."""
        document, prefix = self.evidence.get(self.owner), template_path(self.owner)
        return self.cite(path.removeprefix(f"{prefix}."), why) if document is None else quote(document, path, why)

    def cite_death(self, why: str) -> tuple[Citation, ...]:
        """The citation of the exit code."""
        return () if self.death is None else self.cite(self.status_path(self.death[0], "exitCode"), why)

    def find(self, pattern: re.Pattern[bytes]) -> tuple[Log, re.Match[bytes]] | None:
        """The last place in its logs that fits, in the life that ended before the one that goes on."""
        for log in self.logs:
            found = list(pattern.finditer(log.content))
            if found:
                return log, found[-1]
        return None


@dataclass(frozen=True)
class Saying:
    """A message of the kubelet or a controller, and where it can be quoted."""

    document: Object
    path: str
    reason: str
    message: str
    count: int = 1

    def cite(self, why: str) -> tuple[Citation, ...]:
        return quote(self.document, self.path, why)


def _from_status(container: Container) -> Iterator[Saying]:
    for place in ("state.waiting", "state.terminated", "lastState.terminated"):
        found = mapping(container.status, *place.split("."))
        if message := text(found, "message"):
            yield Saying(container.pod, container.status_path(place, "message"), text(found, "reason"), message[:LONGEST_MESSAGE])


def _from_events(container: Container) -> Iterator[Saying]:
    for event in reversed(container.evidence.events(container.ref)):
        about = mapping(event, "involvedObject") or mapping(event, "regarding")
        place = _FIELD_PATH.fullmatch(text(about, "fieldPath"))
        if place is None or place[2] == container.name:
            yield saying(event)


def saying(event: Object) -> Saying:
    """An event as a saying."""
    path = "message" if isinstance(event.get("message"), str) else "note"
    return Saying(event, path, text(event, "reason"), event_message(event), event_count(event))


def _nameless_logs(container: Container) -> list[Log]:
    loose = [log for log in container.evidence.logs if not log.namespace and not log.lost]
    named = [log for log in loose if log.pod == split(container.ref)[2] and log.container in ("", container.name)]
    if named or not loose or not container.status:
        return named
    broken = [c for c in container.scene.broken if c.status]
    return loose if len(broken) == 1 and broken[0] is container else []


def _named(items: list[Object], name: str) -> Object:
    return next((item for item in items if text(item, "name") == name), {})


def moment(written: str) -> datetime | None:
    """A time of the API; None where it is none."""
    try:
        found = datetime.fromisoformat(written)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _is_over(evidence: Evidence, pod: Object) -> bool:
    """The pod says nothing about now: it is being deleted, its Job is complete, or it failed and has been replaced."""
    ref = reference(pod)
    if text(pod, "metadata", "deletionTimestamp"):
        return True
    job = evidence.get(evidence.owner(ref) or "")
    if text(job, "kind") == "Job":
        return any(text(c, "type") == "Complete" and text(c, "status") == "True" for c in maps(job, "status", "conditions"))
    others = [p for p in evidence.pods(evidence.top(ref)) if p is not pod and text(p, "status", "phase") == "Running"]
    return text(pod, "status", "phase") == "Failed" and bool(others)


def _of_pod(scene: Scene, pod: Object) -> Iterator[Container]:
    for group in GROUPS:
        names = [text(c, "name") for c in maps(pod, "spec", group)]
        statuses = maps(pod, "status", "initContainerStatuses" if group == "initContainers" else "containerStatuses")
        for name in dict.fromkeys([*names, *(text(s, "name") for s in statuses)]):
            yield Container(scene, pod, group, name)


def _gone(scene: Scene) -> Iterator[Container]:
    """Containers of pods that only events and logs still tell of, where the owner has no pod that speaks for itself."""
    evidence = scene.evidence
    told = {involved(e) for e in evidence.of_kind("Event")} | {f"Pod/{log.namespace}/{log.pod}" for log in evidence.logs}
    alive = {evidence.top(reference(pod)) for pod in evidence.of_kind("Pod")}
    names = {split(reference(pod))[2] for pod in evidence.of_kind("Pod")}
    for ref in sorted(ref for ref in told if ref.startswith("Pod/") and evidence.get(ref) is None):
        owner = evidence.top(ref)
        if owner not in alive and split(ref)[2] not in names and not (split(ref)[1] == "" and alive):
            yield from _of_gone_pod(scene, ref, owner)


def _of_gone_pod(scene: Scene, ref: str, owner: str) -> Iterator[Container]:
    _, namespace, name = split(ref)
    document = scene.evidence.get(owner) if owner != ref else None
    spec = lookup(document, join(template_path(owner), "spec")) if document is not None else {}
    stand_in = {"kind": "Pod", "metadata": {"namespace": namespace, "name": name}, "spec": spec if spec is not ABSENT else {}}
    known = [Container(scene, stand_in, c.group, c.name, gone=True) for c in _of_pod(scene, stand_in)]
    yield from known or _told_of(scene, stand_in, ref)


def _told_of(scene: Scene, stand_in: Object, ref: str) -> Iterator[Container]:
    """Containers that nothing but the events' field paths and the logs' names tell of."""
    places = {("containers", log.container) for log in scene.evidence.logs if f"Pod/{log.namespace}/{log.pod}" == ref}
    for event in scene.evidence.events(ref):
        place = _FIELD_PATH.fullmatch(text(event, "involvedObject", "fieldPath"))
        if place is not None:
            places.add((place[1], place[2]))
    for group, name in sorted(places) or [("containers", "")]:
        yield Container(scene, stand_in, group, name, gone=True)


def quote_line(log: Log, found: re.Match[bytes], why: str) -> tuple[Citation, ...]:
    """The citation of the line of a log that a pattern was found in, or of the finding where the line is long."""
    start = log.content.rfind(b"\n", 0, found.start()) + 1
    end = log.content.find(b"\n", found.end())
    end = len(log.content) if end < 0 else end
    if end - start > 400:
        start, end = found.span()
    return quote_bytes(log, start, end, why)
