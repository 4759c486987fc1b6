"""The journal: checkpoints and endings of many executions, each batch one statement and one commit.

What comes while a write is under way goes with the next one: group commit without a timer, so that a lone write waits for nobody. Each
caller goes on only when its own row is durable. Knows no workflow code and no lease (see `claim`, which tries again what failed).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from suture.engine.database import Database, Row
from suture.errors import Conflict, DatabaseUnavailable

Item = TypeVar("Item", bound=tuple[Any, ...])
"""What is written; its first field is the execution."""

BATCH = 200
"""Rows of one statement at most: a few milliseconds in which the rows are locked, and the next batch is made meanwhile."""

_LANES = 2  # writes of one kind under way at the same time: the next is being made while one waits for the disk

_CUT_OFF = "The process ends in the middle of a write: nobody knows whether it was made."


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
    """Gathers items and writes them in batches. `write` gets them in the order of their executions and answers in it; None: it is lost."""

    def __init__(self, write: Callable[[list[Item]], Awaitable[Sequence[Written | None]]]) -> None:
        self._write = write
        self._waiting: dict[Hashable, tuple[Item, Noted]] = {}
        self._lanes: set[asyncio.Task[Any] | None] = set()

    def put(self, key: Hashable, item: Item) -> Noted:
        """The answer for `item`, when it is committed; None when its claim is lost; DatabaseUnavailable when nobody knows."""
        if key in self._waiting:  # the same claim asks again for what has not left yet
            return self._waiting[key][1]
        future = Noted(loop=asyncio.get_running_loop())
        self._waiting[key] = (item, future)
        if len(self._lanes) < _LANES:
            lane = asyncio.create_task(self._drain(), name="journal")
            self._lanes.add(lane)
            lane.add_done_callback(self._end)
        return future

    async def _drain(self) -> None:
        try:
            while waiting := self._waiting:
                if len(waiting) <= BATCH:
                    self._waiting = {}
                    await self._settle(list(waiting.values()))
                else:
                    await self._settle([waiting.pop(key) for key in list(islice(waiting, BATCH))])
        finally:
            # Here and not when the task is seen as done, a turn later: what is put in between would find two lanes, and none that drains.
            self._lanes.discard(asyncio.current_task())

    def _end(self, lane: asyncio.Task[None]) -> None:
        self._lanes.discard(lane)
        if lane.cancelled():  # the event loop ends, perhaps before the lane began: whoever waits shall not wait for ever
            waiting, self._waiting = self._waiting, {}
            _fail(waiting.values(), DatabaseUnavailable(_CUT_OFF))

    async def _settle(self, batch: list[tuple[Item, Noted]]) -> None:
        batch.sort(key=_execution)  # rows are locked in this order, as everywhere
        try:
            answers = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 (the border between a batch and its callers: each hears what its own write met)
            if len(batch) == 1 or isinstance(error, DatabaseUnavailable):
                _fail(batch, error)
            else:  # one that Postgres refuses must not take its neighbours along
                for entry in batch:
                    await self._settle([entry])
        except asyncio.CancelledError:
            _fail(batch, DatabaseUnavailable(_CUT_OFF))
            raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _execution(entry: tuple[tuple[Any, ...], Noted]) -> UUID:
    execution: UUID = entry[0][0]
    return execution


def _fail(batch: Iterable[tuple[Any, Noted]], error: Exception) -> None:
    for _, future in batch:
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

    async def _write_steps(self, steps: list[Step]) -> Sequence[Written | None]:
        executions, epochs, names, kinds, outputs, attempts, started = zip(*steps, strict=True)
        columns = executions, _once(epochs), names, _once(kinds), outputs, _once(attempts), started
        try:
            return _answers(outputs, await self._database.one("checkpoint", self._owner, *columns))
        except Conflict:  # the answer to a commit of one of them was lost
            rows = await self._database.many("checkpoint_again", self._owner, *columns)
        found = {(row["execution_id"], row["step_id"]): row["earlier"] for row in rows}
        return [
            Written(found[step.execution, step.name] or step.output, (step.execution, None) in found)
            if (step.execution, step.name) in found
            else None
            for step in steps
        ]

    async def _write_endings(self, endings: list[Ending]) -> Sequence[Written | None]:
        executions, epochs, outputs = zip(*endings, strict=True)
        return _answers(outputs, await self._database.one("complete", self._owner, executions, _once(epochs), _once(outputs), self._actor))


def _once(column: Sequence[Any]) -> Sequence[Any]:
    """A column in which all are the same is sent as one: the driver takes longer for each element than Postgres."""
    return column[:1] if column.count(column[0]) == len(column) else column


def _answers(outputs: Sequence[str], row: Row) -> Sequence[Written | None]:
    """An answer for each of `outputs`. Nearly always all are held and nobody wishes to cancel: then the row says no more than that."""
    held, cancelled = row["held"], row["cancelled"]
    if held is None and cancelled is None:
        return [Written(output, cancelled=False) for output in outputs]
    return [
        Written(output, place in (cancelled or ())) if held is None or place in held else None
        for place, output in enumerate(outputs, start=1)
    ]
