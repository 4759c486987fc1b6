"""ImagePullDenied: the registry answered and refuses the login, or wants one.

The fix names a Secret that exists; a Secret is never made, and no password is ever written.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import reference
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Object, Pick, maps, text
from suture.remediation.sightings import Container, Saying, Scene

CODES = ("ImagePullDenied",)

_REFUSED = re.compile(
    r"\b40[13]\b|unauthorized|access denied|denied: |\bdenied\b|forbidden|authentication required|authorization failed|no basic auth"
    r"|insufficient_scope|have permission to access",
    re.IGNORECASE,
)
_OTHER = re.compile(r"toomanyrequests|too many requests|rate limit", re.IGNORECASE)
_LOGINS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.broken:
        answer = _answer(container)
        if answer is not None:
            yield _finding(container, answer)


def _answer(container: Container) -> Saying | None:
    if container.waiting not in ("ErrImagePull", "ImagePullBackOff") and not container.gone:
        return None
    told = (s for s in container.said if "pull" in s.message)
    return next((s for s in told if _REFUSED.search(s.message) and not _OTHER.search(s.message)), None)


def _finding(container: Container, answer: Saying) -> Finding:
    image, named = text(container.spec, "image"), [text(s, "name") for s in maps(container.pod, "spec", "imagePullSecrets")]
    login = _only_login(container)
    absent = [name for name in named if container.evidence.get(f"Secret/{container.namespace}/{name}") is None]
    changes, proof = _fixes(container, login, absent) if login is not None and len(absent) == len(named) < 2 else ((), ())
    with_what = f"although it presents {', '.join(named)}" if named else "and the pod presents no pull secret"
    return Finding(
        code="ImagePullDenied", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: the registry refuses to hand out {image}, {with_what}.",
        confidence=0.95, citations=(*answer.cite("the registry asks for a login, or refuses it"), *proof), changes=changes,
        advice="" if changes else _advice(named),
    )  # fmt: skip


def _only_login(container: Container) -> Object | None:
    secrets = [s for s in container.evidence.of_kind("Secret", container.namespace) if text(s, "type") in _LOGINS]
    return secrets[0] if len(secrets) == 1 else None


def _fixes(container: Container, login: Object, absent: list[str]) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The only login of the namespace, where the pod names none or one that is not there."""
    name = text(login, "metadata", "name")
    why = f"{reference(login)} is the only registry login of the namespace, and the pod does not name it"
    if absent:
        path = container.pod_source_path("imagePullSecrets", Pick("name", absent[0]), "name")
        return (Change(object=container.owner, operation="set", path=path, value=name, before=absent[0]),), quote(login, "type", why)
    change = Change(object=container.owner, operation="add", path=container.pod_source_path("imagePullSecrets"), value=[{"name": name}])
    return (change,), quote(login, "type", why)


def _advice(named: list[str]) -> str:
    if named:
        return f"Check the login in Secret {', '.join(named)} and its right to read this repository; no manifest change gives that right."
    return "Give the pod or the nodes a right to read the repository: name an existing pull secret, or grant the node's identity access."
