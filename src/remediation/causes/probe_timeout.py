"""ProbeTimeout: the check is right and takes longer than the probe waits. The default is one second."""

import re
from collections.abc import Iterator

from suture.remediation.incident import Change, Finding
from suture.remediation.paths import ABSENT
from suture.remediation.probing import FailingProbe, failing_probes
from suture.remediation.sightings import Scene

CODES = ("ProbeTimeout",)

LEAST, MOST, GROWTH = 5, 30, 3
"""Seconds, and the factor: the kubelet does not say how long the check would have taken."""
_LATE = re.compile(
    r"timed out after|command .*timed out|context deadline exceeded|Client\.Timeout exceeded|request canceled|DeadlineExceeded"
    r"|timeout: failed to connect",
    re.DOTALL,
)
_NO_ROUTE = re.compile(r"dial tcp .*i/o timeout|no route to host")


def findings(scene: Scene) -> Iterator[Finding]:
    for probe in failing_probes(scene):
        silent = probe.action in ("exec", "") and not probe.why
        if (silent or _LATE.search(probe.why)) and not _NO_ROUTE.search(probe.why):
            yield _finding(probe)


def _finding(probe: FailingProbe) -> Finding:
    container, seconds = probe.container, probe.number("timeoutSeconds", 1)
    changes = _fixes(probe, seconds)
    return Finding(
        code="ProbeTimeout", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} is taken for {'dead' if probe.kills else 'not ready'}: "
        f"its {probe.kind.lower()} probe waits {seconds} s, and the check takes longer.",
        confidence=0.93 if probe.why else 0.8,
        citations=(*probe.cite("the check did not end in time"), *probe.cite_spec("how long the probe waits")), changes=changes,
        advice="" if changes else "Find out why the check is so slow; more patience would only hide it.",
    )  # fmt: skip


def _fixes(probe: FailingProbe, seconds: int) -> tuple[Change, ...]:
    value = min(max(seconds * GROWTH, LEAST), MOST)
    if value <= seconds or not probe.spec:
        return ()
    path = probe.container.source_path(probe.field, "timeoutSeconds")
    before = probe.container.source_value(path)
    operation = "add" if before is ABSENT else "set"
    given = {
        "object": probe.container.owner,
        "operation": operation,
        "path": path,
        "value": value,
        "before": None if before is ABSENT else before,
    }
    return (Change.model_validate(given),)
