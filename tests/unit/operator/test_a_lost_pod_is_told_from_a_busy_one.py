"""What the status of a worker's pod says of the worker: gone, or perhaps alive."""

from typing import Any

import pytest

from suture.operator.workers import lost


def pod(phase: str = "Running", *, ready: bool | None = True, containers: tuple[bool, ...] = (True,), **fields: Any) -> dict[str, Any]:
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [{"name": "worker", "ready": one} for one in containers]}
    return {"metadata": {"name": "w"}, "spec": {}, "status": status} | fields


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (pod("Failed", status={"phase": "Failed", "reason": "Evicted"}), "Evicted"),
        (pod("Succeeded"), "succeeded"),
        (pod(ready=False), "node"),
    ],
    ids=["evicted", "ended", "written off by the node controller"],
)
def test_where_nothing_can_run_any_more_it_is_lost(seen: dict[str, Any], word: str):
    assert word in (lost(seen) or "")


@pytest.mark.parametrize(
    "seen",
    [
        pod(),
        pod("Pending", ready=None, containers=()),
        pod(ready=False, containers=(False,)),
        pod(ready=False, containers=(True, False)),
        pod(ready=None),
        pod(ready=False, spec={"readinessGates": [{"conditionType": "x"}]}),
        {"metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Running"}},
        {"metadata": {"name": "w"}},
    ],
    ids=["healthy", "pending", "not ready", "one restarts", "no condition", "gated", "draining", "no status"],
)
def test_where_something_may_run_it_is_not(seen: dict[str, Any]):
    assert lost(seen) is None
