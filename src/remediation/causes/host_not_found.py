"""HostNotFound: the program asks for a host whose name does not resolve.

Repaired where the name is that of a Service of the cluster in a wrong namespace, or a misspelt one. Not meant: a resolver that is down.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import text
from suture.remediation.references import nearest
from suture.remediation.settings_of import Setting, service_of, settings_of
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("HostNotFound",)

_UNKNOWN = re.compile(
    rb"(?im)^[^\n]{0,400}?(?:no such host|name or service not known|\bENOTFOUND\b|could not resolve host|could not translate host name"
    rb"|nodename nor servname"
    rb"|UnknownHostException|bad address '|NXDOMAIN|no address associated with hostname|name does not resolve|failed to resolve"
    rb"|unknown host)[^\n]{0,300}"
)
_HOSTS = re.compile(
    rb"(?<![A-Za-z0-9.-])[A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){1,20}|(?<=lookup )[A-Za-z0-9-]+"
    rb"|(?<=ENOTFOUND )[A-Za-z0-9-]+|(?<=address ')[A-Za-z0-9-]+"
)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        logged = container.find(_UNKNOWN)
        if logged is not None:
            yield _finding(container, logged[1][0], quote_line(*logged, "the name does not resolve"))


def _finding(container: Container, line: bytes, cited: tuple[Citation, ...]) -> Finding:
    setting = _setting(container, line)
    host = setting.host if setting else _named(line)
    changes, proof = _fixes(container, setting) if setting else ((), ())
    return Finding(
        code="HostNotFound", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: the host {host or 'it asks for'} does not exist.",
        confidence=0.94 if changes else 0.85, citations=(*cited, *(setting.cited if setting else ()), *proof), changes=changes,
        advice="" if changes else f"Correct the host{f' in {setting.name}' if setting and setting.name else ''}, or create what has "
        f"this name.",
    )  # fmt: skip


def _named(line: bytes) -> str:
    found = [h.decode() for h in _HOSTS.findall(line)]
    return found[-1] if found else ""


def _setting(container: Container, line: bytes) -> Setting | None:
    """The setting that holds the name: the complaint says it, or it is the only one that cannot resolve."""
    addresses = [s for s in settings_of(container) if s.host]
    spoken = [s for s in addresses if re.search(rb"(?<![\w.-])" + re.escape(s.host.encode()) + rb"(?![\w-])", line)]
    absent = [s for s in addresses if _is_absent(container, s.host)]
    chosen = spoken or absent
    return chosen[0] if len({s.host for s in chosen}) == 1 else None


def _is_absent(container: Container, host: str) -> bool:
    where = service_of(container.evidence, host, container.namespace)
    return where is not None and container.evidence.get(f"Service/{where[0]}/{where[1]}") is None


def _fixes(container: Container, setting: Setting) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The Service of the same name in the pod's own namespace; else the one there whose name is meant."""
    where = service_of(container.evidence, setting.host, container.namespace)
    if where is None or not _is_absent(container, setting.host):
        return (), ()
    services = [text(s, "metadata", "name") for s in container.evidence.of_kind("Service", container.namespace)]
    meant = where[1] if where[1] in services else nearest(where[1], services, cutoff=0.8) if where[0] == container.namespace else None
    if meant is None:
        return (), ()
    wrong = setting.host.split(".")
    right = ".".join([meant, container.namespace, *wrong[2:]]) if len(wrong) > 1 else meant
    service = container.evidence.get(f"Service/{container.namespace}/{meant}") or {}
    change = Change(
        object=setting.object, operation="set", path=setting.path, value=setting.value.replace(setting.host, right, 1), before=setting.value
    )
    return (change,), quote(service, "metadata.name", f"this Service is in {container.namespace}, where the program runs")
