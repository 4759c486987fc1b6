"""VolumeClaimUnbound: a pod waits for a claim that nothing fulfils: no class, an unknown class, no fitting volume, or no such claim."""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote, quote_event
from suture.remediation.evidence import Evidence, event_message, involved, reference, split, template_path
from suture.remediation.incident import Change, Citation, Finding
from suture.remediation.paths import Object, Pick, join, mapping, maps, text
from suture.remediation.references import nearest
from suture.remediation.scheduling import Unplaced, unplaced
from suture.remediation.sightings import Scene

CODES = ("VolumeClaimUnbound",)

_UNBOUND = re.compile(r"unbound (?:immediate )?PersistentVolumeClaims|didn't find available persistent volumes to bind", re.IGNORECASE)
_COMPLAINTS = ("FailedBinding", "ProvisioningFailed")
_NO_CLAIM = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_NO_CLASS_NAMED = re.compile(r"no storage class is set")
_NO_SUCH_CLASS = re.compile(r'storageclass(?:\.storage\.k8s\.io)? "([^"]+)" not found', re.IGNORECASE)
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if absent := _NO_CLAIM.search(pod.verdict):
            yield _no_claim(pod, absent[1])
        elif _UNBOUND.search(pod.verdict):
            for claim in _pending(pod):
                yield _unbound(pod, claim)


def _pending(pod: Unplaced) -> list[Object]:
    """The pod's claims that are not bound; where the evidence holds none of them, those that events complain of."""
    names = [text(v, "persistentVolumeClaim", "claimName") for v in maps(pod.pod, "spec", "volumes")]
    claims = [pod.evidence.get(f"PersistentVolumeClaim/{pod.namespace}/{name}") for name in names if name]
    known = [claim for claim in claims if claim is not None]
    if not known:
        told = {involved(e) for e in pod.evidence.of_kind("Event", pod.namespace) if text(e, "reason") in _COMPLAINTS}
        known = [{"kind": kind, "metadata": {"namespace": ns, "name": name}} for kind, ns, name in map(split, sorted(told))]
    return [claim for claim in known if text(claim, "status", "phase") in ("Pending", "")]


def _unbound(pod: Unplaced, claim: Object) -> Finding:
    evidence, ref = pod.evidence, reference(claim)
    told = [e for e in evidence.events(ref) if text(e, "reason") in _COMPLAINTS]
    message = event_message(told[-1]) if told else ""
    changes, proof = _fixes(evidence, claim, message)
    said = quote_event(told[-1], "why the claim is not bound") if told else quote(claim, "status.phase", "the claim is not bound")
    return Finding(
        code="VolumeClaimUnbound", object=ref,
        sentence=f"{pod.owner} waits for a node because its claim {ref} is not bound{': ' + message if message else ''}.",
        confidence=0.95 if told else 0.75, citations=(*said, *pod.cited, *proof), changes=changes,
        advice="" if changes else _advice(evidence, message),
    )  # fmt: skip


def _fixes(evidence: Evidence, claim: Object, message: str) -> tuple[tuple[Change, ...], tuple[Citation, ...]]:
    """The one class that can be meant: the only one there is, or the one that is plainly misspelt. A claim of a template is left alone."""
    ref = reference(claim)
    classes = [text(c, "metadata", "name") for c in evidence.of_kind("StorageClass")]
    wrong = _NO_SUCH_CLASS.search(message)
    chosen = nearest(wrong[1], classes, cutoff=0.7) if wrong else None
    if _NO_CLASS_NAMED.search(message):
        chosen = classes[0] if len(classes) == 1 else _used_beside(evidence, claim, classes)
    if chosen is None or _of_template(evidence, ref):
        return (), ()
    operation, before = ("set", wrong[1]) if wrong else ("add", None)
    change = Change.model_validate(
        {"object": ref, "operation": operation, "path": "spec.storageClassName", "value": chosen, "before": before}
    )
    return (change,), quote(evidence.get(f"StorageClass//{chosen}") or {}, "metadata.name", "this class is there")


def _used_beside(evidence: Evidence, claim: Object, classes: list[str]) -> str | None:
    beside = evidence.of_kind("PersistentVolumeClaim", text(claim, "metadata", "namespace"))
    used = {text(c, "spec", "storageClassName") for c in beside if text(c, "status", "phase") == "Bound"} & set(classes)
    return used.pop() if len(used) == 1 else None


def _of_template(evidence: Evidence, ref: str) -> bool:
    """A StatefulSet made the claim: its template cannot be changed in place."""
    _, namespace, name = split(ref)
    for owner in evidence.of_kind("StatefulSet", namespace):
        stem = text(owner, "metadata", "name")
        if any(
            re.fullmatch(rf"{re.escape(text(t, 'metadata', 'name'))}-{re.escape(stem)}-\d+", name)
            for t in maps(owner, "spec", "volumeClaimTemplates")
        ):
            return True
    return False


def _advice(evidence: Evidence, message: str) -> str:
    classes = [text(c, "metadata", "name") for c in evidence.of_kind("StorageClass")]
    marked = [c for c in evidence.of_kind("StorageClass") if mapping(c, "metadata", "annotations").get(_DEFAULT) == "true"]
    if _NO_CLASS_NAMED.search(message) and not marked:
        present = ", ".join(classes) or "none that the evidence shows"
        return f"Name a storage class in the claim, or mark one as default. The cluster has: {present}."
    return "Provide a volume that fits the claim, or repair the class that should provide one."


def _no_claim(pod: Unplaced, name: str) -> Finding:
    present = [text(c, "metadata", "name") for c in pod.evidence.of_kind("PersistentVolumeClaim", pod.namespace)]
    meant = nearest(name, present, cutoff=0.8)
    volumes = [text(v, "name") for v in maps(pod.pod, "spec", "volumes") if text(v, "persistentVolumeClaim", "claimName") == name]
    changes = tuple(
        Change(
            object=pod.owner, operation="set", value=meant, before=name,
            path=join(template_path(pod.owner), "spec.volumes", Pick("name", volume), "persistentVolumeClaim.claimName"),
        )
        for volume in volumes if meant is not None
    )  # fmt: skip
    return Finding(
        code="VolumeClaimUnbound", object=pod.owner,
        sentence=f"{pod.owner} waits for a node: there is no claim {pod.namespace}/{name}.",
        confidence=0.9, citations=pod.cited, changes=changes,
        advice="" if changes else f"Create the claim {name} in namespace {pod.namespace}, or name the one that is meant.",
    )  # fmt: skip
