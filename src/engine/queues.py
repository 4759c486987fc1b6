"""Queues: looked at, paused and limited while work goes on. A limit is a row; what it means for a claim is decided in the claim.

Knows nothing of how executions enter (see `engine`) nor of who runs them (see `runner`).
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Self

from suture.engine.database import Database, Row, Session
from suture.engine.payload import admit_name
from suture.errors import InvalidRequest

BATCH = 500
"""Keys that one transaction looks at: a few hundredths of a second."""

PAUSED = True

MOST = 1_000_000
"""The greatest number that a limit may have: it stands for no limit well enough."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many starts in each interval, as a token bucket: never more than `starts + burst` in any one interval."""

    starts: int
    per: timedelta
    burst: int | None = None
    """Starts that may be made at once after a quiet time; None: as many as `starts`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a queue may do at once; None is no limit."""

    concurrency: int | None = None
    """Executions that run at the same time in the whole fleet. One that sleeps or waits does not run."""
    per_key: int | None = None
    """Executions with one concurrency key, from the first claim to the end, waits included. None: one."""
    rate: Rate | None = None
    """First claims over time; what comes back from a wait, a retry or a lost worker takes no token."""

    @classmethod
    def from_row(cls, row: Row) -> Self:
        rate = None if row["rate_starts"] is None else Rate(row["rate_starts"], row["rate_per"], row["rate_burst"])
        return cls(row["concurrency"], row["per_key"], rate)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as it stands."""

    name: str
    paused: bool = False
    limits: Limits = field(default_factory=Limits)
    reason: str = ""
    """Why it was changed last."""
    changed_at: datetime | None = None
    """None: it has no row; nobody ever paused or limited it."""
    changed_by: str | None = None
    due: int = 0
    """Enqueued, and its time has come; the parked are not counted."""
    delayed: int = 0
    """Enqueued for later."""
    parked: int = 0
    """Enqueued behind others with the same concurrency key."""
    running: int = 0
    waiting: int = 0
    oldest_due: timedelta | None = None
    """How long the oldest of the due has been due."""

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(**{name: row[name] for name in cls.__slots__ if name != "limits"}, limits=Limits.from_row(row))


class Queues:
    """Every change holds for each claim that begins after it, in every process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def limit(self, name: str, limits: Limits, *, actor: str, reason: str = "") -> None:
        """Set all limits of `name`; a default of `Limits` takes that limit away. What runs beyond a lowered limit goes on.

        Exact from the moment it returns: no claim begins that the new limits forbid. Raises: InvalidRequest.
        """
        _check(limits)
        rate = limits.rate
        row = (limits.concurrency, limits.per_key, *((rate.starts, rate.per, rate.burst or rate.starts) if rate else (None, None, None)))
        async with self._closed() as session:
            before = (await session.one("room_of_key", _named(name, actor)))["room"]
            await session.none("limit_queue", name, *row, actor, reason)
            await session.none("hint", [name])
        if (limits.per_key or 1) > before:
            await self._unpark(name)

    async def pause(self, name: str, *, actor: str, reason: str = "") -> None:
        """Stop all claims from `name`; what runs goes on. No claim begins after it has returned."""
        async with self._closed() as session:
            await session.none("pause_queue", _named(name, actor), PAUSED, actor, reason)

    async def resume(self, name: str, *, actor: str, reason: str = "") -> None:
        """Let claims from `name` go on."""
        async with self._closed() as session:
            await session.none("pause_queue", _named(name, actor), not PAUSED, actor, reason)
            await session.none("hint", [name])

    async def get(self, name: str) -> Queue:
        """The queue called `name`; one that nobody has used or changed is empty and has no limits."""
        rows = await self._database.many("queues", name)
        return Queue.from_row(rows[0]) if rows else Queue(name)

    async def list(self) -> Sequence[Queue]:
        """By name: those that have executions now, and those that were paused or limited. Reads all living rows."""
        return [Queue.from_row(row) for row in await self._database.many("queues", None)]

    async def _unpark(self, name: str) -> None:
        """Let in whoever the new limits have room for. Claims go on meanwhile, and an end of a key does the same for it."""
        last = ""
        while last is not None:
            last = (await self._database.one("unpark_keys", name, last, BATCH))["last"]

    @asynccontextmanager
    async def _closed(self) -> AsyncIterator[Session]:
        """A transaction beside which no claim is under way."""
        async with self._database.transaction() as session:
            await session.none("close_queues")
            yield session


def _named(name: str, actor: str) -> str:
    admit_name(actor, "actor")
    return admit_name(name, "queue")


def _check(limits: Limits) -> None:
    rate = limits.rate
    counts = {"concurrency": limits.concurrency, "per_key": limits.per_key}
    counts |= {"starts of the rate": rate.starts, "burst of the rate": rate.burst} if rate else {}
    for what, count in counts.items():
        if count is not None and not 0 < count <= MOST:
            raise InvalidRequest(f"The {what} is {count}: use 1 to {MOST:,}, or pause the queue to stop it.")
    if rate and rate.per < timedelta(milliseconds=1):
        raise InvalidRequest(f"The rate's interval is {rate.per.total_seconds():g} s: use a millisecond at least.")
