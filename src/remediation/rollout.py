"""Rollout: how a Deployment replaces its pods, and the change that makes it take the old one away first.

Shared by the causes where the new pod cannot start while the old one is there.
"""

from suture.remediation.evidence import Evidence, split
from suture.remediation.incident import Change
from suture.remediation.paths import Object, mapping, text, whole

DEFAULT = {"maxSurge": "25%", "maxUnavailable": "25%"}
"""What the API server fills in where a manifest says nothing."""


def surges(deployment: Object) -> bool:
    """Whether it starts a new pod before it stops an old one."""
    strategy = mapping(deployment, "spec", "strategy")
    if text(strategy, "type") == "Recreate":
        return False
    return mapping(strategy, "rollingUpdate").get("maxSurge", "25%") not in (0, "0", "0%")


def old_first(evidence: Evidence, owner: str) -> tuple[Change, ...]:
    """The strategy that stops an old pod before it starts a new one; none where the owner is no Deployment or does so already."""
    deployment = evidence.get(owner)
    if split(owner)[0] != "Deployment" or deployment is None or not surges(deployment):
        return ()
    if (whole(deployment, "spec", "replicas") or 1) == 1:
        return (_set(owner, "spec.strategy", {"type": "Recreate"}, _written(deployment, "strategy")),)
    return one_by_one(owner, deployment)


def one_by_one(owner: str, deployment: Object) -> tuple[Change, ...]:
    """A rolling update without an extra pod."""
    value = {"maxSurge": 0, "maxUnavailable": 1}
    before = mapping(deployment, "spec", "strategy", "rollingUpdate")
    return (_set(owner, "spec.strategy.rollingUpdate", value, None if before == DEFAULT else dict(before) or None),)


def _written(deployment: Object, field: str) -> dict[str, object] | None:
    """What stands in the manifest, as far as it can be told from what the server filled in."""
    found = mapping(deployment, "spec", field)
    is_default = text(found, "type") in ("", "RollingUpdate") and mapping(found, "rollingUpdate") in ({}, DEFAULT)
    return None if is_default else dict(found)


def _set(owner: str, path: str, value: object, before: object) -> Change:
    return Change.model_validate({"object": owner, "operation": "set", "path": path, "value": value, "before": before})
