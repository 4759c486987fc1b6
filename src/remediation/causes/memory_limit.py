"""MemoryLimitTooLow: the kernel killed the container because it reached its own memory limit.

The pod may look healthy at the moment of looking: only the end of its previous life tells. Not meant: a node that ran out of memory and
evicted pods, and a limit in a wrong unit (`memory_unit`).
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from suture.remediation.evidence import event_message
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import ABSENT, mapping, text
from suture.remediation.quantity import amount, memory
from suture.remediation.sightings import Container, Scene

CODES = ("MemoryLimitTooLow",)

GROWTH, GROWTH_OF_THE_SMALL, SMALL = 2, 4, Fraction(256 << 20)
"""One step of growth: the kernel does not say how much was wanted, and a doubling is what people do first. A small limit grows up to
fourfold, to 256Mi at most: there a doubling is often not enough, and what it costs is little."""
LARGEST = Fraction(8 << 30)
"""Above this a doubling is a decision about money and machines: a person makes it."""
SMALLEST = Fraction(4 << 20)
"""Below this nothing runs at all: such a limit is a wrong unit, not too small a number."""
_MARKED = re.compile(r"memory cgroup out of memory|OOMKilled", re.IGNORECASE)


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        cited = _killed(container)
        limit = amount(mapping(container.spec, "resources", "limits").get("memory"))
        if cited and not _evicted(container) and (limit is None or limit >= SMALLEST):
            yield _finding(container, cited, limit)


def _killed(container: Container) -> tuple[Citation, ...]:
    for state in ("state.terminated", "lastState.terminated"):
        end = mapping(container.status, *state.split("."))
        if text(end, "reason") == "OOMKilled":
            return container.cite(container.status_path(state, "reason"), "the kernel killed it at its memory limit")
    return _killed_by_event(container)


def _killed_by_event(container: Container) -> tuple[Citation, ...]:
    told = next((s for s in container.said if s.reason in ("OOMKilling", "OOMKilled") and _MARKED.search(s.message)), None)
    return told.cite("the kernel killed it at its memory limit") if told is not None and container.exit_code in (None, 137) else ()


def _evicted(container: Container) -> bool:
    """The node itself was short of memory: raising a limit would make that worse."""
    if text(container.pod, "status", "reason") == "Evicted":
        return True
    node = text(container.pod, "spec", "nodeName")
    about_node = container.evidence.events(f"Node//{node}") if node else ()
    return any(text(e, "reason") == "SystemOOM" or "SystemOOM" in event_message(e) for e in about_node)


def _finding(container: Container, cited: tuple[Citation, ...], limit: Fraction | None) -> Finding:
    place = container.cite_source(container.source_path("resources.limits.memory"), "the limit that was reached")
    lives = container.cite(container.status_path("restartCount"), "how often it was started anew") if container.restarts else ()
    changes, advice = _fixes(container, limit)
    written = mapping(container.spec, "resources", "limits").get("memory")
    looks = "; between two kills it looks healthy" if container.running and container.ready else ""
    return Finding(
        code="MemoryLimitTooLow", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} is killed at its memory limit of {written or 'its pod'}{looks}.",
        confidence=0.95 if limit is not None else 0.7,
        citations=(*cited, *place, *lives), changes=changes, advice=advice,
    )  # fmt: skip


def _fixes(container: Container, limit: Fraction | None) -> tuple[tuple[Change, ...], str]:
    path = container.source_path("resources.limits.memory")
    written = container.source_value(path)
    if limit is None or written is ABSENT:
        return (), "The workload's template states no memory limit: look for a LimitRange, a policy or a limit of the whole pod."
    if limit * GROWTH > LARGEST:
        return (), f"The limit is {memory(limit)} already: find out whether it leaks before it gets more."
    value = memory(max(limit * GROWTH, min(limit * GROWTH_OF_THE_SMALL, SMALL)))
    changes = [Change(object=container.owner, operation="set", path=path, value=value, before=written)]
    request = container.source_path("resources.requests.memory")
    if amount(container.source_value(request)) == limit:
        changes.append(Change(object=container.owner, operation="set", path=request, value=value, before=container.source_value(request)))
    return tuple(changes), ""
