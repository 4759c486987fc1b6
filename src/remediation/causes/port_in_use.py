"""PortInUse: two containers of a pod want the same port; they share one network.

The one that crashes is often the one that nobody touched: the fault is carried by the one that took the port.
"""

import re
from collections.abc import Iterator

from suture.remediation.history import changed_fields, restored
from suture.remediation.incident import Citation, Finding
from suture.remediation.listening import listens_on, ports_of
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("PortInUse",)

_TAKEN = re.compile(
    rb"(?im)^[^\n]{0,400}?(?:address (?:is )?already in use|EADDRINUSE|port \d{1,5} (?:is )?(?:already )?(?:in use|allocated))[^\n]{0,200}"
)
_PORT = re.compile(rb":(\d{2,5})\b(?![:\d.])|port (\d{2,5})\b", re.IGNORECASE)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        logged = container.find(_TAKEN)
        if logged is not None:
            yield _finding(container, _port(container, logged[1][0]), quote_line(*logged, "its port is taken"))


def _port(container: Container, line: bytes) -> int | None:
    found = _PORT.search(line)
    if found is not None:
        return int(found[1] or found[2])
    declared = ports_of(container)
    return declared[0] if len(declared) == 1 else None


def _finding(container: Container, port: int | None, cited: tuple[Citation, ...]) -> Finding:
    holders = [(other, proof) for other in _beside(container) if (proof := listens_on(other, port))]
    holder, proof = holders[0] if len(holders) == 1 else (None, ())
    carrier = holder or container
    changes, before = restored(carrier, "image", "the revision before used this image") if "image" in changed_fields(carrier) else ((), ())
    who = f"container {holder.name} listens there" if holder else "another process holds it"
    return Finding(
        code="PortInUse", object=container.owner, container=carrier.name or None,
        sentence=f"Container {container.name} of {container.owner} ends at once: port {port or '(see its log)'} is taken, {who}.",
        confidence=0.93 if holder else 0.75, citations=(*cited, *proof, *before), changes=changes,
        advice="" if changes else "Give one of the two another port; they share one network address.",
    )  # fmt: skip


def _beside(container: Container) -> list[Container]:
    return [c for c in container.scene.containers if c.ref == container.ref and c.name != container.name and not c.crashing]
