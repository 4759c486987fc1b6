"""The journal: checkpoints and endings of many executions, each batch one statement and one commit.

What comes while a write is under way goes with the next one: group commit without a timer, so that a lone write waits for nobody. Each
caller goes on only when its own row is durable. Knows no workflow code and no lease (see `claim`, which tries again what failed).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

from suture.engine.database import Database, Row
from suture.errors import DatabaseUnavailable

Item = TypeVar("Item")

BATCH = 500
"""Rows of one statement at most: a few milliseconds in which the rows are locked."""

_LANES = 2  # writes of one kind under way at the same time: the next is being made while one waits for the disk


@dataclass(frozen=True, slots=True)
class Step:
    """A step's result on its way into `operation_outputs`."""

    execution: UUID
    epoch: int
    name: str
    kind: str
    output: str
    attempts: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Ending:
    """A completed execution on its way."""

    execution: UUID
    epoch: int
    output: str


class Batches(Generic[Item]):
    """Gathers items and writes them in batches. `write` gives a row for each key that it wrote."""

    def __init__(self, write: Callable[[list[Item]], Awaitable[Mapping[Hashable, Row]]]) -> None:
        self._write = write
        self._waiting: dict[Hashable, tuple[Item, asyncio.Future[Row | None]]] = {}
        self._lanes: set[asyncio.Task[None]] = set()

    def put(self, key: Hashable, item: Item) -> "asyncio.Future[Row | None]":
        """The row of `item`, when it is committed; None when its claim is lost; DatabaseUnavailable when nobody knows."""
        if key in self._waiting:  # the same claim asks again for what has not left yet
            return self._waiting[key][1]
        future: asyncio.Future[Row | None] = asyncio.get_running_loop().create_future()
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

    async def _settle(self, batch: "dict[Hashable, tuple[Item, asyncio.Future[Row | None]]]") -> None:
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


def _fail(future: "asyncio.Future[Row | None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # seen: whoever asked may have gone


class Journal:
    """The journal of one owner's claims."""

    def __init__(self, database: Database, owner: UUID, *, actor: str) -> None:
        self._database, self._owner, self._actor = database, owner, actor
        self._steps = Batches(self._write_steps)
        self._endings = Batches(self._write_endings)

    def checkpoint(self, step: Step) -> "asyncio.Future[Row | None]":
        return self._steps.put((step.execution, step.epoch, step.name), step)

    def complete(self, ending: Ending) -> "asyncio.Future[Row | None]":
        return self._endings.put((ending.execution, ending.epoch), ending)

    async def _write_steps(self, steps: list[Step]) -> Mapping[Hashable, Row]:
        columns = zip(*((s.execution, s.epoch, s.name, s.kind, s.output, s.attempts, s.started_at) for s in steps), strict=True)
        rows = await self._database.many("checkpoint", self._owner, *map(list, columns))
        written = {(row["execution_id"], row["step_id"]): row for row in rows}
        return {(s.execution, s.epoch, s.name): written[s.execution, s.name] for s in steps if (s.execution, s.name) in written}

    async def _write_endings(self, endings: list[Ending]) -> Mapping[Hashable, Row]:
        columns = zip(*((e.execution, e.epoch, e.output) for e in endings), strict=True)
        rows = await self._database.many("complete", self._owner, *map(list, columns), self._actor)
        written = {row["id"]: row for row in rows}
        return {(e.execution, e.epoch): written[e.execution] for e in endings if e.execution in written}
