"""The journal: checkpoints and endings of many executions, each batch one statement and one commit.

What comes while a write is under way goes with the next one: group commit without a timer, so that a lone write waits for nobody. Each
caller goes on only when its own row is durable. Knows no workflow code and no lease (see `claim`, which tries again what failed).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from suture.engine.database import Database
from suture.errors import Conflict, DatabaseUnavailable

Item = TypeVar("Item")

BATCH = 200
"""Rows of one statement at most: a few milliseconds in which the rows are locked, and the next batch is made meanwhile."""

_LANES = 2  # writes of one kind under way at the same time: the next is being made while one waits for the disk


class Step(NamedTuple):
    """A step's result on its way into `operation_outputs`."""

    execution: UUID
    epoch: int
    name: str
    kind: str
    output: str
    attempts: int
    started_at: datetime


class Ending(NamedTuple):
    """A completed execution on its way."""

    execution: UUID
    epoch: int
    output: str


_execution = itemgetter(0)
_STEP = itemgetter(0, 1)


class Written(NamedTuple):
    """What a write answers."""

    output: str
    """The output that counts: the first that was ever written."""
    cancelled: bool
    """Whether somebody wishes the execution cancelled."""


class Noted(asyncio.Future["Written | None"]):
    """A write on its way. Whoever waits for it and is cancelled hears of that when the write has arrived: what is done shall be known."""

    def cancel(self, msg: object = None) -> bool:
        return False


class Batches(Generic[Item]):
    """Gathers items and writes them in batches. `write` answers for each key that it wrote."""

    def __init__(self, write: Callable[[list[Item]], Awaitable[Mapping[Hashable, Written]]]) -> None:
        self._write = write
        self._waiting: dict[Hashable, tuple[Item, Noted]] = {}
        self._lanes: set[asyncio.Task[None]] = set()

    def put(self, key: Hashable, item: Item) -> Noted:
        """The answer for `item`, when it is committed; None when its claim is lost; DatabaseUnavailable when nobody knows."""
        if key in self._waiting:  # the same claim asks again for what has not left yet
            return self._waiting[key][1]
        future = Noted(loop=asyncio.get_running_loop())
        self._waiting[key] = (item, future)
        if len(self._lanes) < _LANES:
            lane = asyncio.create_task(self._drain(), name="journal")
            self._lanes.add(lane)
            lane.add_done_callback(self._lanes.discard)
        return future

    async def _drain(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[:BATCH]
            await self._settle({key: self._waiting.pop(key) for key in keys})

    async def _settle(self, batch: dict[Hashable, tuple[Item, Noted]]) -> None:
        try:
            rows = await self._write([item for item, _ in batch.values()])
        except Exception as error:  # noqa: BLE001 (the border between a batch and its callers: each hears what its own write met)
            if len(batch) == 1 or isinstance(error, DatabaseUnavailable):
                for _, future in batch.values():
                    _fail(future, error)
            else:  # one that Postgres refuses must not take its neighbours along
                for key, entry in batch.items():
                    await self._settle({key: entry})
        else:
            for key, (_, future) in batch.items():
                if not future.done():
                    future.set_result(rows.get(key))


def _fail(future: Noted, error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: whoever asked may have gone


class Journal:
    """The journal of one owner's claims."""

    def __init__(self, database: Database, owner: UUID, *, actor: str) -> None:
        self._database, self._owner, self._actor = database, owner, actor
        self._steps = Batches(self._write_steps)
        self._endings = Batches(self._write_endings)

    def checkpoint(self, step: Step) -> Noted:
        return self._steps.put((step.execution, step.epoch, step.name), step)

    def complete(self, ending: Ending) -> Noted:
        return self._endings.put((ending.execution, ending.epoch), ending)

    async def _write_steps(self, steps: list[Step]) -> Mapping[Hashable, Written]:
        steps.sort(key=_execution)  # rows are locked in this order, as everywhere
        columns = [list(column) for column in zip(*steps, strict=True)]
        try:
            rows = await self._database.many("checkpoint", self._owner, *columns)
            earlier: dict[tuple[UUID, str | None], str | None] = dict.fromkeys(map(_STEP, rows))
        except Conflict:  # the answer to a commit of one of them was lost
            rows = await self._database.many("checkpoint_again", self._owner, *columns)
            earlier = {_STEP(row): row["earlier"] for row in rows}
        return {
            (s.execution, s.epoch, s.name): Written(earlier[s.execution, s.name] or s.output, (s.execution, None) in earlier)
            for s in steps
            if (s.execution, s.name) in earlier
        }

    async def _write_endings(self, endings: list[Ending]) -> Mapping[Hashable, Written]:
        endings.sort(key=_execution)
        columns = zip(*endings, strict=True)
        written = {row["id"] for row in await self._database.many("complete", self._owner, *map(list, columns), self._actor)}
        return {(e.execution, e.epoch): Written(e.output, cancelled=False) for e in endings if e.execution in written}
