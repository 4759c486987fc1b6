"""What a workflow may do: named steps, outside effects, sleeps and waits, each remembered so that it never happens again.

A finished step is found by its name, not by its position: code may gain steps while executions wait. A name that is used twice in
one run is an error. Decides nothing about retries of the whole execution (see `outcome`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from suture.engine.claim import Claim
from suture.engine.outcome import again, explain
from suture.engine.payload import admit_name
from suture.engine.records import Checkpoint, Execution, Failure
from suture.engine.results import adapter, plain, received, restored, returned
from suture.engine.retry import Retry
from suture.errors import ReplayMismatch, Suspended, SutureError, TemporaryError

log = logging.getLogger(__name__)

T = TypeVar("T")

_STAND_BACK = Retry(initial=timedelta(seconds=2))


class Run:
    """One run of an execution, from its first step to its end, its next wait or its next failure."""

    def __init__(self, claim: Claim, *, done: dict[str, Checkpoint], failures: dict[str, int], retry: Retry, resources: Any = None) -> None:
        self._claim, self._done, self._failures, self._retry = claim, done, failures, retry
        self.resources = resources
        """What the runner was given for its workflows: clients, settings."""
        self._used: set[str] = set()
        self.given_up: Exception | None = None
        """The error of the step whose tries are used up; it is never a reason to try the whole execution again."""

    @property
    def id(self) -> UUID:
        return self._claim.execution.id

    @property
    def execution(self) -> Execution:
        return self._claim.execution

    async def step(
        self, name: str, function: Callable[..., Awaitable[T]], *args: Any, retry: Retry | None = None, timeout: timedelta | None = None
    ) -> T:
        """The result of `function(*args)`; once it is committed, the function never runs again in this execution.

        The result is read back from its checkpoint in the function's return type, in the first run as in any later one.
        A failure is tried again by `retry`; the pause is durable and holds no worker. `timeout` ends one try.
        Raises: what the function raised last. ReplayMismatch when the name was used before.
        """
        declared, what = returned(function), f"the step {name}"
        if (done := self._enter(name, "step")) is not None:
            return restored(declared, done.output, what=what)  # type: ignore[no-any-return]
        started = datetime.now(UTC)
        result = await self._attempt(name, retry, timeout, lambda: function(*args))
        value = plain(declared, result, what=what)
        kept = await self._claim.checkpoint(name, value, kind="step", attempts=self._attempts(name), started_at=started)
        return restored(declared, kept, what=what)  # type: ignore[no-any-return]

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
        identity by which `find` finds it again. `kind` is the step's name by default. Holds as long as `find` is truthful.
        """
        declared, what, kind = adapter(returns), f"the effect {name}", kind or name
        if (done := self._enter(name, "effect")) is not None:
            return restored(declared, done.output, what=what)  # type: ignore[no-any-return]
        started = datetime.now(UTC)
        intent, result = await self._claim.intend(name, kind=kind, key=admit_name(key, "key of the effect"))
        if intent == "theirs":
            await self._stand_back(kind, key)
        if intent == "ours":
            found = await self._attempt(name, retry, timeout, lambda: _find_or_act(find, act))
            result = plain(declared, found, what=what)
        kept = await self._claim.confirm(name, result, kind=kind, key=key, attempts=self._attempts(name), started_at=started)
        return restored(declared, kept, what=what)  # type: ignore[no-any-return]

    async def sleep(self, name: str, duration: timedelta) -> None:
        """Go on after `duration` on the database's clock. Until then the execution is a row and nothing else."""
        if self._enter(name, "sleep") is None:
            started = datetime.now(UTC)
            await self._claim.wait(name, event=None, timeout=duration)
            await self._claim.checkpoint(name, None, kind="sleep", attempts=1, started_at=started)

    async def wait(self, name: str, returns: type[T], *, event: str | None = None, timeout: timedelta | None = None) -> T | None:
        """The payload of the event `event` (by default `name`), or None after `timeout`.

        The event may come before, during or after the wait is written: none is lost, and the first of its name wins.
        """
        declared, event = adapter(returns), admit_name(event or name, "event")
        done = self._enter(name, "wait")
        if done is None:
            started = datetime.now(UTC)
            outcome, payload = await self._claim.wait(name, event=event, timeout=timeout)
            value = {"outcome": outcome, "payload": payload}
            kept = await self._claim.checkpoint(name, value, kind="wait", attempts=1, started_at=started)
        else:
            kept = done.output
        return received(declared, kept["payload"], event=event) if kept["outcome"] == "event" else None

    def failures(self, step: str) -> int:
        """How often `step` has failed so far."""
        return self._failures.get(step, 0)

    def _enter(self, name: str, kind: str) -> Checkpoint | None:
        if self._claim.cancel_requested:
            raise asyncio.CancelledError  # the step boundary at which a wish to cancel is met at the latest
        if admit_name(name, "step") in self._used:
            raise ReplayMismatch(f"The step name {name!r} is used twice in one run: give each step its own, e.g. {name}-2.")
        self._used.add(name)
        self._claim.step = name
        done = self._done.get(name)
        if done is not None and done.kind != kind:
            raise ReplayMismatch(f"{name!r} is recorded as a {done.kind} and the code now has a {kind}: give the new one another name.")
        return done

    def _attempts(self, name: str) -> int:
        return self.failures(name) + 1

    async def _attempt(self, name: str, retry: Retry | None, timeout: timedelta | None, body: Callable[[], Awaitable[T]]) -> T:
        before = _cancellations()
        scope = asyncio.timeout(timeout.total_seconds()) if timeout else None
        try:
            if scope is None:
                return await body()
            async with scope:
                return await body()
        except (Exception, asyncio.CancelledError) as error:
            # The border between somebody's step and the engine: any failure is a value here, but for being stopped ourselves.
            if _cancellations() > before:
                raise asyncio.CancelledError from error
            raised = TemporaryError(f"The step {name} took longer than {timeout}.") if scope and scope.expired() else _unstopped(error)
        await self._try_later(name, raised, retry or self._retry)
        self.given_up = raised
        raise raised

    async def _try_later(self, name: str, error: Exception, retry: Retry) -> None:
        """Raises: Suspended when the step has another try; its execution is due again after the pause."""
        tries = self._attempts(name)
        delay = again(error, retry, tries=tries, execution=self.execution)
        if delay is not None:
            about = {"task": str(self.id), "step": name, "tries": tries}
            details = None if isinstance(error, SutureError) else error  # the row keeps its type only
            log.warning("a step failed and is tried again: %s", explain(error).message, extra=about, exc_info=details)
            attempt = self.execution.attempt + 1
            await self._claim.retry(explain(error, step=name), delay=delay, step_attempts=tries, attempt=attempt)
            raise Suspended

    async def _stand_back(self, kind: str, key: str) -> None:
        """Come again when the living execution that holds the intent of this effect may have done it. Raises: Suspended."""
        failure = Failure("EffectUnderWay", f"Another task is about the {kind} {key}: its outcome is waited for.")
        await self._claim.retry(failure, delay=_STAND_BACK.delay(1), step_attempts=0, attempt=self.execution.attempt)
        raise Suspended


def _cancellations() -> int:
    """How often this task was asked to stop from outside. More than before, not more than none: a TaskGroup may leave one behind."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _unstopped(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else TemporaryError("Something that the step waited for was cancelled.")


async def _find_or_act(find: Callable[[], Awaitable[T | None]], act: Callable[[], Awaitable[T]]) -> T:
    found = await find()
    return found if found is not None else await act()
