"""UntoleratedTaint: every node that could hold the pod has a taint that it does not tolerate.

Nodes of the control plane have one as a rule: they are the cause only where no other reason is named. A taint that tells of trouble
(not ready, pressure, about to be removed) is never tolerated away.
"""

import difflib
import re
from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Index, New, Object, Pick, join, lookup, maps, text
from suture.remediation.scheduling import Unplaced, hard_taints, tolerates, unplaced
from suture.remediation.sightings import Scene

CODES = ("UntoleratedTaint",)

_TAINTED = re.compile(r"untolerated taint|had taint|taints that the pod didn't tolerate")
_OTHER = re.compile(r"Insufficient|anti-affinity|free ports|in-use|unbound|volume node affinity|node affinity|node selector", re.IGNORECASE)
_TROUBLE = re.compile(r"node\.kubernetes\.io/|node\.cloudprovider\.|ToBeDeleted|DeletionCandidate|autoscaler", re.IGNORECASE)
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if _TAINTED.search(pod.verdict) and not _OTHER.search(pod.verdict):
            yield _finding(pod)


def _finding(pod: Unplaced) -> Finding:
    taints = [(node, t) for node in pod.evidence.of_kind("Node") for t in hard_taints(node) if not _is_tolerated(pod, t)]
    names = sorted({text(t, "key") for _, t in taints})
    changes = _fixes(pod, [t for _, t in taints])
    proof = tuple(c for node, t in taints[:2] for c in _quote_taint(node, t))
    troubled = [name for name in names if _TROUBLE.search(name)]
    return Finding(
        code="UntoleratedTaint", object=pod.owner,
        sentence=f"A pod of {pod.owner} waits for a node: it does not tolerate the taint {' or '.join(names) or 'of any node'}.",
        confidence=0.95 if not troubled else 0.7, citations=(*pod.cited, *proof), changes=changes,
        advice="" if changes else _advice(troubled),
    )  # fmt: skip


def _is_tolerated(pod: Unplaced, taint: Object) -> bool:
    return any(tolerates(t, taint) for t in maps(pod.pod, "spec", "tolerations"))


def _quote_taint(node: Object, taint: Object) -> tuple[Citation, ...]:
    return quote(node, join("spec.taints", Pick("key", text(taint, "key")), "key"), "the taint that keeps the pod off this node")


def _advice(troubled: list[str]) -> str:
    if troubled:
        return f"The nodes are in trouble ({', '.join(troubled)}): look after them; the pod is not at fault."
    return "Whether this pod may run on the tainted nodes is the cluster owner's decision: add the toleration, or a node without the taint."


def _fixes(pod: Unplaced, taints: list[Object]) -> tuple[Change, ...]:
    """A toleration that missed its taint by a word is corrected; one is added only where the whole cluster is control plane."""
    kinds = {(text(t, "key"), text(t, "value"), text(t, "effect")) for t in taints}
    if len(kinds) != 1 or _TROUBLE.search(text(taints[0], "key")):
        return ()
    taint = taints[0]
    owner = pod.evidence.get(pod.owner)
    place = join(template_path(pod.owner), "spec.tolerations")
    written = maps({"found": lookup(owner, place)}, "found")
    for number, toleration in enumerate(written):
        if (field := _missed_by(toleration, taint, pod)) is not None:
            path = join(place, Index(number), field)
            return (Change(object=pod.owner, operation="set", path=path, value=text(taint, field), before=text(toleration, field)),)
    nodes = pod.evidence.of_kind("Node")
    if text(taint, "key") == _CONTROL_PLANE and all(any(text(t, "key") == _CONTROL_PLANE for t in hard_taints(n)) for n in nodes):
        value = {"key": _CONTROL_PLANE, "operator": "Exists", "effect": text(taint, "effect")}
        path = join(place, New()) if written else place
        return (Change.model_validate({"object": pod.owner, "operation": "add", "path": path, "value": value if written else [value]}),)
    return ()


def _missed_by(toleration: Object, taint: Object, pod: Unplaced) -> str | None:
    """The one field in which a toleration misses the taint, where it tolerates nothing else in this cluster."""
    if any(tolerates(toleration, t) for node in pod.evidence.of_kind("Node") for t in hard_taints(node)):
        return None
    if text(toleration, "key") == text(taint, "key"):
        same_effect = text(toleration, "effect") in ("", text(taint, "effect"))
        return "value" if same_effect and text(toleration, "value") else "effect" if not same_effect else None
    here, there = text(toleration, "key").partition("/"), text(taint, "key").partition("/")
    same_group = here[0] == there[0] == "node-role.kubernetes.io" and {here[2], there[2]} == {"master", "control-plane"}
    alike = difflib.SequenceMatcher(None, text(toleration, "key"), text(taint, "key")).ratio() > 0.85
    fits = text(toleration, "effect") in ("", text(taint, "effect"))
    return "key" if fits and (same_group or alike) else None
