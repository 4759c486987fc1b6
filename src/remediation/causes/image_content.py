"""ImageContentWrong: the image is there and is not what it should be: a layer that cannot be unpacked, a program without its parts."""

import re
from collections.abc import Iterator

from suture.remediation.history import changed_fields, restored
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import text
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("ImageContentWrong",)

_BROKEN = re.compile(
    r"failed to extract layer|unexpected media type|unsupported media type|failed commit on ref|digest mismatch|unexpected commit digest"
    r"|invalid tar header|failed size validation|mismatched (?:image )?(?:rootfs|digest)|archive/tar|gzip: invalid",
    re.IGNORECASE,
)
_INCOMPLETE = re.compile(
    rb"(?im)^[^\n]{0,300}?(?:ModuleNotFoundError: No module named|ImportError: cannot import|Cannot find module '|can't open file '?/"
    rb"|Error: Cannot find package"
    rb"|Could not find or load main class|Unable to access jarfile|error while loading shared libraries|version `GLIBC\w*_[\d.]+' not found"
    rb"|no such file to load|cannot load such file|Failed opening required)[^\n]{0,300}"
)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        if cited := _unpacked(container) or _run(container):
            yield _finding(container, cited)


def _unpacked(container: Container) -> tuple[Citation, ...]:
    if container.waiting not in ("ErrImagePull", "ImagePullBackOff", "CreateContainerError") and not container.gone:
        return ()
    told = next((s for s in container.said if _BROKEN.search(s.message)), None)
    return told.cite("the registry has the image, and it cannot be unpacked") if told else ()


def _run(container: Container) -> tuple[Citation, ...]:
    if not container.spoke_last:
        return ()
    logged = container.find(_INCOMPLETE)
    return quote_line(*logged, "a part of the program is not in the image") if logged else ()


def _finding(container: Container, cited: tuple[Citation, ...]) -> Finding:
    changes, proof = (
        restored(container, "image", "the revision before used this image") if "image" in changed_fields(container) else ((), ())
    )
    return Finding(
        code="ImageContentWrong", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot run: the content of "
        f"{text(container.spec, 'image') or 'its image'} is not right.",
        confidence=0.8, citations=(*cited, *proof), changes=changes,
        advice="" if changes else "Build or push the image again, or use a version that is whole.",
    )  # fmt: skip
