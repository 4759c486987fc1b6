"""Schedules: executions that are due again and again, by an interval or by a cron expression. Every runner looks; a time fires once.

The row's advance and the new executions commit together, so that a worker that dies between them changes nothing. When the times are is
the affair of `rhythm`; what is enqueued then is an execution like any other, with the label `schedule`.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, get_args
from uuid import UUID

from suture.engine.database import Database, Row, Session
from suture.engine.ids import uuid7
from suture.engine.payload import LIMIT, admit, admit_name, decode, digest
from suture.engine.records import reader
from suture.engine.rhythm import CRON, Every, Rhythm, cron
from suture.errors import ConfigError, InvalidRequest, NotFound

Missed = Literal["skip", "once", "all"]
"""What becomes of times at which nobody looked: none runs but one less than a minute late; the newest runs; the newest
`missed_limit` run, oldest first. The others are counted in `missed_count`."""

Overlap = Literal["skip", "queue", "allow"]
"""What becomes of a time while an earlier execution of the schedule lives: it is skipped and counted in `skipped_count`; it waits for
the end of the earlier one; it runs beside it."""

BATCH = 100
"""Schedules that one look takes at most."""

LATE = timedelta(minutes=1)
"""How late a time may be looked at and still count as on time where what was missed is skipped."""

ACTOR = "schedule"


@dataclass(frozen=True, slots=True)
class Schedule:
    """As its row stood when it was read."""

    name: str
    workflow: str
    version: int
    queue: str
    priority: int
    input: Any
    labels: Mapping[str, str]
    every: timedelta | None
    cron: str | None
    """Either this or `every`."""
    time_zone: str
    """An IANA name, in which `cron` is read."""
    starts_at: datetime | None
    ends_at: datetime | None
    """No time after this one fires."""
    missed: Missed
    missed_limit: int
    overlap: Overlap
    jitter: timedelta
    """Each execution begins up to this much later than its time, always by the same part of it."""
    concurrency_key: str | None
    """Of its executions, and of all others with this key in their queue, one lives at a time, or as many as `Limits.per_key` says."""
    paused: bool
    problem: str | None
    """Why the engine paused it: what its row says cannot be read any more."""
    next_at: datetime | None
    """None: there is no further time."""
    last_at: datetime | None
    """The newest time that fired."""
    fired_count: int
    missed_count: int
    """Times at which nobody looked and which `missed` did not make up for."""
    skipped_count: int
    """Times that were let go because an earlier execution lived."""
    changed_at: datetime
    changed_by: str

    from_row: ClassVar[Callable[[Row], "Schedule"]]

    @property
    def rhythm(self) -> Rhythm:
        """Raises: InvalidRequest, ConfigError when this process cannot read cron expressions."""
        return rhythm(every=self.every, expression=self.cron, time_zone=self.time_zone)

    def upcoming(self, count: int = 5) -> list[datetime]:
        """The next times, fewer when the schedule ends before. Raises: as `rhythm`."""
        return upcoming(self.rhythm, self.next_at, ends_at=self.ends_at, count=count)


Schedule.from_row = reader(Schedule, input=decode, labels=json.loads)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one look does with a schedule."""

    run: list[datetime]
    next_at: datetime | None
    missed: int = 0
    skipped: int = 0


