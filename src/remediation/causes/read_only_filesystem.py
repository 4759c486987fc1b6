"""ReadOnlyFilesystem: the program writes to its root file system, which the manifest made read-only.

The demand stays; the program gets a scratch directory where it writes. Only directories that hold nothing of the image are covered so.
"""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import New, mapping, maps, text
from suture.remediation.sightings import Container, Scene, quote_line
from suture.remediation.volumes import is_read_only, mount_of

CODES = ("ReadOnlyFilesystem",)

_REFUSED = re.compile(rb"(?im)^[^\n]{0,400}?(?:read-only file ?system|EROFS)[^\n]{0,300}")
_PATH = re.compile(rb"(?<![\w./])(/[A-Za-z0-9_][^\s'\":,;()\[\]<>]{0,300})")
_NEEDS_TEMPORARY = re.compile(rb"(?i)temp file|here-document|temporary file|mkstemp|tmpfile")
_SCRATCH = re.compile(r"(/tmp|/var/tmp|/run|/var/run|/var/log|/var/cache/[^/]+|/home/[^/]+/\.cache|/root/\.cache)(?:/.*)?")
SETTING = "securityContext.readOnlyRootFilesystem"


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        logged = container.find(_REFUSED)
        if logged is None:
            continue
        path = _path(logged[1][0])
        mount = mount_of(container, path) if path else None
        strict = mapping(container.spec, "securityContext").get("readOnlyRootFilesystem") is True
        if (mount is None and (strict or not container.spec)) or (
            mount is not None and not container.init and is_read_only(container, mount)
        ):
            yield _finding(container, path, quote_line(*logged, "what it wanted to write"), covered=mount is not None)


def _path(line: bytes) -> str:
    """The path that could not be written: the last one in the complaint that is no program text."""
    paths = [p.decode("utf-8", "replace").rstrip(".") for p in _PATH.findall(line)]
    return paths[-1] if paths and not _NEEDS_TEMPORARY.search(line) else "/tmp/x" if _NEEDS_TEMPORARY.search(line) else ""  # noqa: S108


def _finding(container: Container, path: str, cited: tuple[Citation, ...], *, covered: bool) -> Finding:
    found = _SCRATCH.fullmatch(path)
    changes = () if covered or found is None else _fixes(container, found[1])
    demand = container.cite(container.spec_path(SETTING), "its root file system is read-only, on purpose")
    what = f"{path} lies on a volume that is read-only" if covered else f"writes to {path or 'its root file system'}, which is read-only"
    return Finding(
        code="ReadOnlyFilesystem", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: it {what}.",
        confidence=0.94 if demand else 0.75, citations=(*cited, *demand), changes=changes,
        advice="" if changes else f"Give it a writable volume where it writes ({path or 'see its log'}), or tell it to write elsewhere.",
    )  # fmt: skip


def _fixes(container: Container, folder: str) -> tuple[Change, ...]:
    taken = {text(v, "name") for v in maps(container.pod, "spec", "volumes")}
    stem = folder.strip("/").replace("/", "-").replace(".", "").lower() or "scratch"
    name = next(n for n in (stem, f"{stem}-scratch", f"{stem}-{container.name}-scratch") if n not in taken)
    volume: dict[str, JsonValue] = {"name": name, "emptyDir": {}}
    mount: dict[str, JsonValue] = {"name": name, "mountPath": folder}
    return (
        Change(object=container.owner, operation="add", path=container.pod_source_path("volumes", New()), value=volume),
        Change(object=container.owner, operation="add", path=container.source_path("volumeMounts", New()), value=mount),
    )
