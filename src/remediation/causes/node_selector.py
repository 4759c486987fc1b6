"""NodeSelectorMismatch: no node has the labels that the pod selects.

Only where that is what keeps the pod off: where the selected node is there and full, that is the cause.
"""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Field, join, mapping, text
from suture.remediation.references import nearest
from suture.remediation.scheduling import Unplaced, unplaced
from suture.remediation.sightings import Scene

CODES = ("NodeSelectorMismatch",)

_UNSELECTED = re.compile(r"didn't match (?:Pod's node affinity/selector|node selector|Pod's node affinity)", re.IGNORECASE)
_OTHER = re.compile(r"Insufficient|anti-affinity|free ports|in-use|unbound|volume node affinity|Too many pods", re.IGNORECASE)


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if _UNSELECTED.search(pod.verdict) and not _OTHER.search(pod.verdict):
            yield _finding(pod)


def _finding(pod: Unplaced) -> Finding:
    selector = mapping(pod.pod, "spec", "nodeSelector")
    unmet = {key: value for key, value in selector.items() if not any(_labels(n).get(key) == value for n in pod.evidence.of_kind("Node"))}
    changes, proof = _fixes(pod, unmet) if len(unmet) == 1 else ((), ())
    wanted = ", ".join(f"{key}={value}" for key, value in (unmet or selector).items())
    place = quote(pod.pod, "spec.nodeSelector", "what it selects") if pod.evidence.get(pod.ref) else ()
    affinity = quote(pod.pod, "spec.affinity.nodeAffinity", "what it selects") if pod.evidence.get(pod.ref) else ()
    return Finding(
        code="NodeSelectorMismatch", object=pod.owner,
        sentence=f"A pod of {pod.owner} waits for a node: none has the labels that it selects{' (' + wanted + ')' if wanted else ''}.",
        confidence=0.94, citations=(*pod.cited, *place, *affinity, *proof), changes=changes,
        advice="" if changes else "Label a node, or select labels that the nodes have.",
    )  # fmt: skip


def _labels(node: object) -> dict[str, object]:
    return dict(mapping(node, "metadata", "labels"))


def _fixes(pod: Unplaced, unmet: dict[str, object]) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The one label of the nodes that is meant: the same key with a like value, or the same value under a like key."""
    key, value = next(iter(unmet.items()))
    nodes = pod.evidence.of_kind("Node")
    selector = join(template_path(pod.owner), "spec.nodeSelector")
    values = sorted({str(_labels(n)[key]) for n in nodes if key in _labels(n)})
    meant = nearest(str(value), values, cutoff=0.6)
    if meant is not None:
        change = Change.model_validate(
            {"object": pod.owner, "operation": "set", "path": join(selector, Field(key)), "value": meant, "before": value}
        )
        return (change,), _proof(pod, key, meant)
    keys = sorted({k for n in nodes for k, v in _labels(n).items() if v == value and _last(k) == _last(key)})
    if len(keys) != 1:
        return (), ()
    remove = Change.model_validate({"object": pod.owner, "operation": "remove", "path": join(selector, Field(key)), "before": value})
    add = Change.model_validate({"object": pod.owner, "operation": "add", "path": join(selector, Field(keys[0])), "value": value})
    return (remove, add), _proof(pod, keys[0], str(value))


def _last(key: str) -> str:
    return key.rpartition("/")[2]


def _proof(pod: Unplaced, key: str, value: str) -> tuple[Citation, ...]:
    node = next(n for n in pod.evidence.of_kind("Node") if _labels(n).get(key) == value)
    return quote(node, join("metadata.labels", Field(key)), f"node {text(node, 'metadata', 'name')} has this label")