class Schedules:
    """Written, looked at and steered by name."""

    def __init__(self, database: Database, *, payload_limit: int = LIMIT) -> None:
        self._database, self._limit = database, payload_limit

    async def put(
        self,
        name: str,
        workflow: str,
        input: object,  # noqa: A002 (the field's name everywhere)
        *,
        actor: str,
        every: timedelta | None = None,
        cron: str | None = None,
        time_zone: str = "UTC",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        missed: Missed = "once",
        missed_limit: int = 100,
        overlap: Overlap = "skip",
        jitter: timedelta = timedelta(0),
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        concurrency_key: str | None = None,
    ) -> Schedule:
        """Enqueue `workflow` at each time of the rhythm: `every` so often, the first time at `starts_at` or one interval from now,
        or as `cron` says on the clocks of `time_zone`, between `starts_at` and `ends_at`.

        Idempotent by `name`: the same rhythm again keeps its next time, another one starts anew; a paused one stays paused.
        With a `concurrency_key` what it enqueues runs one at a time, whatever `overlap` says, and beside nobody else who has the key.
        Raises: InvalidRequest, PayloadUnfit, PayloadTooLarge. ConfigError for a cron expression without the extra `cron`.
        """
        names = {"schedule": name, "workflow": workflow, "queue": queue, "actor": actor, "concurrency key": concurrency_key}
        for what, given in names.items():
            if given is not None:
                admit_name(given, what)
        for what, time in {"starts_at": starts_at, "ends_at": ends_at}.items():
            _check_zone(what, time)
        _check_policies(missed=missed, missed_limit=missed_limit, overlap=overlap, jitter=jitter)
        found = rhythm(every=every, expression=cron, time_zone=time_zone)
        text, tags = admit(input, limit=self._limit), admit(dict(labels or {}), what="labels", limit=self._limit)
        async with self._database.transaction() as session:
            now = (await session.one("ping"))["at"]
            first = _within(found.first(now, starts_at=starts_at), ends_at)
            await session.none(
                "put_schedule",
                *(name, workflow, version, queue, priority, text, tags, every, cron, time_zone, starts_at, ends_at),
                *(missed, missed_limit, overlap, jitter, first, actor, concurrency_key),
            )
        return await self.get(name)

    async def get(self, name: str) -> Schedule:
        """Raises: NotFound."""
        return Schedule.from_row(_found(await self._database.maybe("find_schedule", name), name))

    async def preview(
        self,
        *,
        every: timedelta | None = None,
        cron: str | None = None,
        time_zone: str = "UTC",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        count: int = 5,
    ) -> list[datetime]:
        """The times of a schedule that would be made now; of one that is there, see `Schedule.upcoming`. Raises: as `put`."""
        _check_zone("starts_at", starts_at)
        _check_zone("ends_at", ends_at)
        found = rhythm(every=every, expression=cron, time_zone=time_zone)
        first = found.first((await self._database.one("ping"))["at"], starts_at=starts_at)
        return upcoming(found, _within(first, ends_at), ends_at=ends_at, count=count)

    async def all(self) -> list[Schedule]:
        """By name."""
        return [Schedule.from_row(row) for row in await self._database.many("schedules")]

    async def drop(self, name: str) -> None:
        """Nothing more fires; what it has enqueued goes on. Raises: NotFound."""
        _found(await self._database.maybe("drop_schedule", name), name)

    async def pause(self, name: str, *, actor: str) -> None:
        """Nothing fires until `resume`. Raises: NotFound."""
        admit_name(actor, "actor")
        _found(await self._database.maybe("pause_schedule", name, actor, None), name)

    async def resume(self, name: str, *, actor: str) -> Schedule:
        """Go on at the next time from now: what fell into the pause was not wished for and is not made up for.

        Raises: NotFound. InvalidRequest when what made the engine pause it still stands.
        """
        admit_name(actor, "actor")
        async with self._database.transaction() as session:
            row = _found(await session.maybe("lock_schedule", name), name)
            schedule, next_at = Schedule.from_row(row), row["next_at"]
            if schedule.paused and next_at is not None:
                next_at = _within(schedule.rhythm.after(next_at, now=row["at"]), schedule.ends_at)
            await session.none("resume_schedule", name, next_at, actor)
        return await self.get(name)

    async def run_now(self, name: str, *, actor: str) -> UUID:
        """Enqueue its workflow once, now, whatever its rhythm, pause and overlap say; returns the execution's id. Raises: NotFound."""
        admit_name(actor, "actor")
        async with self._database.transaction() as session:
            row = _found(await session.maybe("lock_schedule", name), name)
            made = await _enqueue(session, row, key=None, run_at=None, actor=actor, reason=f"schedule {name}, run by hand")
            await session.none("hint", [row["queue"]])
        return made


async def enqueue_due(database: Database) -> int:
    """Enqueue what is due, each time once, whoever else looks; returns how many executions.

    Raises: DatabaseUnavailable.
    """
    async with database.transaction() as session:
        rows = await session.many("due_schedules", BATCH, CRON)
        if not rows:
            return 0
        busy = {row["name"] for row in await session.many("busy_schedules", [row["name"] for row in rows])}
        fired = [await _fire(session, row, lives=row["name"] in busy) for row in rows]
        await session.none("hint", list({row["queue"] for row in rows}))
    return sum(fired)


async def _fire(session: Session, row: Row, *, lives: bool) -> int:
    try:
        schedule = Schedule.from_row(row)
        found = plan(schedule, row["at"], lives=lives)
    except (InvalidRequest, ConfigError, ValueError, RecursionError) as error:
        # Written by hand, or a zone that is gone: it must not keep the others from running, nor be looked at for ever.
        await session.maybe("pause_schedule", row["name"], ACTOR, str(error))
        return 0
    for time in found.run:
        key, reason = f"schedule:{schedule.name}:{time:%Y-%m-%dT%H:%M:%S.%fZ}", f"due at {time:%Y-%m-%d %H:%M:%S} UTC"
        await _enqueue(session, row, key=key, run_at=time + _delay(schedule, time), actor=ACTOR, reason=reason)
    last = found.run[-1] if found.run else None
    await session.none("advance_schedule", schedule.name, found.next_at, last, len(found.run), found.missed, found.skipped)
    return len(found.run)


