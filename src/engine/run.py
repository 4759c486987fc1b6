"""What a workflow may do: named steps, transactions, outside effects, sleeps, waits and children, each remembered so that it never
happens again.

A finished step is found by its name, not by its position: code may gain steps while executions wait (see `replay` for what may not
change, and how that is found out). Decides nothing about retries of the whole execution (see `outcome`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, TypeVar
from uuid import UUID

from suture.engine.attempts import UNLUCKY, Attempts, cancellations
from suture.engine.claim import Claim
from suture.engine.family import Child, Family
from suture.engine.outcome import recalled
from suture.engine.payload import admit_name
from suture.engine.records import Checkpoint, Execution
from suture.engine.replay import ADDED, Replay
from suture.engine.results import adapter, checked, plain, received, restored, returned
from suture.engine.retry import Retry
from suture.engine.steps import Pauses, stand_aside
from suture.engine.transaction import Connection, Done, Isolation, opened
from suture.engine.workflows import Function, Workflows
from suture.errors import DatabaseUnavailable, InvalidRequest, PayloadTooLarge, PayloadUnfit

T = TypeVar("T")

_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNPAUSED = frozenset({"sleep", "wait", "patch"})
"""Kinds of steps that do nothing which a pause could be meant for."""


class Run:
    """One run of an execution, from its first step to its end, its next wait or its next failure."""

    def __init__(
        self,
        claim: Claim,
        *,
        done: dict[str, Checkpoint],
        failures: dict[str, int],
        retry: Retry,
        resources: Any = None,
        workflows: Workflows | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self._claim, self._pauses = claim, pauses or Pauses()
        self.resources = resources
        """What the runner was given for its workflows: clients, settings."""
        self.replay = Replay(claim.execution, done, failures, line=asyncio.current_task())
        """What earlier runs recorded."""
        self.attempts = Attempts(claim, failures, retry)
        """What failed so far."""
        self._workflows, self._latest = workflows, _LONG_AGO
        self._inside: dict[asyncio.Task[Any] | None, str] = {}

    @cached_property
    def _family(self) -> Family:
        return Family(self._claim, self.replay, self._workflows or Workflows())

    @property
    def id(self) -> UUID:
        """The execution's id, the same in every run."""
        return self._claim.execution.id

    @property
    def execution(self) -> Execution:
        """Its row, as it was claimed."""
        return self._claim.execution

    # Steps -------------------------------------------------------------------------------------------------------------------

    async def step(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> T:
        """The result of `function(*args)`; once it is committed, the function never runs again in this execution.

        The result is read back from its checkpoint in the function's return type, in the first run as in any later one.
        A failure is tried again by `retry`; the pause is durable and holds no worker. `timeout` ends one try.
        Raises: what the function raised last; a workflow that catches it catches the same class in every later run, and the function
        does not run again. ReplayMismatch when the name was used before.
        """
        declared, what = returned(function), f"the step {name}"
        if (done := await self._enter(name, "step")) is not None:
            return self.replay.read(declared, done.output, what)  # type: ignore[no-any-return]
        started = self._now()
        result = await self.attempts.make(name, lambda: function(*args), retry=retry, timeout=timeout, started=started)
        try:
            value, read = checked(declared, result, what=what)
            kept = await self._claim.checkpoint(name, value, kind="step", attempts=self.attempts.number(name), started_at=started)
        except (PayloadUnfit, PayloadTooLarge) as error:
            raise await self.attempts.remember(name, error, started) from None
        return read if kept is value else restored(declared, kept, what=what)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def transaction(
        self,
        name: str,
        returns: Any = Any,
        *,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        isolation: Isolation = "read committed",
    ) -> AsyncIterator[tuple[Connection, Done[Any]]]:
        """`async with run.transaction("bill", Receipt) as (connection, done)`: your SQL and the checkpoint commit together or not at all.

        `connection` runs SQL on the engine's database. `done` is true when an earlier run committed the step: leave the SQL out then.
        `done.set(value)` gives the step its result; after the block `done.value` holds it, in this run as in any later one.
        A failure rolls back and is tried again by `retry`; what Postgres could not serialize, or was away for, up to 20 times. When the
        lease is lost meanwhile, the commit fails. `timeout` ends one try.
        The block holds a connection of the worker's pool: keep it short, and begin no other step in it.
        """
        declared, what = adapter(returns), f"the transaction {name}"
        if (recorded := await self._enter(name, "transaction")) is not None:
            yield Connection(None, {}, step=name), Done(earlier=True, value=self.replay.read(declared, recorded.output, what))
            return
        done, started, before = Done[Any](earlier=False), self._now(), cancellations()
        scope = asyncio.timeout(timeout.total_seconds() if timeout else None)
        task = asyncio.current_task()
        try:
            async with opened(self._claim.database, isolation, step=name) as (session, connection):
                self._inside[task] = name
                async with scope:
                    yield connection, done
                connection.close()
                value = plain(declared, done.value, what=what)
                kept, earlier = await self._claim.checkpoint_in(
                    session, name, value, kind="transaction", attempts=self.attempts.number(name), started_at=started
                )
                if earlier:
                    raise _Recorded
        except (Exception, asyncio.CancelledError) as error:
            # As in `Attempts.make`; and of a commit whose answer was lost the row knows whether it was made.
            lost = isinstance(error, DatabaseUnavailable | _Recorded) and cancellations() == before
            found = await self._claim.recorded(name) if lost else None
            if found is None:
                spent = timeout if scope.expired() else None
                await self.attempts.fail(name, error, before=before, spent=spent, retry=UNLUCKY if lost else retry, started=started)
                raise
            kept = found.output
        finally:
            self._inside.pop(task, None)
        done.value = restored(declared, kept, what=what)

    async def effect(
        self,
        name: str,
        *,
        key: str,
        find: Callable[[], Awaitable[T | None]],
        act: Callable[[], Awaitable[T]],
        returns: type[T],
        kind: str | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
    ) -> T:
        """Something outside of Postgres happens exactly once for (`kind`, `key`), wherever a worker dies.

        The intent is committed; `find` looks for what an earlier try left; only then `act` runs, and it must give what it makes an
        identity by which `find` finds it again. `kind` is the step's name by default. Holds as long as `find` is truthful, but for a
        process that is stopped for longer than its lease just before the first byte of `act`: begin `act` with the call itself, and where
        the outside can refuse an identity that it has seen, let it.
        """
        declared, what, kind = adapter(returns), f"the effect {name}", kind or name
        if (done := await self._enter(name, "effect")) is not None:
            return self.replay.read(declared, done.output, what)  # type: ignore[no-any-return]
        started = self._now()
        while (intended := await self._claim.intend(name, kind=kind, key=admit_name(key, "key of the effect")))[0] == "paused":
            await stand_aside(self._claim, name, kind=kind)
        intent, result = intended
        if intent == "theirs":
            await self.attempts.stand_back(kind, key)
        if intent == "ours":
            found = await self.attempts.make(name, lambda: self._find_or_act(find, act), retry=retry, timeout=timeout, started=started)
            try:
                result = plain(declared, found, what=what)
            except PayloadUnfit as error:
                raise await self.attempts.remember(name, error, started) from None
        kept = await self._claim.confirm(name, result, kind=kind, key=key, attempts=self.attempts.number(name), started_at=started)
        return restored(declared, kept, what=what)  # type: ignore[no-any-return]

    async def sleep(self, name: str, duration: timedelta) -> None:
        """Go on after `duration` on the database's clock. Until then the execution is a row and nothing else."""
        if await self._enter(name, "sleep") is None:
            started = self._now()
            await self._claim.wait(name, event=None, timeout=duration)
            await self._claim.checkpoint(name, None, kind="sleep", attempts=1, started_at=started)

    async def wait(self, name: str, returns: type[T], *, event: str | None = None, timeout: timedelta | None = None) -> T | None:
        """The payload of the event `event` (by default `name`), or None after `timeout`.

        The event may come before, during or after the wait is written: none is lost, and the first of its name wins.
        """
        declared, event = adapter(returns), admit_name(event or name, "event")
        done = await self._enter(name, "wait")
        if done is None:
            started = self._now()
            outcome, payload = await self._claim.wait(name, event=event, timeout=timeout)
            value = {"outcome": outcome, "payload": payload}
            kept = await self._claim.checkpoint(name, value, kind="wait", attempts=1, started_at=started)
        else:
            kept = done.output
        return received(declared, kept["payload"], event=event) if kept["outcome"] == "event" else None

    # Children ----------------------------------------------------------------------------------------------------------------

    async def start(
        self,
        name: str,
        input: object,  # noqa: A002 (the field's name everywhere)
        *,
        workflow: str | Function | None = None,
        key: str | None = None,
        version: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        concurrency_key: str | None = None,
        run_timeout: timedelta | None = None,
        queue_timeout: timedelta | None = None,
        returns: Any = Any,
    ) -> Child:
        """Start the child execution of this step, exactly once; it begins on any worker while this workflow goes on.

        `workflow` is the step's name by default: a name, or the function itself, whose return type is then the result's. `key` is an
        operation key beside this parent's own. Queue and priority are the parent's by default, the version the newest known here. Of one
        `concurrency_key` in a queue one lives at a time, whoever started it; a parent that waits for one of its own key waits for ever.
        A parent that ends in error or is cancelled takes its living children along; one that completes does not.
        Raises: Conflict when another living execution has `key`. PayloadUnfit, PayloadTooLarge.
        """
        done = await self._enter(name, "child")
        order, declared = self._family.order(
            name, workflow or name, version=version, queue=queue, priority=priority, labels=labels, returns=returns
        )
        concurrency_key = None if concurrency_key is None else admit_name(concurrency_key, "concurrency key")
        limits = replace(order, key=key, concurrency_key=concurrency_key, run_timeout=run_timeout, queue_timeout=queue_timeout)
        return await self._family.start(limits, declared, input, done, self._now)

    async def join(self, *started: Child) -> list[Any]:
        """The results of children, in order. Raises: ChildFailed of the first that did not complete."""
        return [await child.result() for child in started]

    async def map(
        self,
        name: str,
        workflow: str | Function,
        inputs: Sequence[object],
        *,
        concurrency: int = 10,
        concurrency_keys: Sequence[str | None] | None = None,
        failures: Literal["raise", "return"] = "raise",
        version: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        labels: Mapping[str, str] | None = None,
        returns: Any = Any,
    ) -> list[Any]:
        """The results of one child for each of `inputs`, in their order; `concurrency` of them live at a time.

        The inputs are written once, a child is made when its turn has come, and this execution is a waiting row until the last one has
        ended: a map of 10,000 costs one wake-up. A failure stops it: living siblings are cancelled, and ChildFailed of the first in the
        order of inputs is raised. With `failures="return"` all run, and the place of a failed one holds its ChildFailed.
        `concurrency_keys` has one for each input, or None: children of one key run one at a time, and one that stands behind another
        counts as one of the `concurrency` that live. A map over the key that this execution holds itself, in its queue, waits for ever.
        Raises: InvalidRequest for more than 100,000 inputs. PayloadUnfit, PayloadTooLarge.
        """
        done, collects = await self._enter(name, "map"), failures == "return"
        order, declared = self._family.order(
            name, workflow, version=version, queue=queue, priority=priority, labels=labels, returns=returns
        )
        if done is not None:
            ended = await self._family.mapped(done, name)
        else:
            keys, now = concurrency_keys, self._now()
            ended = await self._family.map(order, inputs, concurrency, keys=keys, collects=collects, started_at=now)
        return self._family.read_all(ended, name, declared, collects=collects)

    async def patched(self, name: str) -> bool:
        """Whether this execution takes the branch that was added as `name`: those that come here anew do, those that were past it do not.

        Decided once and recorded. To retire it: when no living execution took the old branch, remove the old branch and this call; an
        execution that did take it would then end loudly as ReplayMismatch.
        """
        if (done := await self._enter(name, "patch")) is not None:
            return bool(done.output)
        await self.replay.let_others_come(self.replay.unmet())
        started = self._now()
        return bool(await self._claim.checkpoint(name, not self.replay.is_past(), kind="patch", attempts=1, started_at=started))

    def failures(self, step: str) -> int:
        """How often `step` has failed so far."""
        return self.attempts.failures.get(step, 0)

    # What they share --------------------------------------------------------------------------------------------------------

    async def _enter(self, name: str, kind: str) -> Checkpoint | None:
        """Begin a step: its record, or None when it is to be done. Raises: its error, when it failed for good in an earlier run."""
        if self._claim.cancel_requested:
            raise asyncio.CancelledError  # the step boundary at which a wish to cancel is met at the latest
        if self._inside and (outer := self._inside.get(asyncio.current_task())):
            raise InvalidRequest(f"The step {name!r} begins inside the transaction {outer}, whose connection waits: end its block first.")
        done = self.replay.meet(admit_name(name, "step"), kind)
        if kind != "patch":
            self._claim.step = name
        if self.replay.left and self.replay.in_line:
            if missing := self.replay.missing(name):
                await self.replay.expect(name, missing)
            if done is None and kind != "patch":
                await self._mark_added(name)
        if done is None:
            if kind not in _UNPAUSED and self._pauses.cover(self.execution.workflow, name):
                await stand_aside(self._claim, name)
        elif done.kind == "failure":
            raise self.attempts.give_up(name, recalled(done.output))
        return done

    async def _mark_added(self, name: str) -> None:
        """A new step in front of recorded ones: when it has to be tried again, it must not be taken for one that came after them."""
        if not self.replay.is_marked(name) and await self.replay.let_others_come(self.replay.unmet()):
            await self._claim.checkpoint(ADDED + name, None, kind="added", attempts=1, started_at=self._now())

    def _now(self) -> datetime:
        """Later than ever before in this run, whatever the clock does: the order in which steps began."""
        now = datetime.now(UTC)
        self._latest = now = now if now > self._latest else self._latest + _MICROSECOND
        return now

    async def _find_or_act(self, find: Callable[[], Awaitable[T | None]], act: Callable[[], Awaitable[T]]) -> T:
        if (found := await find()) is not None:
            return found
        self._claim.hold()  # what was not there may be there by now, when the answer took longer than the lease
        return await act()


class _Recorded(Exception):
    """A transaction that is not to be committed: one of an earlier try was, after all."""
