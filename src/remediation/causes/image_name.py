"""InvalidImageName: the image is no image reference, so that no registry is ever asked."""

import re
from collections.abc import Iterator

from suture.remediation.history import restored
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import text
from suture.remediation.sightings import Container, Scene

CODES = ("InvalidImageName",)

_REFERENCE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        if container.waiting == "InvalidImageName":
            cited = container.cite(container.status_path("state.waiting.reason"), "the kubelet cannot read the image's name")
        elif container.gone:
            told = next((s for s in container.said if "InvalidImageName" in s.message or "invalid reference format" in s.message), None)
            cited = told.cite("the kubelet cannot read the image's name") if told else ()
        else:
            continue
        if cited:
            yield _finding(container, cited)


def _finding(container: Container, cited: tuple[Citation, ...]) -> Finding:
    image = text(container.spec, "image")
    changes, proof = _fixes(container, image)
    spec = container.cite_source(container.source_path("image"), "the image as it is written")
    return Finding(
        code="InvalidImageName", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: {image!r} is no image reference{_flaw(image)}.",
        confidence=0.98, citations=(*cited, *spec, *proof), changes=changes,
        advice="" if changes else "Write the image as [host/]name[:tag], in lower case and without blanks.",
    )  # fmt: skip


def _flaw(image: str) -> str:
    if "://" in image:
        return ", because it begins with a URL scheme"
    if image != image.strip() or " " in image:
        return ", because it holds a blank"
    return ", because the name holds upper-case letters" if image != image.lower() else ""


def _fixes(container: Container, image: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The same name without what does not belong to it, where a valid name remains; else what the revision before had."""
    mended = re.sub(r"^[a-z]+://", "", image.strip())
    if mended != image and len(mended) < 512 and _REFERENCE.fullmatch(mended):
        return (Change(object=container.owner, operation="set", path=container.source_path("image"), value=mended, before=image),), ()
    return restored(container, "image", "the revision before used this image")