async def _enqueue(session: Session, row: Row, *, key: str | None, run_at: datetime | None, actor: str, reason: str) -> UUID:
    id_, text, labels = uuid7(), row["input"], json.dumps({**json.loads(row["labels"]), "schedule": row["name"]})
    what = row["workflow"], row["version"], row["queue"], row["priority"], text, key, digest(text) if key else None, labels
    rest = run_at, None, None, actor, reason, None, row["concurrency_key"], False
    made: UUID = (await session.one("enqueue_keyed", id_, *what, *rest))["id"]
    return made


# Decisions, pure ---------------------------------------------------------------------------------------------------------------


def rhythm(*, every: timedelta | None, expression: str | None, time_zone: str) -> Rhythm:
    """Raises: InvalidRequest, ConfigError."""
    if every is not None and expression is None:
        return Every(every)
    if expression is not None and every is None:
        return cron(expression, time_zone)
    raise InvalidRequest("A schedule has either an interval (`every`) or a cron expression (`cron`).")


def upcoming(found: Rhythm, time: datetime | None, *, ends_at: datetime | None, count: int) -> list[datetime]:
    """`time`, which is one of the rhythm's, and those after it."""
    times: list[datetime] = []
    while time is not None and len(times) < count:
        times.append(time)
        time = _within(found.due(time, time, keep=1).next, ends_at)
    return times


def plan(schedule: Schedule, now: datetime, *, lives: bool) -> Plan:
    """What to run of a schedule whose next time has come. `lives`: whether an earlier execution of it does."""
    time = _within(schedule.next_at, schedule.ends_at)
    if time is None or (lives and schedule.overlap == "queue"):
        return Plan([], time)
    until = min(now, schedule.ends_at) if schedule.ends_at else now
    due = schedule.rhythm.due(time, until, keep=schedule.missed_limit if schedule.missed == "all" else 1)
    following = _within(due.next, schedule.ends_at)
    late = due.complete and schedule.missed == "skip" and now - due.times[-1] > LATE
    missed = due.earlier + (len(due.times) if late else 0)
    run = [] if late else due.times
    if lives and schedule.overlap == "skip":
        return Plan([], following, missed, len(run))
    if schedule.overlap == "queue" and len(run) > 1:  # one after the other
        return Plan(run[:1], run[1], missed)
    return Plan(run, following, missed)


def _within(time: datetime | None, ends_at: datetime | None) -> datetime | None:
    return None if time is None or (ends_at is not None and time > ends_at) else time


def _delay(schedule: Schedule, time: datetime) -> timedelta:
    """The same for the same time, whoever computes it, and spread evenly over many schedules."""
    noise = hashlib.sha256(f"{schedule.name}|{time.timestamp()}".encode()).digest()
    return schedule.jitter * (int.from_bytes(noise[:6], "big") / (1 << 48))


def _found(row: Row | None, name: str) -> Row:
    if row is None:
        raise NotFound(f"There is no schedule {name!r}.")
    return row


def _check_zone(what: str, time: datetime | None) -> None:
    if time is not None and time.tzinfo is None:
        raise InvalidRequest(f"The time {what} {time:%Y-%m-%dT%H:%M:%S} has no time zone: add one, for example +00:00.")


def _check_policies(*, missed: str, missed_limit: int, overlap: str, jitter: timedelta) -> None:
    if missed not in get_args(Missed) or overlap not in get_args(Overlap):
        choices = f"missed is one of {', '.join(get_args(Missed))}, overlap one of {', '.join(get_args(Overlap))}"
        raise InvalidRequest(f"There is no policy missed={missed!r}, overlap={overlap!r}: {choices}.")
    if missed == "all" and overlap == "skip":
        raise InvalidRequest("missed='all' with overlap='skip' would skip what it makes up for: use overlap='queue' or 'allow'.")
    if not 1 <= missed_limit <= 1000:
        raise InvalidRequest(f"missed_limit is {missed_limit}: 1 to 1,000 missed times can be made up for.")
    if jitter < timedelta(0):
        raise InvalidRequest(f"The jitter is {jitter.total_seconds():g} s: a time cannot be early.")
