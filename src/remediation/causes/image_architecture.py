"""ImageArchitecture: the image is built for another kind of processor than the node has.

Told by the registry (no variant for the platform) or, once it is pulled, by the kernel (exec format error).
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.history import restored
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Object, text
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("ImageArchitecture",)

_NO_VARIANT = re.compile(r"no match for platform|no matching manifest for|does not match the specified platform", re.IGNORECASE)
_FORMAT = re.compile(r"exec format error", re.IGNORECASE)
_FORMAT_BYTES = re.compile(rb"(?m)^[^\n]{0,300}exec format error")
_NAMES = {
    "arm64": "arm64",
    "aarch64": "arm64",
    "amd64": "amd64",
    "x86_64": "amd64",
    "x86-64": "amd64",
    "s390x": "s390x",
    "ppc64le": "ppc64le",
}
_WORD = re.compile(r"(?<![a-z0-9])(" + "|".join(_NAMES) + r")(?![a-z0-9])")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        cited = _refused(container) or _told(container) or _logged(container)
        if cited:
            yield _finding(container, cited)


def _refused(container: Container) -> tuple[Citation, ...]:
    if container.waiting not in ("ErrImagePull", "ImagePullBackOff") and not container.gone:
        return ()
    told = next((s for s in container.said if _NO_VARIANT.search(s.message)), None)
    return told.cite("the tag is there, and has no variant for the node's platform") if told else ()


def _told(container: Container) -> tuple[Citation, ...]:
    told = next((s for s in container.said if _FORMAT.search(s.message)), None)
    return told.cite("the kernel does not know this program's format") if told else ()


def _logged(container: Container) -> tuple[Citation, ...]:
    if container.exit_code == 0:
        return ()
    found = container.find(_FORMAT_BYTES)
    return quote_line(*found, "the kernel does not know this program's format") if found else ()


def _finding(container: Container, cited: tuple[Citation, ...]) -> Finding:
    image, node = text(container.spec, "image"), _node(container)
    platform = text(node, "status", "nodeInfo", "architecture") if node else ""
    where = quote(node, "status.nodeInfo.architecture", "the node's processor") if node else ()
    changes, proof = _fixes(container, image, platform)
    spec = container.cite_source(container.source_path("image"), "the image that was started")
    return Finding(
        code="ImageArchitecture", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot run: {image} is not built for "
        f"{platform or 'the processor of its node'}.",
        confidence=0.95, citations=(*cited, *spec, *where, *proof), changes=changes,
        advice="" if changes else "Use an image that its publisher built for this platform, or run the pod on nodes that the image is "
        "built for.",
    )  # fmt: skip


def _node(container: Container) -> Object | None:
    name = text(container.pod, "spec", "nodeName")
    nodes = [n for n in container.evidence.of_kind("Node") if not name or text(n, "metadata", "name") == name]
    return nodes[0] if nodes and len({text(n, "status", "nodeInfo", "architecture") for n in nodes}) == 1 else None


def _fixes(container: Container, image: str, platform: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """Where the name itself says the wrong processor, the same name with the right one; else the image of the revision before."""
    said = set(_WORD.findall(image))
    if platform in _NAMES.values() and len(said) == 1 and _NAMES[next(iter(said))] != platform:
        mended = _WORD.sub(platform, image)
        return (Change(object=container.owner, operation="set", path=container.source_path("image"), value=mended, before=image),), ()
    return restored(container, "image", "the revision before used this image")
