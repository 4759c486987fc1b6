"""ImagePullRateLimited: the registry asks for patience. The image and the manifest are innocent."""

import re
from collections.abc import Iterator

from suture.remediation.incident import Finding
from suture.remediation.paths import text
from suture.remediation.sightings import Scene

CODES = ("ImagePullRateLimited",)

_LIMITED = re.compile(r"toomanyrequests|too many requests|pull rate limit|\b429\b", re.IGNORECASE)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        if container.waiting not in ("ErrImagePull", "ImagePullBackOff") and not container.gone:
            continue
        answer = next((s for s in container.said if "pull" in s.message and _LIMITED.search(s.message)), None)
        if answer is not None:
            image = text(container.spec, "image")
            yield Finding(
                code="ImagePullRateLimited", object=container.owner, container=container.name or None,
                sentence=f"Container {container.name} of {container.owner} waits: the registry limits how often {image} may be pulled.",
                confidence=0.95, citations=answer.cite("the registry answers that there were too many pulls"),
                advice="Wait: the kubelet tries again by itself. If it comes back, pull with a login (imagePullSecrets) or through a "
                "mirror.",
            )  # fmt: skip
