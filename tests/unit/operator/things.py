"""Tasks and rows of every kind, for the tests of the operator's pure parts."""

import random
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from suture.engine import STATUSES, Execution, Failure, Run, Workflows, is_terminal, workflow
from suture.operator.resource import FINALIZER, Task
from suture.remediation.incident import Incident, Outcome

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
UID = "6f1c9f0e-0f0e-4c8e-9a51-3d1d1f7f9b11"


class Words(BaseModel):
    text: str


@workflow("echo", version=3)
async def echo(_: Run, words: Words) -> str:
    return words.text


@workflow("remediate")
async def remediate(_: Run, incident: Incident) -> Outcome:
    return Outcome(state="reported", sentence=incident.title)


def known() -> Workflows:
    workflows = Workflows()
    workflows.add(echo)
    workflows.add(remediate)
    return workflows


def task(
    spec: Mapping[str, Any] | None = None,
    *,
    status: Mapping[str, Any] | None = None,
    generation: int = 1,
    deleting: bool = False,
    guarded: bool = True,
) -> Task:
    metadata = {
        "name": "web",
        "namespace": "shop",
        "uid": UID,
        "generation": generation,
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-30T12:00:00Z",
        "finalizers": ["example.com/other", *([FINALIZER] if guarded else [])],
    }
    gone = {"deletionTimestamp": "2026-11-30T13:00:00Z"} if deleting else {}
    whole = {"type": "echo", "input": {"text": "hello"}} | dict(spec or {})
    return Task.read({"metadata": metadata | gone, "spec": whole, "status": dict(status or {})})


def row(status: str = "enqueued", **fields: Any) -> Execution:
    ended, running = status in STATUSES and is_terminal(status), status == "running"  # type: ignore[arg-type]
    whole: dict[str, Any] = {
        "id": uuid.UUID(int=random.Random(1).getrandbits(128)), "workflow": "echo", "version": 3, "queue": "default", "priority": 0,
        "status": status, "input": None, "output": "hello" if status == "completed" else None,
        "error": Failure("InvalidRequest", "no such thing") if status == "error" else None, "operation_key": f"task:{UID}",
        "labels": {"uid": UID, "namespace": "shop", "task": "web", "generation": "1"}, "owner_id": uuid.UUID(int=2) if running else None,
        "epoch": 1, "lease_expires": NOW if running else None, "run_at": NOW, "attempt": 1, "max_attempts": None, "crashes": 0,
        "deadline_at": None, "cancel_requested_by": None, "forked_from": None, "created_at": NOW, "started_at": NOW, "updated_at": NOW,
        "finished_at": NOW + timedelta(seconds=9) if ended else None, "reason": "requested",
    }  # fmt: skip
    return Execution(**{name: whole.get(name) for name in Execution._fields} | fields)


ROWS = st.builds(
    row,
    st.sampled_from(STATUSES),
    step=st.sampled_from([None, "say", "approval", "a\x1b[31m\nb"]),
    attempt=st.integers(1, 9),
    cancel_requested_by=st.sampled_from([None, "operator", "\0\ud800"]),
    labels=st.sampled_from([{"uid": UID}, {"uid": "another"}]),
)

TASKS = st.builds(
    task,
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["echo", "unknown", 7]),
            "input": st.sampled_from([{"text": "hello"}, {"text": 1}, None]),
            "operationKey": st.sampled_from(["k", "deploy/42"]),
            "deadline": st.sampled_from(["90s", "soon", "1h30m"]),
            "cancel": st.booleans(),
            "suspend": st.booleans(),
        },
    ),
    generation=st.integers(1, 5),
    deleting=st.booleans(),
    guarded=st.booleans(),
)
