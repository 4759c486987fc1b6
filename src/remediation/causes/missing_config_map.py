"""MissingConfigMap, MissingConfigMapKey: a container waits for configuration that is not there.

The fix renames the reference, and only where one existing ConfigMap holds the wanted keys, or one key is plainly the one that was meant.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import reference
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Field, Object, join, mapping, text
from suture.remediation.references import Reference, complaint, nearest, references
from suture.remediation.sightings import Container, Saying, Scene

CODES = ("MissingConfigMap", "MissingConfigMapKey")

_NO_MAP = re.compile(r'configmaps? "([^"]+)" not found', re.IGNORECASE)
_NO_KEY = re.compile(
    r"couldn't find key (?P<key>\S+) in ConfigMap (?P<ns>[^/\s]+)/(?P<name>[^\s,]+)|non-existent config key: (?P<item>\S+)"
)
_EVERYWHERE = "kube-root-ca.crt"


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if (found := complaint(container, _NO_MAP)) and found[1][1] != _EVERYWHERE:
            yield _missing_map(container, found[0], found[1][1])
        elif found := complaint(container, _NO_KEY):
            yield from _missing_key(container, found[0], found[1]["key"] or found[1]["item"], found[1]["name"])


def _missing_map(container: Container, told: Saying, name: str) -> Finding:
    named = [r for r in references(container, "ConfigMap") if r.name == name]
    changes, proof = _rename(container, named)
    place = container.cite_source(named[0].path, "the name as it is written") if named else ()
    return Finding(
        code="MissingConfigMap", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: there is no ConfigMap {container.namespace}/{name}.",
        confidence=0.97, citations=(*told.cite("the kubelet looked for the ConfigMap"), *place, *proof), changes=changes,
        advice="" if changes else f"Create ConfigMap {name} in {container.namespace}, or name the one that is meant. "
        f"" + _present(container),
    )  # fmt: skip


def _maps(container: Container) -> list[Object]:
    found = container.evidence.of_kind("ConfigMap", container.namespace)
    return [m for m in found if text(m, "metadata", "name") != _EVERYWHERE]


def _present(container: Container) -> str:
    names = [text(m, "metadata", "name") for m in _maps(container)]
    return f"The namespace has: {', '.join(names[:8])}." if names else "The evidence holds no ConfigMap of the namespace."


def _rename(container: Container, named: list[Reference]) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """All references to the missing name, turned to the one ConfigMap that holds every wanted key."""
    wanted = {key for r in named for key, _ in r.keys}
    fitting = [m for m in _maps(container) if wanted <= mapping(m, "data").keys() | mapping(m, "binaryData").keys()]
    if not named:
        return (), ()
    if not wanted:
        near = nearest(named[0].name, [text(m, "metadata", "name") for m in fitting], cutoff=0.75)
        fitting = [m for m in fitting if text(m, "metadata", "name") == near] or _orphans(container, fitting)
    if len(fitting) != 1:
        return (), ()
    value = text(fitting[0], "metadata", "name")
    changes = tuple(Change(object=container.owner, operation="set", path=r.path, value=value, before=r.name) for r in named)
    if not wanted:
        return changes, quote(fitting[0], "metadata.name", "this one is there")
    return changes, tuple(c for key in sorted(wanted) for c in _quote_key(fitting[0], key))


def _orphans(container: Container, config_maps: list[Object]) -> list[Object]:
    """The ConfigMaps that nothing in the namespace uses: made for someone, and that one does not find it."""
    neighbours = [c for c in container.scene.containers if c.namespace == container.namespace]
    used = {r.name for c in neighbours for r in references(c, "ConfigMap")}
    return [m for m in config_maps if text(m, "metadata", "name") not in used]


def _quote_key(config_map: Object, key: str) -> tuple[Citation, ...]:
    return _quote(config_map, key, f"{reference(config_map)} is the only one that holds the key {key}")


def _quote(config_map: Object, key: str, why: str) -> tuple[Citation, ...]:
    """The key, as a citation; that nothing stands there says nothing of what is set: the values are not read from a cluster."""
    unread = "" if text(config_map, "data", key) else "; its value was not read"
    return quote(config_map, join("data", Field(key)), why + unread)


def _missing_key(container: Container, told: Saying, key: str, name: str | None) -> Iterator[Finding]:
    wanted = [(r, path) for r in references(container, "ConfigMap") for k, path in r.keys if k == key and name in (None, r.name)]
    name = name or (wanted[0][0].name if wanted else "")
    config_map = container.evidence.get(f"ConfigMap/{container.namespace}/{name}")
    present = sorted(mapping(config_map, "data").keys() | mapping(config_map, "binaryData").keys())
    if key in present:
        return
    meant = nearest(key, present, cutoff=0.6)
    changes = tuple(
        Change(object=container.owner, operation="set", path=path, value=meant, before=key) for _, path in wanted if meant is not None
    )
    proof = _quote(config_map, meant, "the key that is there") if config_map is not None and meant else ()
    yield Finding(
        code="MissingConfigMapKey", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: ConfigMap {name or 'of its volume'} has no key {key}.",
        confidence=0.97, citations=(*told.cite("the kubelet looked for the key"), *proof), changes=changes,
        advice="" if changes else f"Add the key {key} or name one that is there: {', '.join(present[:12]) or 'the evidence shows none'}.",
    )  # fmt: skip
