"""ProbeTooEarly: the kubelet kills the program before it has started, again and again.

Told by a refused connection at the right port, a container that is ended from outside, and a log in which nothing listens yet.
"""

import re
from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.listening import ports_of, spoken_ports
from suture.remediation.paths import ABSENT
from suture.remediation.probing import FailingProbe, failing_probes
from suture.remediation.sightings import Scene, quote_line

CODES = ("ProbeTooEarly",)

GROWTH = 4
"""The start took longer than the patience it was given, nobody knows by how much: four times as long covers most."""
LEAST, MOST = 30, 180
"""Seconds. A longer start than this is a program to look at."""
_LAST_LINE = re.compile(rb"(?m)^(?=\S)[^\n]{1,400}$")


def findings(scene: Scene) -> Iterator[Finding]:
    for probe in failing_probes(scene):
        if probe.kills and probe.refused and (probe.container.probed_to_death or probe.container.gone):
            yield from _finding(probe)


def _finding(probe: FailingProbe) -> Iterator[Finding]:
    container = probe.container
    spoken, asked = spoken_ports(container), probe.asked_port
    if spoken and (asked not in spoken or _only_itself(spoken[asked])):
        return
    if not spoken and asked is not None and ports_of(container) and asked not in ports_of(container):
        return
    last = container.find(_LAST_LINE)
    so_far: tuple[Citation, ...] = quote_line(*last, "how far its start had come") if last else ()
    changes = _fixes(probe)
    yield Finding(
        code="ProbeTooEarly", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} is killed while it starts: "
        f"its {probe.kind.lower()} probe gives it {probe.patience} s, and it needs longer.",
        confidence=0.9 if last else 0.7,
        citations=(*probe.cite("nothing listens yet"), *probe.cite_spec("the patience that it is given"), *so_far), changes=changes,
        advice="" if changes else "Give it a startupProbe that allows the time that its start needs.",
    )  # fmt: skip


def _only_itself(said: tuple[Citation, ...]) -> bool:
    """It listens where nobody but itself can reach it: waiting longer would not help."""
    return any("127.0.0.1" in str(c.value) or "localhost" in str(c.value) for c in said)


def _fixes(probe: FailingProbe) -> tuple[Change, ...]:
    """A longer delay for the liveness probe; more tries for a startup probe, which exists to wait."""
    container = probe.container
    wanted = min(max(probe.patience * GROWTH, LEAST), MOST)
    if wanted <= probe.patience or not probe.spec:
        return ()
    if probe.kind == "Startup":
        field, value = "failureThreshold", -(-wanted // max(probe.number("periodSeconds", 10), 1))
    else:
        field, value = "initialDelaySeconds", wanted
    path = container.source_path(probe.field, field)
    before = container.source_value(path)
    operation = "add" if before is ABSENT else "set"
    given = {
        "object": container.owner,
        "operation": operation,
        "path": path,
        "value": value,
        "before": None if before is ABSENT else before,
    }
    return (Change.model_validate(given),)
