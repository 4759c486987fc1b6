"""The intake: new executions on their way into the table, those of many callers in one statement and one commit.

What comes while a statement is under way goes with the next one: group commit without a timer, so that a lone caller waits for nobody. A
caller hears when its own row is durable. Hints to the workers go along, or soon after. Knows no operation keys (see `engine`).
"""

import asyncio
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from suture.engine.database import Database, Session
from suture.engine.payload import decode
from suture.engine.records import Execution
from suture.errors import DatabaseUnavailable

BATCH = 200
"""Rows of one statement at most: whoever comes first shall not wait for hundreds."""

_TURN = 0.05  # seconds that a lane keeps its connection at most: a stream of enqueues must not keep others of a small pool waiting
_LANES = 2  # statements under way at the same time: the next is being made while one waits for the disk
_BETWEEN_HINTS = 0.005  # seconds: a stream of enqueues costs 200 hints a second at most, a lone one is told at once
_STREAM = 0.003  # seconds: if it goes on, its next statement takes the hint along
_QUEUES = 1000  # whose last hint is remembered


class New(NamedTuple):
    """An execution on its way, in the order of the statements' parameters."""

    id: UUID
    workflow: str
    version: int
    queue: str
    priority: int
    input: str
    labels: str
    run_at: datetime | None
    max_attempts: int | None
    deadline_at: datetime | None
    actor: str
    reason: str
    forked_from: UUID | None

    def born(self, at: datetime) -> Execution:
        """The execution as its row stands at its creation."""
        return Execution(
            **_FRESH,
            id=self.id,
            workflow=self.workflow,
            version=self.version,
            queue=self.queue,
            priority=self.priority,
            input=decode(self.input),
            labels={} if self.labels == "{}" else decode(self.labels),
            run_at=self.run_at.astimezone(UTC) if self.run_at else at,
            max_attempts=self.max_attempts,
            deadline_at=self.deadline_at and self.deadline_at.astimezone(UTC),
            reason=self.reason,
            forked_from=self.forked_from,
            created_at=at,
            updated_at=at,
        )


_FRESH: dict[str, Any] = {
    "status": "enqueued",
    "output": None,
    "error": None,
    "operation_key": None,
    "concurrency_key": None,
    "parked": False,
    "owner_id": None,
    "epoch": 0,
    "lease_expires": None,
    "attempt": 1,
    "crashes": 0,
    "step": None,
    "cancel_requested_by": None,
    "parent_id": None,
    "has_children": False,
    "started_at": None,
    "finished_at": None,
}

Entry = tuple[New, "asyncio.Future[datetime]"]
"""An execution, and where its caller waits for the moment of its creation."""


class Hints:
    """Wakes workers: a lone enqueue at once, a stream of them once in a while. A hint that is lost costs one poll."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._told: dict[str, float] = {}
        self._unheard: set[str] = set()
        self._telling: asyncio.Task[None] | None = None

    def along(self, queues: set[str]) -> list[str]:
        """Of `queues` those that are to be told of with the statement that the caller is about to make; of the rest it is told later."""
        now = time.monotonic()
        due = [queue for queue in queues if now - self._told.get(queue, 0.0) >= _BETWEEN_HINTS]
        if len(self._told) > _QUEUES:
            self._told.clear()
        self._told.update(dict.fromkeys(due, now))
        self._unheard.difference_update(due)
        return due

    def soon(self, queues: set[str]) -> None:
        """Tell of `queues`, but not more often than that: once for all that comes meanwhile."""
        self._unheard |= queues
        if self._unheard and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(), name="hint")

    async def _tell(self) -> None:
        while self._unheard:
            if queues := self.along(set(self._unheard)):
                with suppress(DatabaseUnavailable):  # the workers poll, too
                    await self._database.none("hint", queues)
            else:
                await asyncio.sleep(_BETWEEN_HINTS + _STREAM)


class Intake:
    """The lanes of one engine."""

    def __init__(self, database: Database) -> None:
        self._database, self.hints = database, Hints(database)
        self._waiting: deque[Entry] = deque()
        self._lanes: set[asyncio.Task[Any] | None] = set()
        self._busy = 0
        """Lanes with a statement under way; the others are about to look for the next one."""

    async def put(self, new: New) -> Execution:
        """Add it; returns when it is committed. Whoever is cancelled before takes no neighbour along.

        Raises: DatabaseUnavailable, when nobody knows whether it is there.
        """
        place = asyncio.get_running_loop().create_future()
        self._waiting.append((new, place))
        if self._busy == len(self._lanes) < _LANES:
            lane = asyncio.create_task(self._drain(), name="intake")
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)  # one that is cancelled before it began
        return new.born(await place)

    async def _drain(self) -> None:
        try:
            while self._waiting:
                await self._turn()
        finally:
            # Here and not when the task is seen as done, a turn later: what is put in between would find a lane, and none that drains.
            self._lanes.discard(asyncio.current_task())

    async def _turn(self) -> None:
        try:
            async with self._database.session() as session:
                end = time.monotonic() + _TURN
                while time.monotonic() < end and (batch := self._take()):
                    self._busy += 1
                    try:
                        await self._write(session, batch)
                    finally:
                        self._busy -= 1
                    # Whoever goes on with another one shall find this connection: a turn of the loop or two, and no timer.
                    await asyncio.sleep(0)
                    if not self._waiting:
                        await asyncio.sleep(0)
        except DatabaseUnavailable as error:
            _fail(self._take(), error)  # who came for this connection; those of a statement have heard of it

    def _take(self) -> list[Entry]:
        taken: list[Entry] = []
        while self._waiting and len(taken) < BATCH:
            entry = self._waiting.popleft()
            if not entry[1].done():  # nobody waits for it any more
                taken.append(entry)
        return taken

    async def _write(self, session: Session, batch: list[Entry]) -> None:
        queues = {new.queue for new, _ in batch}
        told = self.hints.along(queues)
        try:
            at = await _insert(session, [new for new, _ in batch], told)
        except DatabaseUnavailable as error:
            _fail(batch, error)
            raise
        except Exception as error:  # noqa: BLE001 (the border between a batch and its callers: each hears what its own row met)
            if len(batch) == 1:
                _fail(batch, error)
            for entry in batch if len(batch) > 1 else ():  # one that Postgres refuses must not take its neighbours along
                await self._write(session, [entry])
        except asyncio.CancelledError:
            for _, place in batch:
                place.cancel()
            raise
        else:
            for _, place in batch:
                if not place.done():
                    place.set_result(at)
            self.hints.soon(queues.difference(told))


async def _insert(session: Session, news: list[New], told: list[str]) -> datetime:
    if len(news) == 1:
        row = await session.one("enqueue_lone", *news[0], bool(told))
    else:
        row = await session.one("enqueue_all", *map(list, zip(*news, strict=True)), told)
    at: datetime = row["at"]
    return at


def _fail(batch: list[Entry], error: Exception) -> None:
    for _, place in batch:
        if not place.done():
            place.set_exception(error)
