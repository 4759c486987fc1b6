"""References: where a container or its pod names a ConfigMap or a Secret, and what the kubelet says when one is missing.

Shared by the causes of missing configuration. A reference has a path in the owner, so that a change can name it.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from suture.remediation.paths import Index, Object, Pick, Step, mapping, maps, text
from suture.remediation.sightings import Container, Saying

Kind = Literal["ConfigMap", "Secret"]

_WAITS = ("", "ContainerCreating", "PodInitializing", "CreateContainerConfigError")
_VOLUME = re.compile(r'for volume "([^"]+)"')
_ENV = {"ConfigMap": ("configMapKeyRef", "configMapRef"), "Secret": ("secretKeyRef", "secretRef")}
_SOURCE = {"ConfigMap": ("configMap", "name"), "Secret": ("secret", "secretName")}


@dataclass(frozen=True)
class Reference:
    """One place that names an object: the path of the name, and the keys that it wants with their paths."""

    name: str
    path: str
    keys: tuple[tuple[str, str], ...] = ()


def references(container: Container, kind: Kind) -> list[Reference]:
    """Every place where the container or a volume that it mounts names an object of this kind."""
    return [*_from_env(container, kind), *_from_volumes(container, kind)]


def _from_env(container: Container, kind: Kind) -> Iterator[Reference]:
    key_ref, whole_ref = _ENV[kind]
    for variable in maps(container.spec, "env"):
        found = mapping(variable, "valueFrom", key_ref)
        place = ("env", Pick("name", text(variable, "name")), "valueFrom", key_ref)
        if found:
            key = (text(found, "key"), container.source_path(*place, "key"))
            yield Reference(text(found, "name"), container.source_path(*place, "name"), (key,))
    for number, source in enumerate(maps(container.spec, "envFrom")):
        if found := mapping(source, whole_ref):
            yield Reference(text(found, "name"), container.source_path("envFrom", Index(number), whole_ref, "name"))


def _from_volumes(container: Container, kind: Kind) -> Iterator[Reference]:
    source, name_field = _SOURCE[kind]
    mounted = {text(m, "name") for m in maps(container.spec, "volumeMounts")}
    for volume in maps(container.pod, "spec", "volumes"):
        if text(volume, "name") not in mounted:
            continue
        place = ("volumes", Pick("name", text(volume, "name")))
        if found := mapping(volume, source):
            yield _volume_reference(container, found, (*place, source), name_field)
        for number, part in enumerate(maps(volume, "projected", "sources")):
            if found := mapping(part, source):
                yield _volume_reference(container, found, (*place, "projected", "sources", Index(number), source), "name")


def _volume_reference(container: Container, found: Object, place: Sequence[str | Step], name_field: str) -> Reference:
    keys = tuple(
        (text(item, "key"), container.pod_source_path(*place, "items", Pick("key", text(item, "key")), "key"))
        for item in maps(found, "items")
    )
    return Reference(text(found, name_field), container.pod_source_path(*place, name_field), keys)


def complaint(container: Container, pattern: re.Pattern[str]) -> tuple[Saying, re.Match[str]] | None:
    """What the kubelet says about configuration that the container still waits for."""
    if container.waiting not in _WAITS or container.running or (container.death is not None and not container.waiting):
        return None
    for told in container.said:
        found = pattern.search(told.message)
        if found is not None and _concerns(container, told):
            return told, found
    return None


def _concerns(container: Container, told: Saying) -> bool:
    """A volume that cannot be mounted concerns the containers that mount it."""
    volume = _VOLUME.search(told.message)
    mounts = {text(m, "name") for m in maps(container.spec, "volumeMounts")}
    return volume is None or not mounts or volume[1] in mounts


def nearest(wanted: str, present: Sequence[str], *, cutoff: float) -> str | None:
    """The one name that is meant by `wanted`: equal but for case and separators, or alone in being similar."""
    same = [name for name in present if _bare(name) == _bare(wanted)]
    similar = difflib.get_close_matches(wanted, present, n=2, cutoff=cutoff)
    found = same or similar
    return found[0] if len(found) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"[-_.]", "", name).lower()
