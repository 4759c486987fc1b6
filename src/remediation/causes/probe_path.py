"""ProbeWrongPath: the program answers the probe, and says that there is nothing at this path."""

import re
from collections.abc import Iterator

from suture.remediation.history import earlier
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import mapping, text
from suture.remediation.probing import FIELDS, FailingProbe, failing_probes
from suture.remediation.sightings import Scene

CODES = ("ProbeWrongPath",)

_NOT_THERE = re.compile(r"statuscode: (?:404|405|410)")


def findings(scene: Scene) -> Iterator[Finding]:
    for probe in failing_probes(scene):
        if _NOT_THERE.search(probe.why):
            yield _finding(probe)


def _finding(probe: FailingProbe) -> Finding:
    container, path = probe.container, text(probe.spec, "httpGet", "path") or "/"
    changes, proof = _fixes(probe, path)
    doubled = ", which begins with two slashes as if a part of it were empty" if path.startswith("//") else ""
    return Finding(
        code="ProbeWrongPath", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} works and is taken for {'dead' if probe.kills else 'not ready'}: "
        f"its {probe.kind.lower()} probe asks for {path}{doubled}, which the program does not have.",
        confidence=0.95, citations=(*probe.cite("the program answers that there is no such "
        "path"), *probe.cite_spec("the probe as it is written"), *proof),
        changes=changes,
        advice="" if changes else f"Name the path at which the program answers, in every probe that asks for {path}; keep the probes.",
    )  # fmt: skip


def _fixes(probe: FailingProbe, path: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """What the revision before asked for; else what another probe of the same container asks for with success."""
    container = probe.container
    wrong = [f for f in FIELDS.values() if text(container.spec, f, "httpGet", "path") == path]
    for revision in earlier(container)[:1]:
        was = text(revision.spec, probe.field, "httpGet", "path")
        if was and was != path:
            return _set(probe, wrong, path, was), revision.cite(f"{probe.field}.httpGet.path", "the revision before asked for this")
    failing = {told.message.partition(" ")[0] for told in container.said if told.reason == "Unhealthy"}
    for kind, field in FIELDS.items():
        other = text(container.spec, field, "httpGet", "path")
        same_port = mapping(container.spec, field, "httpGet").get("port") == mapping(probe.spec, "httpGet").get("port")
        if other and other != path and same_port and kind not in failing:
            return _set(probe, wrong, path, other), container.cite(
                container.spec_path(field, "httpGet.path"), "this probe has no complaint"
            )
    return (), ()


def _set(probe: FailingProbe, fields: list[str], before: str, value: str) -> tuple[Change, ...]:
    container = probe.container
    return tuple(
        Change(object=container.owner, operation="set", path=container.source_path(f, "httpGet.path"), value=value, before=before)
        for f in fields
    )
