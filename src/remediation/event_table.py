"""The table that `kubectl get events` prints for people, read back into Event objects.

Columns are cut where their headings stand. Knows the short forms of ages and kinds; nothing of causes. Neighbour: `documents`.
"""

import re
from collections.abc import Iterator

from suture.remediation.paths import Object

_HEAD = re.compile(
    r"^(?:NAMESPACE +)?LAST SEEN +(?:FIRST SEEN +)?(?:COUNT +)?(?:NAME +)?TYPE +REASON +(?:OBJECT|KIND)\b.*MESSAGE", re.MULTILINE
)
_COLUMN = re.compile(r"LAST SEEN|FIRST SEEN|\S+")
_COUNTED = re.compile(r"\(x(\d{1,9}) over [^)]*\)")
KINDS = {
    kind.lower(): kind
    for kind in (
        "Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Node", "Service", "PersistentVolumeClaim",
        "PersistentVolume", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ReplicationController", "Ingress", "ConfigMap", "Secret",
        "Namespace", "ServiceAccount", "EndpointSlice", "Endpoints",
    )
}  # fmt: skip
MOST_ROWS = 50_000


def is_event_table(content: str) -> bool:
    return _HEAD.match(content.lstrip()) is not None


def read_event_table(content: str) -> Iterator[Object]:
    """One Event a row; rows that are no rows are left out. Without a namespace column the namespace is `default`."""
    head, *rows = content.lstrip().splitlines()
    columns = [(found[0], found.start()) for found in _COLUMN.finditer(head)]
    for number, row in enumerate(rows[:MOST_ROWS]):
        if row.strip() and (event := _event(_cells(row, columns), number)) is not None:
            yield event


def _cells(row: str, columns: list[tuple[str, int]]) -> dict[str, str]:
    ends = [start for _, start in columns[1:]] + [len(row)]
    return {name: row[start:end].strip() for (name, start), end in zip(columns, ends, strict=True)}


def _event(cells: dict[str, str], number: int) -> Object | None:
    kind, slash, name = cells.get("OBJECT", "").partition("/")
    if not slash or not cells.get("REASON"):
        return None
    counted = _COUNTED.search(cells.get("LAST SEEN", ""))
    namespace = cells.get("NAMESPACE") or "default"
    about = {"kind": KINDS.get(kind.lower(), kind), "namespace": namespace, "name": name}
    if cells.get("SUBOBJECT"):
        about["fieldPath"] = cells["SUBOBJECT"]
    return {
        "apiVersion": "v1", "kind": "Event", "metadata": {"namespace": namespace, "name": f"row-{number:05}"},
        "type": cells.get("TYPE", ""), "reason": cells["REASON"], "message": cells.get("MESSAGE", ""),
        "count": int(counted[1]) if counted else 1, "involvedObject": about,
    }  # fmt: skip
