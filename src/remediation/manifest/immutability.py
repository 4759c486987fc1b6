"""Immutability: the fields that the API server never changes on an object that exists, each with the reason and the way out.

A table and its reader; asks no server. A Job's template is not in it although the server keeps it: a Job is healed in Git by the edit,
and who syncs it replaces the Job, as the person who reviews the pull request expects. A StatefulSet holds data, a selector holds pods:
those are never replaced in passing. Neighbours: `editing` asks for each edit, `source` before it searches.
"""

from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path
from suture.remediation.manifest.plan import Operation
from suture.remediation.paths import Path, fields

_SELECTED = "a workload's selector is immutable; a new selector needs a new object."
_IMMUTABLE: dict[str, dict[str, str]] = {
    "StatefulSet": {
        "spec.volumeClaimTemplates": "a StatefulSet's volumeClaimTemplates are immutable; delete it with --cascade=orphan, create it anew.",
        "spec.serviceName": "a StatefulSet's serviceName is immutable; it needs to be deleted with --cascade=orphan and created anew.",
        "spec.podManagementPolicy": "a StatefulSet's podManagementPolicy is immutable; it needs to be deleted and created anew.",
        "spec.selector": _SELECTED,
    },
    "Deployment": {"spec.selector": _SELECTED},
    "ReplicaSet": {"spec.selector": _SELECTED},
    "DaemonSet": {"spec.selector": _SELECTED},
    "Job": {
        "spec.selector": _SELECTED,
        "spec.completionMode": "a Job's completionMode is immutable; delete the Job and create it anew.",
    },
    "PersistentVolumeClaim": {
        "spec.accessModes": "a claim's accessModes are immutable; a new claim is needed, and its data moved.",
        "spec.storageClassName": "a claim's storageClassName is immutable once set; a new claim is needed, and its data moved.",
        "spec.volumeName": "a claim's volumeName is immutable once set; a new claim is needed.",
    },
    "Service": {"spec.clusterIP": "a Service's clusterIP is immutable; delete the Service and create it anew."},
    "RoleBinding": {"roleRef": "a binding's roleRef is immutable; delete the binding and create it anew."},
    "ClusterRoleBinding": {"roleRef": "a binding's roleRef is immutable; delete the binding and create it anew."},
}
_IDENTITY = {"apiVersion", "kind", "metadata.name", "metadata.namespace"}
_ONCE = {"metadata.namespace", "spec.storageClassName", "spec.volumeName"}
"""May be added where they are missing, never changed."""


def immutable(change: Change) -> str | None:
    """Why the API server would refuse the change whatever the file holds; None when it would not, or when only the file can tell."""
    # A namespace that is set where the evidence names none may fill a gap of the file; `editing` asks again when it has looked.
    operation = "add" if (change.operation, change.path, change.before) == ("set", "metadata.namespace", None) else change.operation
    return fixed(change.object.split("/")[0], operation, parse_path(change.path), inside=False)


def fixed(kind: str, operation: Operation, path: Path, *, inside: bool = True) -> str | None:
    """Why this one edit would be refused, or None; `inside`: also when the field would go with the map around it."""
    keys = fields(path)
    reasons = {**dict.fromkeys(_IDENTITY, "it is what identifies the object; another one is another object."), **_IMMUTABLE.get(kind, {})}
    for place, reason in reasons.items():
        kept = place.split(".")
        shared = min(len(kept), len(keys)) if inside and operation != "add" else len(kept)
        if keys[:shared] == kept[:shared] and not (operation == "add" and place in _ONCE):
            return reason
    return None
