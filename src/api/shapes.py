"""The shapes of answers: rows as JSON with camelCase names, the same words as in a `Task` resource. Pure."""

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any, Generic, Self, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

from suture.engine import Checkpoint, DeadLetter, Execution, Failure, Move
from suture.engine.payload import encode
from suture.remediation.incident import Approval, Decision, FileChange, Finding
from suture.remediation.records import Delivery, OpenedChange

T = TypeVar("T")


class Shape(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True)


class Fault(Shape):
    """Why a task or a step failed."""

    reason: str
    message: str
    step: str | None = None

    @classmethod
    def of(cls, failure: Failure | None) -> Self | None:
        return cls(**asdict(failure)) if failure else None


class Task(Shape):
    """A task, as its row stood when it was read."""

    id: UUID
    type: str
    status: str
    step: str | None
    """The step that runs, waits or ran last."""
    reason: str
    """Why it is in this status."""
    input: JsonValue
    output: JsonValue
    error: Fault | None
    operation_key: str | None
    queue: str
    priority: int
    labels: dict[str, str]
    attempt: int
    max_attempts: int | None
    crashes: int
    run_at: datetime
    deadline: datetime | None
    cancel_requested_by: str | None
    forked_from: UUID | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None

    @classmethod
    def of(cls, execution: Execution) -> Self:
        same = {name: getattr(execution, name) for name in cls.model_fields if hasattr(execution, name)}
        return cls(
            **same
            | {
                "type": execution.workflow,
                "deadline": execution.deadline_at,
                "input": plain(execution.input),
                "output": plain(execution.output),
                "error": Fault.of(execution.error),
                "labels": dict(execution.labels),
            }
        )


class Line(Shape):
    """A move of a task: who moved it from where to where, when and why."""

    at: datetime
    actor: str
    from_status: str | None
    to_status: str
    reason: str
    step: str | None
    epoch: int

    @classmethod
    def of(cls, move: Move) -> Self:
        return cls(**{name: getattr(move, name) for name in cls.model_fields})


class Step(Shape):
    """A finished step."""

    name: str
    kind: str
    output: JsonValue
    attempts: int
    started_at: datetime
    finished_at: datetime

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        same = {name: getattr(checkpoint, name) for name in cls.model_fields if hasattr(checkpoint, name)}
        return cls(**same | {"name": checkpoint.step_id, "output": plain(checkpoint.output)})


class Proposed(Shape):
    """What a person is asked to approve."""

    cause: Finding
    base: str
    diff: str
    digest: str
    branch: str
    title: str
    body: str
    files: list[str]
    """The paths that change."""


class Question(Shape):
    """A proposal and what became of it."""

    task_id: UUID
    state: str
    asked_at: datetime
    expires_at: datetime
    decided_at: datetime | None
    decision: Decision | None
    proposal: Proposed

    @classmethod
    def of(cls, approval: Approval) -> Self:
        return cls(
            task_id=UUID(approval.task_id),
            state=approval.state,
            asked_at=approval.asked_at,
            expires_at=approval.expires_at,
            decided_at=approval.decided_at,
            decision=approval.decision,
            proposal=Proposed(
                **approval.proposal.model_dump(include=set(Proposed.model_fields) - {"files", "cause"}),
                cause=approval.proposal.cause,
                files=_paths(approval.proposal.files),
            ),
        )


class Change(Shape):
    """A pull request that was opened."""

    repository: str
    branch: str
    number: int
    task_id: UUID
    base: str
    commit: str
    url: str
    title: str
    body: str
    diff: str
    digest: str
    opened_at: datetime

    @classmethod
    def of(cls, change: OpenedChange) -> Self:
        return cls(**asdict(change))


class Received(Shape):
    """A webhook that was let in."""

    provider: str
    delivery_id: str
    received_at: datetime
    event_type: str
    state: str
    note: str
    task_id: UUID | None
    size: int

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        return cls(**asdict(delivery))


class Letter(Shape):
    """A dead letter: a task that needs a person."""

    task_id: UUID
    type: str
    queue: str
    reason: str
    error: Fault
    step: str | None
    attempts: int
    crashes: int
    dead_at: datetime
    requeued_as: UUID | None
    discarded_at: datetime | None
    discarded_by: str | None
    discard_reason: str | None

    @classmethod
    def of(cls, letter: DeadLetter) -> Self:
        same = {name: getattr(letter, name) for name in cls.model_fields if hasattr(letter, name)}
        return cls(**same | {"task_id": letter.execution_id, "type": letter.workflow, "error": Fault.of(letter.error)})


class Page(Shape, Generic[T]):
    """A part of a list, youngest first."""

    items: list[T]
    next: str | None = None
    """Address of the next page; null on the last."""


def plain(value: object) -> Any:
    """A payload as JSON can say it: what no JSON text can hold travels as the tagged object that the database keeps."""
    return json.loads(encode(value, limit=1 << 30))


def _paths(files: tuple[FileChange, ...]) -> list[str]:
    return [file.path for file in files]
