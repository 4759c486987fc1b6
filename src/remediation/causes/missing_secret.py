"""MissingSecret, MissingSecretKey: a container waits for a Secret.

Secrets are made by people: no fix creates one, points the reference at another, or marks it optional. A misspelt key is the one repair.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.incident import Change, Finding
from suture.remediation.paths import Field, join, mapping
from suture.remediation.references import complaint, nearest, references
from suture.remediation.sightings import Container, Saying, Scene

CODES = ("MissingSecret", "MissingSecretKey")

_NO_SECRET = re.compile(r'secrets? "([^"]+)" not found', re.IGNORECASE)
_NO_KEY = re.compile(r"couldn't find key (?P<key>\S+) in Secret (?P<ns>[^/\s]+)/(?P<name>[^\s,]+)|non-existent secret key: (?P<item>\S+)")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if found := complaint(container, _NO_SECRET):
            yield _missing_secret(container, found[0], found[1][1])
        elif found := complaint(container, _NO_KEY):
            yield from _missing_key(container, found[0], found[1]["key"] or found[1]["item"], found[1]["name"])


def _missing_secret(container: Container, told: Saying, name: str) -> Finding:
    named = [r for r in references(container, "Secret") if r.name == name]
    keys = sorted({key for r in named for key, _ in r.keys})
    place = container.cite_source(named[0].path, "the name as it is written") if named else ()
    with_keys = f" with the key {', '.join(keys)}" if keys else ""
    return Finding(
        code="MissingSecret", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: there is no Secret {container.namespace}/{name}.",
        confidence=0.97, citations=(*told.cite("the kubelet looked for the Secret"), *place),
        advice=f"Someone who knows the value creates Secret {name}{with_keys} in namespace {container.namespace}; the pod then starts "
        f"by itself.",
    )  # fmt: skip


def _missing_key(container: Container, told: Saying, key: str, name: str | None) -> Iterator[Finding]:
    wanted = [(r, path) for r in references(container, "Secret") for k, path in r.keys if k == key and name in (None, r.name)]
    name = name or (wanted[0][0].name if wanted else "")
    secret = container.evidence.get(f"Secret/{container.namespace}/{name}")
    present = sorted(mapping(secret, "data"))
    if key in present:
        return
    meant = nearest(key, present, cutoff=0.8)
    changes = tuple(
        Change(object=container.owner, operation="set", path=path, value=meant, before=key) for _, path in wanted if meant is not None
    )
    proof = quote(secret, join("data", Field(meant)), "the key that is there; its value is hidden") if secret is not None and meant else ()
    yield Finding(
        code="MissingSecretKey", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot start: Secret {name or 'of its volume'} has no key {key}.",
        confidence=0.97, citations=(*told.cite("the kubelet looked for the key"), *proof), changes=changes,
        advice="" if changes else f"Someone who knows the value adds the key {key} to the Secret; it has: "
        f"{', '.join(present[:12]) or 'no key that the evidence shows'}.",
    )  # fmt: skip
