"""MemoryUnit: a quantity of memory is written with `m`, which means a thousandth of a byte.

The symptom depends on the runtime (no sandbox, no space left on device, killed at once) and never names memory; the number does.
"""

from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import ABSENT, mapping
from suture.remediation.quantity import amount
from suture.remediation.sightings import Container, Scene

CODES = ("MemoryUnit",)

TOO_SMALL = 1 << 20
"""Bytes. No process fits into a mebibyte; a limit below it is a wrong unit."""


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        wrong = [part for part in ("limits", "requests") if _in_thousandths(container, part)]
        if "limits" in wrong and not (container.running and container.ready):
            yield _finding(container, wrong)


def _in_thousandths(container: Container, part: str) -> bool:
    written = mapping(container.spec, "resources", part).get("memory")
    number = amount(written)
    return isinstance(written, str) and written.endswith("m") and number is not None and number < TOO_SMALL


def _finding(container: Container, wrong: list[str]) -> Finding:
    limit = mapping(container.spec, "resources", "limits").get("memory")
    why = "lower-case m is a thousandth of a byte"
    cited = container.cite(container.spec_path("resources.limits.memory"), why)
    source = container.cite_source(container.source_path("resources.limits.memory"), why) if container.gone or not cited else ()
    told = next((s for s in container.said if s.reason in ("FailedCreatePodSandBox", "Failed", "OOMKilled")), None)
    symptom: tuple[Citation, ...] = told.cite("what the runtime made of it") if told else ()
    return Finding(
        code="MemoryUnit", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: its memory limit of {limit} counts thousandths of a byte.",
        confidence=0.97, citations=(*cited, *source, *symptom), changes=tuple(c for part in wrong for c in _change(container, part)),
    )  # fmt: skip


def _change(container: Container, part: str) -> Iterator[Change]:
    path = container.source_path("resources", part, "memory")
    before = container.source_value(path)
    if before is not ABSENT and isinstance(before, str) and before.endswith("m"):
        yield Change(object=container.owner, operation="set", path=path, value=before.removesuffix("m") + "Mi", before=before)
