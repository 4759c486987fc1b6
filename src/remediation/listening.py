"""Listening: which port a container says that it serves, by its log and by its manifest. Shared by the causes around ports and probes."""

import re

from suture.remediation.incident import Citation
from suture.remediation.paths import maps, text, whole
from suture.remediation.sightings import Container, quote_line

_SAYS = re.compile(
    rb"(?im)^[^\n]{0,300}?(?:listen(?:ing|s)?|serving|running|started|accept(?:ing|s) connections|bound|available|ready)\b[^\n]{0,120}?"
    rb"(?::|\bport(?:\(s\))?:? ?)(?P<port>\d{2,5})\b(?![:.\d-])"
)


def ports_of(container: Container) -> list[int]:
    """The ports that the manifest declares."""
    return [port for p in maps(container.spec, "ports") if (port := whole(p, "containerPort")) is not None]


def spoken_ports(container: Container) -> dict[int, tuple[Citation, ...]]:
    """The ports that the log says are served, each with the line that says so."""
    found: dict[int, tuple[Citation, ...]] = {}
    for log in container.logs:
        for match in _SAYS.finditer(log.content):
            port = int(match["port"])
            if 0 < port < 65536 and port not in found:
                found[port] = quote_line(log, match, f"it listens on port {port}")
    return found


def listens_on(container: Container, port: int | None) -> tuple[Citation, ...]:
    """The proof that a container serves `port`; empty where there is none."""
    if port is None:
        return ()
    if proof := spoken_ports(container).get(port):
        return proof
    for number, declared in enumerate(maps(container.spec, "ports")):
        if whole(declared, "containerPort") == port and text(declared, "protocol") in ("", "TCP"):
            return container.cite(container.spec_path(f"ports[{number}]", "containerPort"), f"it declares port {port}")
    return ()
