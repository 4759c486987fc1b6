"""The shapes of the engine's machinery: queues with their limits, schedules, workers. Pure; see `shapes` for tasks."""

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import ConfigDict, Field, JsonValue, PlainSerializer
from pydantic.dataclasses import dataclass

from suture.api.shapes import Shape, plain
from suture.engine import Limits, PausedStep, Queue, Rate, Schedule
from suture.engine.glance import SPAN, Glance


class Starts(Shape):
    """First claims over time, as a token bucket."""

    model_config = ConfigDict(extra="forbid")

    starts: int = Field(ge=1, le=1_000_000)
    per_seconds: float = Field(ge=0.001, le=31_536_000)
    burst: int | None = Field(None, ge=1, le=1_000_000)
    """Starts at once after a quiet time; null: as many as `starts`."""

    @classmethod
    def of(cls, rate: Rate | None) -> Self | None:
        return cls(starts=rate.starts, per_seconds=rate.per.total_seconds(), burst=rate.burst) if rate else None

    def rate(self) -> Rate:
        return Rate(self.starts, timedelta(seconds=self.per_seconds), self.burst)


class Limitation(Shape):
    """A change of a queue's limits: what is not named stays, null takes a limit away."""

    model_config = ConfigDict(extra="forbid")

    concurrency: int | None = Field(None, ge=1, le=1_000_000)
    """Executions that run at the same time in the whole fleet."""
    per_key: int | None = Field(None, ge=1, le=1_000_000)
    """Executions with one concurrency key."""
    rate: Starts | None = None
    reason: str = Field("", max_length=1024)

    def changed(self, limits: Limits) -> Limits:
        """`limits` with what is named here."""
        given: Mapping[str, Any] = {"concurrency": self.concurrency, "per_key": self.per_key, "rate": self.rate and self.rate.rate()}
        return replace(limits, **{name: value for name, value in given.items() if name in self.model_fields_set})


class Why(Shape):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("", max_length=1024)


class QueueShape(Shape):
    """A queue: whether it is paused, what it may do at once, what is in it."""

    name: str
    paused: bool
    """Whether nothing is claimed from it; what runs goes on."""
    concurrency: int | None
    per_key: int | None
    rate: Starts | None
    reason: str
    """Why it was changed last."""
    changed_at: datetime | None
    changed_by: str | None
    due: int
    delayed: int
    parked: int
    running: int
    waiting: int
    oldest_due_seconds: float | None

    @classmethod
    def of(cls, queue: Queue) -> Self:
        same = {name: getattr(queue, name) for name in cls.model_fields if hasattr(queue, name)}
        oldest = queue.oldest_due.total_seconds() if queue.oldest_due is not None else None
        limits = queue.limits
        return cls(**same, oldest_due_seconds=oldest, concurrency=limits.concurrency, per_key=limits.per_key, rate=Starts.of(limits.rate))


Seconds = Annotated[timedelta, PlainSerializer(timedelta.total_seconds, return_type=float)]


@dataclass(frozen=True, config=Shape.model_config)
class ScheduleShape(Schedule):
    """A schedule, as its row stands."""

    # The engine's record, but for what JSON cannot say.
    input: Annotated[Any, PlainSerializer(plain, return_type=JsonValue)]
    every: Annotated[Seconds | None, Field(serialization_alias="everySeconds")]
    jitter: Annotated[Seconds, Field(serialization_alias="jitterSeconds")]

    @classmethod
    def of(cls, schedule: Schedule) -> Self:
        return cls(**{field.name: getattr(schedule, field.name) for field in fields(schedule)})


class WorkerShape(Shape):
    """A process that claims and runs, and has not said goodbye."""

    id: UUID
    """Unique in its life: the owner of its leases."""
    name: str
    version: str
    queues: list[str]
    presence: bool
    """Whether its listening connection shows that it lives; without, its leases alone are judged."""
    beat_seconds: float
    """Age of its last heartbeat."""
    running: int


class Pausing(Shape):
    """Steps that nobody may begin."""

    model_config = ConfigDict(extra="forbid")

    step: str = Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]+$", examples=["deliver"])
    """A step's name, or the kind of an effect; `*` stands for any text."""
    workflow: str = Field("*", min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]+$")
    reason: str = Field("", max_length=1024)


class PauseShape(Shape):
    """A pause of steps as it stands."""

    step: str
    workflow: str
    paused_by: str
    paused_at: datetime
    reason: str
    held: int
    """Tasks that wait for its end."""

    @classmethod
    def of(cls, pause: PausedStep) -> Self:
        return cls(**{name: getattr(pause, name) for name in cls.model_fields})


class Released(Shape):
    released: int
    """Tasks that go on at once."""


class QueueAtAGlance(Shape):
    name: str
    paused: bool
    concurrency: int | None
    per_key: int | None
    rate_starts: int | None
    rate_seconds: float | None
    running: int
    due: int
    delayed: int
    oldest_seconds: float | None
    more: bool
    """Whether more than the counted ten thousand are enqueued."""
    parked: int
    """Enqueued behind others with the same concurrency key, among the first ten thousand that live with a key."""
    parked_more: bool
    """Whether there are more with a key."""


class WorkerAtAGlance(Shape):
    id: UUID
    name: str
    queues: list[str]
    presence: bool
    absent: bool
    """Whether its presence is gone: its work is about to be taken over."""
    beat_seconds: float
    running: int


class RunAtAGlance(Shape):
    id: UUID
    workflow: str
    queue: str
    step: str | None
    """As its worker's last heartbeat told."""
    worker: str | None
    seconds: float
    """Since its claim."""
    crashes: int


class GlanceShape(Shape):
    """What `suture top` shows."""

    at: datetime
    queues: list[QueueAtAGlance]
    workers: list[WorkerAtAGlance]
    longest: list[RunAtAGlance]
    ended_per_second: float
    """Over the last ten seconds."""
    failed_per_second: float
    dead_letters: int

    @classmethod
    def of(cls, seen: Glance) -> Self:
        return cls.model_validate({**asdict(seen), "ended_per_second": seen.ended / SPAN, "failed_per_second": seen.failed / SPAN})
