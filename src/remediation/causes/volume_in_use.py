"""VolumeInUse: the new pod waits for a volume that the pod it replaces still holds."""

import re
from collections.abc import Iterator

from suture.remediation.citations import quote, quote_event
from suture.remediation.evidence import Evidence, event_message, reference
from suture.remediation.incident import Citation, Finding
from suture.remediation.paths import maps, text, whole
from suture.remediation.rollout import old_first
from suture.remediation.scheduling import unplaced
from suture.remediation.sightings import Scene

CODES = ("VolumeInUse",)

_HELD = re.compile(r"already in-use by another pod|Multi-Attach error|already exclusively attached|already used by pod")


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if _HELD.search(pod.verdict):
            yield _finding(scene.evidence, pod.ref, pod.cited)
    for document in scene.evidence.of_kind("Pod"):
        ref = reference(document)
        held = [e for e in scene.evidence.events(ref) if _HELD.search(event_message(e))]
        attached = text(document, "spec", "nodeName") and text(document, "status", "phase") == "Pending"
        if held and attached:
            yield _finding(scene.evidence, ref, quote_event(held[-1], "another pod has the volume"))


def _finding(evidence: Evidence, ref: str, cited: tuple[Citation, ...]) -> Finding:
    owner = evidence.top(ref)
    document = evidence.get(owner)
    others = [p for p in evidence.pods(owner) if reference(p) != ref and text(p, "status", "phase") == "Running"]
    changes = old_first(evidence, owner) if others and (whole(document, "spec", "replicas") or 1) == 1 else ()
    strategy = quote(document, "spec.strategy", "the update starts the new pod first") if document is not None and changes else ()
    return Finding(
        code="VolumeInUse", object=owner,
        sentence=f"The new pod of {owner} waits: the volume of claim {_claim(evidence, ref)} is held by "
        f"{'its old pod' if others else 'another pod'}.",
        confidence=0.94 if changes else 0.8, citations=(*cited, *strategy), changes=changes,
        advice="" if changes else "Stop the pod that holds the volume, or wait until its node gives it up; then the new one starts.",
    )  # fmt: skip


def _claim(evidence: Evidence, ref: str) -> str:
    volumes = maps(evidence.get(ref), "spec", "volumes")
    claims = [text(v, "persistentVolumeClaim", "claimName") for v in volumes if text(v, "persistentVolumeClaim", "claimName")]
    return claims[0] if len(claims) == 1 else "it mounts"
