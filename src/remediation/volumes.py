"""Volumes: what a container finds at a path. Shared by the causes of files that cannot be written or read."""

from suture.remediation.paths import Object, mapping, maps, text
from suture.remediation.sightings import Container

READ_ONLY = ("configMap", "secret", "projected", "downwardAPI")
"""Volumes that the kubelet mounts read-only, whatever the mount says."""


def mount_of(container: Container, path: str) -> Object | None:
    """The mount that holds `path`: the one with the longest fitting mountPath."""
    fitting = [m for m in maps(container.spec, "volumeMounts") if _below(path, text(m, "mountPath"))]
    return max(fitting, key=lambda m: len(text(m, "mountPath")), default=None)


def _below(path: str, folder: str) -> bool:
    folder = folder.rstrip("/")
    return bool(folder) and (path == folder or path.startswith(folder + "/"))


def volume_of(container: Container, mount: Object) -> Object:
    """The volume of a mount; empty where the pod does not say."""
    volumes = maps(container.pod, "spec", "volumes")
    return next((v for v in volumes if text(v, "name") == text(mount, "name")), {})


def kind_of(volume: Object) -> str:
    """`configMap`, `secret`, `emptyDir`, `persistentVolumeClaim`, …"""
    return next((key for key in volume if key != "name" and isinstance(volume[key], dict)), "")


def is_read_only(container: Container, mount: Object) -> bool:
    return mount.get("readOnly") is True or kind_of(volume_of(container, mount)) in READ_ONLY


def user_of(container: Container) -> int | None:
    """The user that the manifest says; None leaves it to the image."""
    return _identity(container, "runAsUser")


def group_of(container: Container) -> int | None:
    return _identity(container, "runAsGroup")


def _identity(container: Container, field: str) -> int | None:
    for context in (mapping(container.spec, "securityContext"), mapping(container.pod, "spec", "securityContext")):
        value = context.get(field)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
