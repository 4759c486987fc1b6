"""Agreement: whether a file's value is what the evidence shows, although the cluster prints it in other words.

Quantities compare as numbers, defaults of the API server count as absent. Knows neither files nor paths beyond their keys; strict
equality is `values.same`, numbers are `quantity`'s.
"""

from pydantic import JsonValue

from suture.remediation.manifest.values import same
from suture.remediation.paths import Path, fields
from suture.remediation.quantity import amount

_MEASURED = {
    "limits",
    "requests",
    "hard",
    "capacity",
    "min",
    "max",
    "default",
    "defaultRequest",
    "memory",
    "cpu",
    "storage",
    "ephemeral-storage",
}
_MEASURED |= {"sizeLimit", "divisor", "maxLimitRequestRatio", "averageValue", "overhead"}


def agrees(file: JsonValue, cluster: JsonValue, path: Path, *, measured: bool = False) -> bool:
    """Whether the file's value is what the evidence shows: quantities compare as numbers where the path leads to quantities."""
    # The cluster's copy also shows defaults: a map in the file may hold less than the evidence, never something else.
    measured = measured or any(name in _MEASURED for name in fields(path))
    if isinstance(file, dict) and isinstance(cluster, dict):
        return all(key in cluster and agrees(v, cluster[key], (), measured=measured or key in _MEASURED) for key, v in file.items())
    if isinstance(file, list) and isinstance(cluster, list):
        return len(file) == len(cluster) and all(agrees(f, c, (), measured=measured) for f, c in zip(file, cluster, strict=True))
    if measured and (number := amount(file)) is not None:
        return number == amount(cluster)
    return same(file, cluster)


DEFAULTS: dict[str, JsonValue] = {
    "replicas": 1, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, "initialDelaySeconds": 0,
    "terminationGracePeriodSeconds": 30, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "backoffLimit": 6, "scheme": "HTTP",
    "protocol": "TCP", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "optional": False,
}  # fmt: skip
"""What the API server fills in: the evidence shows it although the file does not."""
