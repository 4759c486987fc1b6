"""DependencyNotReady: what the program connects to is there by name and does not answer. It heals when the other comes up.

No change of this workload helps, and the other's is another team's decision.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import Evidence
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import Object, mapping, maps, text, whole
from suture.remediation.settings_of import Setting, service_of, settings_of
from suture.remediation.sightings import Container, Scene, quote_line

CODES = ("DependencyNotReady",)

_NO_ANSWER = re.compile(
    rb"(?im)^[^\n]{0,400}?(?:connection refused|ECONNREFUSED|connect(?:ion)? timed out|ETIMEDOUT|i/o timeout|no route to host"
    rb"|EHOSTUNREACH|connection reset"
    rb"|could not connect to server|the database system is (?:starting up|shutting down)|server is not ready|timed out)[^\n]{0,300}"
)
_NO_RESOLVER = re.compile(rb"(?im)^[^\n]{0,400}?(?:temporary failure in name resolution|EAI_AGAIN|server misbehaving)[^\n]{0,300}")
_LOCAL = re.compile(rb"localhost|127\.0\.0\.1|\[::1\]|://0\.0\.0\.0")


def findings(scene: Scene) -> Iterator[Finding]:
    for container in scene.containers:
        if not container.spoke_last:
            continue
        yield from _no_resolver(container)
        logged = container.find(_NO_ANSWER)
        if logged is not None and not _LOCAL.search(logged[1][0]):
            yield from _finding(container, quote_line(*logged, "nothing answers"))


def _no_resolver(container: Container) -> Iterator[Finding]:
    """Names are not resolved at all: the cluster's DNS is down, the name itself may be right."""
    logged = container.find(_NO_RESOLVER)
    if logged is not None:
        yield Finding(
            code="DependencyNotReady", object=container.owner, container=container.name or None,
            sentence=f"Container {container.name} of {container.owner} ends at once: the cluster's name service does not answer.",
            confidence=0.8, citations=quote_line(*logged, "no name is resolved, which is another thing than a name that does not exist"),
            advice="Nothing to change here: look after the cluster's DNS. The pod then starts by itself at its next try.",
        )  # fmt: skip


def _finding(container: Container, cited: tuple[Citation, ...]) -> Iterator[Finding]:
    for setting in settings_of(container):
        where = service_of(container.evidence, setting.host, container.namespace) if setting.host else None
        service = container.evidence.get(f"Service/{where[0]}/{where[1]}") if where else None
        if where is None or service is None:
            continue
        proof = _without_endpoints(container.evidence, *where)
        if proof:
            yield _waits(container, setting, service, where, (*cited, *setting.cited, *proof))
            return


def _without_endpoints(evidence: Evidence, namespace: str, name: str) -> tuple[Citation, ...]:
    """The proof that nothing stands behind a Service; empty where something does, or the evidence does not say."""
    slices = [
        s for s in evidence.of_kind("EndpointSlice", namespace) if text(s, "metadata", "labels", "kubernetes.io/service-name") == name
    ]
    endpoints = evidence.get(f"Endpoints/{namespace}/{name}")
    if any(mapping(e, "conditions").get("ready") is not False for s in slices for e in maps(s, "endpoints")):
        return ()
    if endpoints is not None and any(maps(subset, "addresses") for subset in maps(endpoints, "subsets")):
        return ()
    return tuple(c for s in slices[:1] for c in quote(s, "endpoints", "nothing ready stands behind the Service")) or (
        quote(endpoints, "metadata.name", "it lists no address: nothing ready stands behind the Service") if endpoints is not None else ()
    )


def _waits(container: Container, setting: Setting, service: Object, where: tuple[str, str], cited: tuple[Citation, ...]) -> Finding:
    behind = _behind(container.evidence, service, where[0])
    down = tuple(c for b in behind[:1] if whole(b, "spec", "replicas") == 0 for c in quote(b, "spec.replicas", "it is scaled to nothing"))
    who = f"{text(behind[0], 'kind')}/{where[0]}/{text(behind[0], 'metadata', 'name')}" if behind else f"Service {where[0]}/{where[1]}"
    return Finding(
        code="DependencyNotReady", object=container.owner, container=container.name or None,
        sentence=f"Container {container.name} of {container.owner} cannot reach {setting.value}: the Service is there and nothing "
        f"stands behind it.",
        confidence=0.93, citations=(*cited, *down),
        advice=f"Nothing to change here: ask the owners of {who} when it is back. The pod then starts by itself at its next try.",
    )  # fmt: skip


def _behind(evidence: Evidence, service: Object, namespace: str) -> list[Object]:
    selector = mapping(service, "spec", "selector")
    owners = [o for kind in ("StatefulSet", "Deployment", "DaemonSet") for o in evidence.of_kind(kind, namespace)]
    return [o for o in owners if selector and selector.items() <= mapping(o, "spec", "template", "metadata", "labels").items()]
