"""ImageNotFound: the registry answered, and has no such image or tag.

Not meant: a tag that is there without a variant for the node (`image_architecture`), a refused login (`image_pull_denied`).
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.history import neighbours, restored, tag
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import text
from suture.remediation.sightings import Container, Saying, Scene

CODES = ("ImageNotFound",)

_ABSENT = re.compile(
    r"not found|manifest unknown|manifest_unknown|name unknown|reading manifest|no such manifest|does not exist", re.IGNORECASE
)
_OTHER = re.compile(
    r"no match for platform|no matching manifest|unauthorized|denied|forbidden|\b40[13]\b|toomanyrequests|too many requests|no such host"
    r"|authenticat|x509|timeout|timed out|connection refused|server misbehaving|no basic auth|\b50\d\b",
    re.IGNORECASE,
)
_PULLING = ("ErrImagePull", "ImagePullBackOff")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        answer = _answer(container)
        if answer is not None:
            yield _finding(container, answer)
        elif container.waiting == "ErrImageNeverPull":
            yield _never_pulled(container)


def _never_pulled(container: Container) -> Finding:
    """Nobody asks a registry: the node has no such image, and the manifest forbids to fetch it."""
    path = container.source_path("imagePullPolicy")
    written = container.source_value(path)
    changes = (
        (Change(object=container.owner, operation="set", path=path, value="IfNotPresent", before="Never"),) if written == "Never" else ()
    )
    return Finding(
        code="ImageNotFound", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: its node has no image {text(container.spec, 'image')}, "
        "and imagePullPolicy Never keeps it from being fetched.",
        confidence=0.9,
        citations=(
            *container.cite(container.status_path("state.waiting.reason"), "the image is not on the node"),
            *container.cite_source(path, "and it may not be fetched"),
        ),
        changes=changes, advice="" if changes else "Load the image onto the node, or let it be pulled.",
    )  # fmt: skip


def _answer(container: Container) -> Saying | None:
    if container.waiting not in _PULLING and not container.gone:
        return None
    told = (s for s in container.said if "pull" in s.message or "rpc error" in s.message or "manifest" in s.message)
    return next((s for s in told if _ABSENT.search(s.message) and not _OTHER.search(s.message)), None)


def _finding(container: Container, answer: Saying) -> Finding:
    image = text(container.spec, "image")
    changes, proof = _fixes(container)
    cited = answer.cite("the registry was asked and says that it has no such image")
    spec = container.cite_source(container.source_path("image"), "the image that is asked for")
    return Finding(
        code="ImageNotFound", object=container.owner, container=container.name or None, sentence=_explain(container, image),
        confidence=0.96, citations=(*cited, *spec, *proof), changes=changes,
        advice="" if changes else "Name a tag that the registry has: the evidence holds no earlier revision and no neighbour with one.",
    )  # fmt: skip


def _explain(container: Container, image: str) -> str:
    what = (
        f"{image} is not in its registry"
        if tag(image) or not image
        else f"{image} names no tag, so :latest is asked for, which the registry does not have"
    )
    return f"Container {container.name} of {container.owner} cannot start: its image {what}."


def _fixes(container: Container) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """Back to the image of the revision before; without one, to the only version that a neighbour of the same image uses."""
    changes, proof = restored(container, "image", "the revision before used this image")
    if changes:
        return changes, proof
    others = neighbours(container)
    if len({image for _, _, image in others}) != 1:
        return (), ()
    document, path, image = others[0]
    change = Change(
        object=container.owner, operation="set", path=container.source_path("image"), value=image, before=text(container.spec, "image")
    )
    return (change,), quote(document, path, "a neighbour uses this version of the same image")
