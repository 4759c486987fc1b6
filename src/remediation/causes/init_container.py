"""InitContainerFailed: an init container ends with a complaint, so that the program itself never starts.

Said only where no cause says more of the same container. One mistake is repaired: it works on a read-only volume while exactly one
writable one is mounted beside it.
"""

import re
from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Index, join, maps, text, texts
from suture.remediation.sightings import Container, Scene, quote_line
from suture.remediation.volumes import is_read_only

CODES = ("InitContainerFailed",)

_LAST_LINE = re.compile(rb"(?m)^(?=\S)[^\n]{1,400}$")
_READ_ONLY = re.compile(rb"(?im)^[^\n]{0,400}?read-only file ?system[^\n]{0,300}")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if container.init and container.exit_code not in (None, 0) and not container.ready and not container.running:
            yield _finding(container)


def _finding(container: Container) -> Finding:
    refused = container.find(_READ_ONLY)
    line = refused or container.find(_LAST_LINE)
    said = quote_line(*line, "the last that it said") if line else ()
    changes, proof = _fixes(container) if refused else ((), ())
    return Finding(
        code="InitContainerFailed", object=container.owner, container=container.name,
        sentence=f"{container.owner} does not start: its init container {container.name} ends with exit code {container.exit_code}.",
        confidence=0.92 if changes else 0.8, citations=(*container.cite_death("how it ended"), *said, *proof), changes=changes,
        advice="" if changes else f"Repair what init container {container.name} does; until it succeeds, nothing else of the pod runs.",
    )  # fmt: skip


def _fixes(container: Container) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    mounts = maps(container.spec, "volumeMounts")
    writable = [m for m in mounts if not is_read_only(container, m)]
    locked = {text(m, "mountPath").rstrip("/") for m in mounts if is_read_only(container, m)}
    if len(writable) != 1:
        return (), ()
    for field in ("command", "args"):
        for number, word in enumerate(texts(container.spec, field)):
            if word.rstrip("/") in locked:
                place = join(field, Index(number))
                value = text(writable[0], "mountPath")
                change = Change(object=container.owner, operation="set", path=container.source_path(place), value=value, before=word)
                return (change,), container.cite(container.spec_path(place), "it works on a volume that is always read-only")
    return (), ()
