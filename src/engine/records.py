"""What the engine's rows look like to Python: frozen records, each made from a row. Does nothing else."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from inspect import signature
from operator import itemgetter, methodcaller
from typing import Any, ClassVar, NamedTuple, Self, TypeVar
from uuid import UUID

from suture.engine.database import Row
from suture.engine.payload import decode
from suture.engine.states import Status

R = TypeVar("R")


def reader(record: type[R], *, in_order: bool = False, **converted: Callable[[Any], Any]) -> Callable[[Row], R]:
    """What makes a `record` of a row that has a column for each field; `in_order`: those, in their order, and no other, which is faster.

    `converted`: how those are read that do not stand as they are.
    """
    names = tuple(signature(record).parameters)
    columns: Callable[[Any], Any] = methodcaller("values") if in_order else itemgetter(*names)
    conversions = tuple((names.index(name), convert) for name, convert in converted.items())

    def read(row: Row) -> R:
        values: list[Any] = list(columns(row))  # a claim makes hundreds at once: by position, since names cost as much as all the rest
        for place, convert in conversions:
            values[place] = convert(values[place])
        return record(*values)

    return read


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something ended in error, safe to show."""

    reason: str
    message: str
    step: str | None = None

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        if text is None:
            return None
        found = json.loads(text)
        return cls(found.get("reason", "Error"), found.get("message", ""), found.get("step"))

    def to_json(self) -> str:
        # A message may quote anything: what JSONB cannot keep is replaced, a failure must always be writable.
        clean = self.message.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()
        return json.dumps({"reason": self.reason, "message": clean[:8000], "step": self.step or None})


class Execution(NamedTuple):
    """A task's execution, as its row stood when it was read."""

    id: UUID
    workflow: str
    version: int
    queue: str
    priority: int
    status: Status
    input: Any
    output: Any
    error: Failure | None
    operation_key: str | None
    concurrency_key: str | None
    parked: bool
    """Whether it stands behind others of its concurrency key."""
    labels: Mapping[str, str]
    owner_id: UUID | None
    epoch: int
    lease_expires: datetime | None
    run_at: datetime
    attempt: int
    """1 for the first try; a failure raises it. Waits, hand-backs and lost workers do not."""
    max_attempts: int | None
    crashes: int
    """How often the worker was lost while it ran this, since it last finished a step."""
    step: str | None
    """The step that runs, waits or ran last."""
    deadline_at: datetime | None
    cancel_requested_by: str | None
    forked_from: UUID | None
    parent_id: UUID | None
    """The execution that started it as its child."""
    has_children: bool
    """Whether it ever started any."""
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    finished_at: datetime | None
    reason: str
    """Why it is in this state."""

    @staticmethod
    def from_row(row: Row) -> "Execution":
        return _execution(row)

    @staticmethod
    def from_claim(row: Row) -> "Execution":
        """Of a row with these columns alone, in this order."""
        return _claimed(row)


def _labels(text: str) -> Mapping[str, str]:
    return {} if text == "{}" else json.loads(text)


def _output(text: str | None) -> Any:
    return None if text is None else decode(text)


_reader = partial(reader, Execution, input=decode, output=_output, error=Failure.from_json, labels=_labels)
_execution, _claimed = _reader(), _reader(in_order=True)


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Answer to an enqueue."""

    execution: Execution
    created: bool
    """False: the operation key was taken by the same request; `execution` is the earlier one."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A finished step."""

    step_id: str
    kind: str
    output: Any
    attempts: int
    owner_id: UUID
    epoch: int
    started_at: datetime
    finished_at: datetime

    from_row: ClassVar[Callable[[Row], "Checkpoint"]]


Checkpoint.from_row = reader(Checkpoint, output=decode)


@dataclass(frozen=True, slots=True)
class Move:
    """A line of the timeline: who moved the execution from where to where, when and why."""

    id: int
    at: datetime
    actor: str
    from_status: Status | None
    to_status: Status
    reason: str
    step: str | None
    epoch: int

    from_row: ClassVar[Callable[[Row], "Move"]]


Move.from_row = reader(Move)


@dataclass(frozen=True, slots=True)
class Event:
    """A fact from outside for one execution; the first of a name is the one that counts."""

    name: str
    payload: Any
    emitted_by: str
    emitted_at: datetime
    accepted: bool
    """False: an earlier event of this name stands, and `payload` is its; or the wait was over."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An execution that ended in error, and what became of it since."""

    execution_id: UUID
    workflow: str
    queue: str
    reason: str
    error: Failure
    step: str | None
    attempts: int
    crashes: int
    dead_at: datetime
    requeued_as: UUID | None
    discarded_at: datetime | None
    discarded_by: str | None
    discard_reason: str | None

    from_row: ClassVar[Callable[[Row], "DeadLetter"]]


DeadLetter.from_row = reader(DeadLetter, error=lambda text: Failure.from_json(text) or Failure("Error", ""))


@dataclass(frozen=True, slots=True)
class Health:
    """Numbers from SQL alone."""

    depth: list[dict[str, Any]]
    """queue, status, count, oldest_seconds; of the enqueued also due, delayed, parked, due_seconds."""
    workers: list[dict[str, Any]]
    """id, name, version, queues, presence, beat_seconds, running."""
    endings: list[dict[str, Any]]
    """workflow, attempt, ended, failed: over the last hour."""
    latency_seconds: dict[str, float | None] = field(default_factory=dict)
    """p50, p95, p99 from creation to the first claim, over the last hour; None when nothing started."""
    dead_letters: int = 0
    unclaimable: list[dict[str, Any]] = field(default_factory=list)
    """workflow, version, count of what is overdue by a minute: no worker knows it, or there are too few."""
    queues: list[dict[str, Any]] = field(default_factory=list)
    """name, paused, concurrency, per_key, starts_per_second, reason, changed_at, changed_by of those that are paused or limited."""
    paused_steps: list[dict[str, Any]] = field(default_factory=list)
    """step, workflow, held, reason, paused_at, paused_by."""
    schedules: list[dict[str, Any]] = field(default_factory=list)
    """name, paused, problem, next_at, last_at, fired_count, missed_count, skipped_count."""
