"""FilePermission: the program may not read or write a file on a volume, because it belongs to another user.

The volume's group becomes the program's: never root, never readable for everyone.
"""

import re
from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import mapping, text
from suture.remediation.sightings import Container, Scene, quote_line
from suture.remediation.volumes import group_of, kind_of, mount_of, user_of, volume_of

CODES = ("FilePermission",)

_DENIED = re.compile(rb"(?im)^[^\n]{0,400}?(?:permission denied|EACCES|operation not permitted)[^\n]{0,300}")
_OTHER = re.compile(rb"(?i)\bbind\b|\blisten|/var/run/docker\.sock|publickey|forbidden|\bexec\b|setuid|setgid|chroot|ptrace|socket")
_PATH = re.compile(rb"(?<![\w./])(/[A-Za-z0-9_][^\s'\":,;()\[\]<>]{0,300})")
_GROUPED = ("secret", "configMap", "projected", "emptyDir", "persistentVolumeClaim", "csi", "ephemeral", "downwardAPI")
"""Volumes whose files the kubelet gives to fsGroup; a folder of the node is not among them."""


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if container.init or container.exit_code in (126, 127) or not container.spoke_last:
            continue
        logged = container.find(_DENIED)
        if logged is not None and not _OTHER.search(logged[1][0]) and (path := _path(logged[1][0])):
            yield _finding(container, path, quote_line(*logged, "what it may not do"))


def _path(line: bytes) -> str:
    paths = [p.decode("utf-8", "replace") for p in _PATH.findall(line)]
    return paths[-1] if paths else ""


def _finding(container: Container, path: str, cited: tuple[Citation, ...]) -> Finding:
    mount = mount_of(container, path)
    volume = volume_of(container, mount) if mount is not None else {}
    user, context = user_of(container), mapping(container.pod, "spec", "securityContext")
    changes = _fixes(container) if kind_of(volume) in _GROUPED and "fsGroup" not in context else ()
    as_whom = container.cite("spec.securityContext", "as whom it runs, and that no group is set for its volumes")
    where = f"the volume {text(volume, 'name')}" if volume else "its image"
    return Finding(
        code="FilePermission", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: "
        f"{'uid ' + str(user) if user is not None else 'its user'} may not use {path}, which lies on {where}.",
        confidence=0.93 if volume else 0.75, citations=(*cited, *as_whom), changes=changes,
        advice="" if changes else "Give the file or the volume to the user that the program runs as; do not run it as root.",
    )  # fmt: skip


def _fixes(container: Container) -> tuple[Change, ...]:
    group = group_of(container) or user_of(container)
    if not group:
        return ()
    return (Change(object=container.owner, operation="add", path=container.pod_source_path("securityContext.fsGroup"), value=group),)
