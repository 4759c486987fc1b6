"""NonRootViolation: the pod must not run as root, and the image would."""

import re
from collections.abc import Iterator

from suture.remediation.incident import Change, Finding
from suture.remediation.paths import mapping, whole
from suture.remediation.sightings import Container, Saying, Scene

CODES = ("NonRootViolation",)

_ROOT = re.compile(r"runAsNonRoot and image will run as root|container's runAsUser breaks non-root policy")
_UNKNOWN = re.compile(r"runAsNonRoot and image has non-numeric user \(([^)]*)\)")

NOBODY = 65534
"""The user without rights of every Linux distribution: right where nothing says another."""


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if container.waiting != "CreateContainerConfigError" and not container.gone:
            continue
        told = next((s for s in container.said if _ROOT.search(s.message) or _UNKNOWN.search(s.message)), None)
        if told is not None:
            yield _finding(container, told)


def _finding(container: Container, told: Saying) -> Finding:
    named = _UNKNOWN.search(told.message)
    demand = _demand(container)
    who = f"its image runs as user {named[1]!r}, a name that cannot be checked" if named else "it would run as root"
    return Finding(
        code="NonRootViolation", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: runAsNonRoot is set, and {who}.",
        confidence=0.98,
        citations=(*told.cite("the kubelet refuses to start it"), *container.cite(demand, "the demand that is not met")),
        changes=_fixes(container),
    )  # fmt: skip


def _demand(container: Container) -> str:
    own = mapping(container.spec, "securityContext").get("runAsNonRoot")
    return container.spec_path("securityContext.runAsNonRoot") if own is True else "spec.securityContext.runAsNonRoot"


def _fixes(container: Container) -> tuple[Change, ...]:
    """A numeric user without rights, on this container alone: others may need their own."""
    path = container.source_path("securityContext.runAsUser")
    own = whole(container.spec, "securityContext", "runAsUser")
    if own == 0:
        return (Change(object=container.owner, operation="set", path=path, value=NOBODY, before=0),)
    pod = whole(container.pod, "spec", "securityContext", "runAsUser")
    if pod == 0:
        return (
            Change(
                object=container.owner, operation="set", path=container.pod_source_path("securityContext.runAsUser"), value=NOBODY, before=0
            ),
        )
    return (Change(object=container.owner, operation="add", path=path, value=NOBODY),)
