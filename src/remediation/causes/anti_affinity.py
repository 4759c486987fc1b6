"""AntiAffinityBlocksRollout: pods of one workload may not share a node, and the extra pod of an update finds no node without one.

The old pods run and serve, and the change that began the rollout is innocent.
"""

from collections.abc import Iterator

from suture.remediation.citations import quote
from suture.remediation.evidence import template_path
from suture.remediation.incident import Finding
from suture.remediation.paths import join
from suture.remediation.rollout import old_first, one_by_one, surges
from suture.remediation.scheduling import Unplaced, unplaced
from suture.remediation.sightings import Scene

CODES = ("AntiAffinityBlocksRollout",)

_RULE = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"


def findings(scene: Scene) -> Iterator[Finding]:
    for pod in unplaced(scene):
        if "anti-affinity" in pod.verdict and pod.old_pods:
            yield _finding(pod)


def _finding(pod: Unplaced) -> Finding:
    owner = pod.evidence.get(pod.owner)
    rule = quote(owner, join(template_path(pod.owner), _RULE), "no two of its pods may share a node") if owner is not None else ()
    strategy = quote(owner, "spec.strategy", "the update starts a new pod first") if owner is not None else ()
    changes = old_first(pod.evidence, pod.owner)
    if changes and owner is not None and surges(owner):
        changes = one_by_one(pod.owner, owner)
    return Finding(
        code="AntiAffinityBlocksRollout", object=pod.owner,
        sentence=f"The rollout of {pod.owner} hangs: its {len(pod.old_pods)} old pods hold every node that a new one may use. They "
        f"still serve.",
        confidence=0.93 if rule and changes else 0.6, citations=(*pod.cited, *rule, *strategy), changes=changes,
        advice="" if changes else "There are more pods than nodes that may hold one each: add a node or run fewer.",
    )  # fmt: skip
