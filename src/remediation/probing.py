"""Probing: which probes of a container fail, what the kubelet said, and whether that is still so. Shared by the causes of probes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.incident import Citation
from suture.remediation.paths import Object, mapping, maps, text, whole
from suture.remediation.sightings import Container, Saying, Scene

FIELDS = {"Liveness": "livenessProbe", "Readiness": "readinessProbe", "Startup": "startupProbe"}
_FAILED = re.compile(r"(?P<kind>Liveness|Readiness|Startup) probe (?:failed|errored)(?: and resulted in unknown)?:?(?P<why>.*)", re.DOTALL)
_NOBODY = re.compile(r"connection refused|failed to connect|couldn't connect|no response", re.IGNORECASE)
_REFUSED_PORT = re.compile(r"dial tcp \S*?:(?P<port>\d{1,5}): (?:connect: )?connection refused")


@dataclass(frozen=True, eq=False)
class FailingProbe:
    """A probe that fails now, or because of which the kubelet restarted the container."""

    container: Container
    kind: str
    why: str
    said: Saying

    @property
    def field(self) -> str:
        return FIELDS[self.kind]

    @property
    def spec(self) -> Object:
        return mapping(self.container.spec, self.field)

    @property
    def kills(self) -> bool:
        return self.kind != "Readiness"

    @property
    def action(self) -> str:
        """`httpGet`, `tcpSocket`, `grpc`, `exec`; empty where the manifest is not known."""
        return next((a for a in ("httpGet", "tcpSocket", "grpc", "exec") if a in self.spec), "")

    @property
    def asked_port(self) -> int | None:
        """The port that the probe asks, a name resolved by the container's ports."""
        asked = mapping(self.spec, self.action).get("port")
        if isinstance(asked, str):
            named = next((p for p in maps(self.container.spec, "ports") if text(p, "name") == asked), {})
            return whole(named, "containerPort")
        return asked if isinstance(asked, int) else self.refused_port

    @property
    def refused_port(self) -> int | None:
        """The port at which nothing listened, as the kubelet says."""
        found = _REFUSED_PORT.search(self.why)
        return int(found["port"]) if found else None

    @property
    def refused(self) -> bool:
        """Nothing listened, whoever asked: the kubelet, or a program that the probe runs."""
        return _NOBODY.search(self.why) is not None

    def number(self, field: str, default: int) -> int:
        found = whole(self.spec, field)
        return default if found is None else found

    @property
    def patience(self) -> int:
        """Seconds from the start until the kubelet gives up: the delay, and as many periods as failures are allowed."""
        return self.number("initialDelaySeconds", 0) + self.number("periodSeconds", 10) * self.number("failureThreshold", 3)

    def cite(self, why: str) -> tuple[Citation, ...]:
        return self.said.cite(why)

    def cite_spec(self, why: str) -> tuple[Citation, ...]:
        return self.container.cite(self.container.spec_path(self.field), why)


def failing_probes(scene: Scene) -> Iterator[FailingProbe]:
    """The probes that matter, one a kind and container; those of a container that ends by itself are an effect of that."""
    for container in scene.containers:
        if not _matters(container):
            continue
        seen: set[str] = set()
        for told in container.said:
            found = _FAILED.match(told.message)
            if told.reason in ("Unhealthy", "ProbeError", "ProbeWarning") and found is not None and found["kind"] not in seen:
                seen.add(found["kind"])
                yield FailingProbe(container, found["kind"], found["why"].strip(), told)


def _matters(container: Container) -> bool:
    if container.gone:
        return True
    if container.init or container.crashing or container.recovered or not container.status:
        return False
    if container.waiting and container.waiting != "CrashLoopBackOff":
        return False
    return not container.ready or container.probed_to_death
