"""A claim: what the holder of an execution may write, and nobody else.

Each method is one statement, or one transaction, that names owner and epoch. No row comes back: another worker holds the execution,
and LeaseLost ends all work on it. Knows nothing of workflow code (see `run`), nor how a lease is kept alive (see `lease`).
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any, Literal, TypeVar
from uuid import UUID

from suture.engine.database import Database, Row, Session
from suture.engine.journal import Ending, Journal, Noted, Step, Written
from suture.engine.payload import LIMIT, decode, encode
from suture.engine.records import Checkpoint, Execution, Failure
from suture.errors import DatabaseUnavailable, LeaseLost, Suspended

log = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)  # seconds; the last repeats until the write is made or the runner gives the claim up
_LAST_WORD = 1.0  # seconds that a write under way still gets when its execution is cancelled

Intent = Literal["ours", "theirs", "done", "paused"]
"""Whose an effect is: ours to do, another living execution's, or done already; or nobody's, as nobody may begin it for now."""

BETWEEN = ""
"""The step id under which failures between steps are counted."""


@dataclass(slots=True, eq=False)
class Claim:
    database: Database
    execution: Execution
    owner: UUID
    actor: str
    """What the timeline calls the holder."""
    step: str | None = None
    """The step under way; the next heartbeat tells it to the database."""
    payload_limit: int = LIMIT
    cancel_requested: bool = False
    """Whether somebody wishes it cancelled, as far as is known here: no step begins any more."""
    stopped: bool = False
    """Whether its runner ended the run: whatever its steps raise then is no failure of theirs."""
    renewed: float = field(default_factory=time.monotonic)
    """When the lease was last renewed for sure, on this machine's monotonic clock."""
    is_parent: bool = False
    """Whether it has started children, or is one: somebody must be told how it ended."""
    shared: Journal | None = None
    """Where its checkpoints and its ending are written together with others'; without one it has a journal of its own."""
    epoch: int = field(init=False)
    _lasts: float = field(init=False)
    """Seconds from a renewal to the end of the lease."""
    journal: Journal = field(init=False)

    def __post_init__(self) -> None:
        self.epoch = self.execution.epoch
        expires = self.execution.lease_expires
        self._lasts = (expires - self.execution.updated_at).total_seconds() if expires else math.inf
        self.is_parent = self.execution.parent_id is not None or self.execution.has_children
        self.journal = self.shared or Journal(self.database, self.owner, actor=self.actor)

    def hold(self) -> None:
        """Before anything is done that no fence can take back: a process that was stopped for a while goes on as if nothing had been.

        Raises: LeaseLost when the lease may have run out unseen, and another worker may be about the same.
        """
        if time.monotonic() - self.renewed > self._lasts:
            raise LeaseLost

    @property
    def fence(self) -> tuple[UUID, UUID, int]:
        return self.execution.id, self.owner, self.epoch

    @property
    def may_have_begun(self) -> bool:
        """Whether there can be finished or failed steps: an earlier claim, or steps that came over from a dead letter."""
        return self.epoch > 1 or self.execution.forked_from is not None

    async def checkpoints(self) -> dict[str, Checkpoint]:
        """The finished steps, by name, in the order in which they finished."""
        rows = await self.persist(lambda: self.database.many("load_checkpoints", self.execution.id))
        return {row["step_id"]: Checkpoint.from_row(row) for row in rows}

    async def failures(self) -> dict[str, int]:
        """Failed tries so far of the steps that are not finished."""
        rows = await self.persist(lambda: self.database.many("load_failures", self.execution.id))
        return {row["step_id"]: row["attempts"] for row in rows}

    async def checkpoint(self, step: str, output: object, *, kind: str, attempts: int, started_at: datetime) -> Any:
        """Write the result of a step and return the one that counts: the first that was ever written.

        Raises: LeaseLost, PayloadTooLarge.
        """
        text = self.encode(output)
        note = Step(self.execution.id, self.epoch, step, kind, text, attempts, started_at)
        written = self.held(await self._note(lambda: self.journal.checkpoint(note)))
        self.cancel_requested = self.cancel_requested or written.cancelled
        return output if written.output == text else decode(written.output)

    async def checkpoint_in(
        self, session: Session, step: str, output: object, *, kind: str, attempts: int, started_at: datetime
    ) -> tuple[Any, bool]:
        """As `checkpoint`, inside of a transaction; with it, whether the step was recorded before: then nothing is to be committed."""
        one = [self.execution.id], [self.epoch], [step], [kind], [self.encode(output)], [attempts], [started_at]
        rows = await session.many("checkpoint_again", self.owner, *one)
        earlier = self.held(next((row for row in rows if row["step_id"] is not None), None))["earlier"]
        self.cancel_requested = self.cancel_requested or len(rows) > 1
        return (output, False) if earlier is None else (decode(earlier), True)

    async def recorded(self, step: str) -> Checkpoint | None:
        """The record of a step after a commit whose answer was lost. Raises: LeaseLost."""
        return await self.persist(lambda: self._recorded(step))

    async def complete(self, output: object) -> None:
        text = self.encode(output)
        ending = Ending(self.execution.id, self.epoch, text)
        self.held(await self._note(lambda: self.journal.complete(ending)))

    async def fail(self, failure: Failure) -> None:
        """End in error; the execution becomes a dead letter."""
        self.held(await self._write("fail", *self.fence, failure.to_json(), failure.reason, failure.step, self.actor))

    async def retry(self, failure: Failure, *, delay: timedelta, step_attempts: int, attempt: int) -> None:
        """Put it back into the queue, due after `delay`. `failure.step` has failed `step_attempts` times now; None counts nothing."""
        reason = f"{failure.reason}: try again in {delay.total_seconds():.3g} s"
        self.held(
            await self._write("retry", *self.fence, delay, reason, failure.step, failure.to_json(), step_attempts, attempt, self.actor)
        )

    async def finish_cancel(self) -> None:
        self.held(await self._write("finish_cancel", *self.fence))

    async def wait(self, step: str, *, event: str | None, timeout: timedelta | None) -> tuple[str, Any]:
        """The outcome of a wait: ("event", payload) or ("timeout", None).

        Raises: Suspended when there is none yet; the execution's row says that it waits, and this claim is over. LeaseLost.
        """
        return await self.persist(lambda: self._wait(step, event, timeout))

    async def intend(self, step: str, *, kind: str, key: str) -> tuple[Intent, Any]:
        """Note the intent of an outside effect: whose it is, and the result where the ledger knows it as done, whoever did it.

        Nothing is noted while the step or its kind is paused. Raises: LeaseLost.
        """
        row = self.held(await self._write("intend", *self.fence, step, kind, key))
        if row["state"] == "paused":
            return "paused", None
        if row["state"] == "confirmed":
            return "done", decode(row["result"])
        return ("ours" if row["execution_id"] == self.execution.id else "theirs"), None

    async def confirm(self, step: str, result: object, *, kind: str, key: str, attempts: int, started_at: datetime) -> Any:
        """Note that the effect is there, and the step's checkpoint with it; returns the result that counts."""
        text = self.encode(result)
        row = self.held(await self._write("confirm", *self.fence, step, kind, key, text, attempts, started_at))
        return decode(row["output"])

    async def _recorded(self, step: str) -> Checkpoint | None:
        async with self.database.transaction() as session:
            # The lock comes first: a commit that is still under way on another connection holds it.
            self.held(await session.maybe("lock_held", *self.fence))
            rows = await session.many("load_checkpoints", self.execution.id)
        return next((Checkpoint.from_row(row) for row in rows if row["step_id"] == step), None)

    async def _wait(self, step: str, event: str | None, timeout: timedelta | None) -> tuple[str, Any]:
        async with self.database.transaction() as session:
            # The row lock comes first, in a statement of its own: whoever emits takes the same lock, so an event is either
            # visible to the next statement, or its emitter finds the execution waiting. No wake-up is lost.
            self.held(await session.maybe("lock_held", *self.fence))
            wait = await session.one("open_wait", self.execution.id, step, event, timeout)
            found = await session.maybe("find_event", self.execution.id, event) if event else None
            outcome = _outcome(wait, found)
            if outcome:
                await session.none("settle_wait", self.execution.id, step, outcome)
                return outcome, decode(found["payload"]) if found and outcome == "event" else None
            reason = f"waits for {event}" if event else f"sleeps until {wait['wake_at']:%Y-%m-%d %H:%M:%S} UTC"
            self.held(await session.maybe("suspend", *self.fence, step, self.actor, reason))
        raise Suspended

    async def _note(self, put: Callable[[], Noted]) -> Written | None:
        """As `persist`, for what goes with others in one batch. The usual way is short: most of an engine's time is spent here."""
        try:
            return await put()
        except DatabaseUnavailable:
            return await self.persist(lambda: _awaited(put))

    async def _write(self, name: str, *args: object) -> Row | None:
        return await self.persist(lambda: self.database.maybe(name, *args))

    async def persist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, and when this task is cancelled meanwhile, let what is on its way arrive first: a step that is done shall be known."""
        under_way = asyncio.ensure_future(self._insist(write))
        try:
            return await asyncio.shield(under_way)
        finally:
            if not under_way.done():
                await asyncio.wait([under_way], timeout=_LAST_WORD)
                under_way.cancel()
            if not under_way.cancelled() and under_way.done():
                under_way.exception()  # seen here: the cancellation is what counts

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write as soon as Postgres is back: a step that is done must not be done again because of a short outage.

        Each of these writes may be repeated after an answer that was lost: the second finds the first one's row, or no row.
        """
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            try:
                return await write()
            except DatabaseUnavailable as error:
                log.warning("Postgres is away: %s", error, extra={"task": str(self.execution.id), "step": self.step})
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
        raise AssertionError("unreachable")

    def encode(self, value: object) -> str:
        """Raises: PayloadTooLarge."""
        return encode(value, limit=self.payload_limit)

    def held(self, row: T | None) -> T:
        """The row. Raises: LeaseLost when there is none."""
        if row is None:
            raise LeaseLost
        return row


async def _awaited(put: Callable[[], Noted]) -> Written | None:
    return await put()


def _outcome(wait: Row, event: Row | None) -> str | None:
    if wait["outcome"]:  # decided in an earlier run that was lost before its checkpoint
        return str(wait["outcome"])
    if event:  # whoever emits after wake_at is refused under the same lock: an event that is there came in time
        return "event"
    return "timeout" if wait["due"] else None
