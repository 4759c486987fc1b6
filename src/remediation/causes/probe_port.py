"""ProbeWrongPort: the probe asks a port at which nothing listens, while the program listens at another."""

from collections.abc import Iterator

from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.listening import ports_of, spoken_ports
from suture.remediation.paths import Pick, maps, text, whole
from suture.remediation.probing import FailingProbe, failing_probes
from suture.remediation.sightings import Scene

CODES = ("ProbeWrongPort",)


def findings(scene: Scene) -> Iterator[Finding]:
    for probe in failing_probes(scene):
        if probe.refused and probe.asked_port is not None:
            yield from _finding(probe, probe.asked_port)


def _finding(probe: FailingProbe, asked: int) -> Iterator[Finding]:
    container = probe.container
    spoken = spoken_ports(container)
    if asked in spoken:
        return
    right, proof = _right(probe, asked, spoken)
    if right is None:
        return
    changes = _fixes(probe, right)
    yield Finding(
        code="ProbeWrongPort", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} is never found {'alive' if probe.kills else 'ready'}: "
        f"its {probe.kind.lower()} probe asks port {asked}, and it listens on {right}.",
        confidence=0.95 if spoken else 0.8,
        citations=(*probe.cite("nothing listens on the port that is asked"), *probe.cite_spec("the probe as it is written"), *proof),
        changes=changes,
        advice="" if changes else f"Let the probe ask port {right}, or the program listen on {asked}.",
    )  # fmt: skip


def _right(probe: FailingProbe, asked: int, spoken: dict[int, tuple[Citation, ...]]) -> tuple[int | None, tuple[Citation, ...]]:
    """Where the program listens: the one port that its log names, or without a word in the log, the one other port it declares."""
    if spoken:
        declared = [port for port in spoken if port in ports_of(probe.container)]
        chosen = declared if len(declared) == 1 else list(spoken)
        return (chosen[0], spoken[chosen[0]]) if len(chosen) == 1 else (None, ())
    others = [port for port in ports_of(probe.container) if port != asked]
    if len(others) != 1 or asked in ports_of(probe.container):
        return None, ()
    place = next(n for n, p in enumerate(maps(probe.container.spec, "ports")) if whole(p, "containerPort") == others[0])
    return others[0], probe.container.cite(probe.container.spec_path(f"ports[{place}]", "containerPort"), "the only port that it declares")


def _fixes(probe: FailingProbe, right: int) -> tuple[Change, ...]:
    """Every probe of the container that asks the same wrong port; a named port is corrected where the name is given a number."""
    container = probe.container
    changes: list[Change] = []
    for field in ("startupProbe", "livenessProbe", "readinessProbe"):
        for action in ("httpGet", "tcpSocket", "grpc"):
            path = container.source_path(field, action, "port")
            written = container.source_value(path)
            named = next((p for p in maps(container.spec, "ports") if isinstance(written, str) and text(p, "name") == written), None)
            if isinstance(written, int) and written == probe.asked_port:
                changes.append(Change(object=container.owner, operation="set", path=path, value=right, before=written))
            elif named is not None and whole(named, "containerPort") == probe.asked_port and isinstance(written, str):
                place = container.source_path("ports", Pick("name", written), "containerPort")
                changes.append(Change(object=container.owner, operation="set", path=place, value=right, before=probe.asked_port))
    return tuple({change.path: change for change in changes}.values())
