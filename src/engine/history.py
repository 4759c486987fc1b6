"""The history: what ended, how long it took and why it failed, in numbers. Reads alone; the views of the same names are for psql.

Whatever is asked goes by when executions ended: the history is partitioned by that, and a question about one night reads one night.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from suture.engine.database import Database
from suture.engine.records import reader

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class WorkflowStatistics:
    """How the executions of one workflow ended."""

    workflow: str
    ended: int
    completed: int
    failed: int
    cancelled: int
    retried: int
    """Executions that needed more than one try."""
    crashed: int
    """Executions that lost a worker at least once."""
    queued_p50: float | None
    """Seconds from creation to the first claim."""
    queued_p95: float | None
    run_p50: float | None
    """Seconds from the first claim to the end, waits included."""
    run_p95: float | None
    run_p99: float | None
    run_max: float | None


@dataclass(frozen=True, slots=True)
class StepStatistics:
    """How long one step of a workflow took, by the executions that ended."""

    workflow: str
    step: str
    kind: str
    finished: int
    retried: int
    """How many of them needed more than one try."""
    attempts: int
    """Tries in all."""
    p50: float
    """Seconds."""
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Failures:
    """Executions of one workflow that ended in error for the same reason at the same step."""

    workflow: str
    reason: str
    step: str | None
    failed: int
    first_at: datetime
    last_at: datetime
    last_id: UUID
    last_message: str | None


@dataclass(frozen=True, slots=True)
class SlowStep:
    """One finished step of one execution."""

    execution_id: UUID
    workflow: str
    step: str
    kind: str
    attempts: int
    seconds: float
    finished_at: datetime


DAY = timedelta(days=1)


class History:
    """Questions about the executions that ended within `since` of now, or until `until` where it is given."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def workflow_statistics(
        self, *, since: timedelta = DAY, until: datetime | None = None, workflow: str | None = None
    ) -> list[WorkflowStatistics]:
        """By workflow."""
        return await self._ask(WorkflowStatistics, "workflow_statistics", since, until, workflow)

    async def step_statistics(
        self, *, since: timedelta = DAY, until: datetime | None = None, workflow: str | None = None
    ) -> list[StepStatistics]:
        """Slowest first, by the 95th percentile."""
        return await self._ask(StepStatistics, "step_statistics", since, until, workflow)

    async def failures(self, *, since: timedelta = DAY, until: datetime | None = None, workflow: str | None = None) -> list[Failures]:
        """Most frequent first: by workflow, reason and step."""
        return await self._ask(Failures, "failures", since, until, workflow)

    async def slow_steps(
        self, *, since: timedelta = DAY, until: datetime | None = None, workflow: str | None = None, limit: int = 20
    ) -> list[SlowStep]:
        """The longest single steps but sleeps and waits, longest first."""
        return await self._ask(SlowStep, "slow_steps", since, until, workflow, limit)

    async def _ask(self, record: type[R], question: str, *args: object) -> list[R]:
        return list(map(reader(record), await self._database.many(question, *args)))
