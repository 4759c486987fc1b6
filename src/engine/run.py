"""What a workflow may do: named steps, outside effects, sleeps and waits, each remembered so that it never happens again.

A finished step is found by its name, not by its position: code may gain steps while executions wait. A name that is used twice in
one run is an error. Decides nothing about retries of the whole execution (see `outcome`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, get_type_hints
from uuid import UUID

from pydantic import TypeAdapter

from suture.engine.claim import Claim
from suture.engine.outcome import explain
from suture.engine.records import Checkpoint, Execution
from suture.engine.retry import Retry
from suture.errors import ReplayMismatch, Suspended, TemporaryError

T = TypeVar("T")

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


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
        adapter = _returns(function)
        if (done := self._enter(name, "step")) is not None:
            return adapter.validate_python(done.output)  # type: ignore[no-any-return]
        started = datetime.now(UTC)
        result = await self._attempt(name, retry, timeout, lambda: function(*args))
        kept = await self._claim.checkpoint(
            name, adapter.dump_python(result, mode="json"), kind="step", attempts=self._attempts(name), started_at=started
        )
        return adapter.validate_python(kept)  # type: ignore[no-any-return]

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
        adapter: TypeAdapter[T] = TypeAdapter(returns)
        if (done := self._enter(name, "effect")) is not None:
            return adapter.validate_python(done.output)
        started, kind = datetime.now(UTC), kind or name
        known, result = await self._claim.intend(name, kind=kind, key=key)
        if not known:
            found = await self._attempt(name, retry, timeout, lambda: _find_or_act(find, act))
            result = adapter.dump_python(found, mode="json")
        kept = await self._claim.confirm(name, result, kind=kind, key=key, attempts=self._attempts(name), started_at=started)
        return adapter.validate_python(kept)

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
        adapter: TypeAdapter[T] = TypeAdapter(returns)
        done = self._enter(name, "wait")
        if done is None:
            started = datetime.now(UTC)
            outcome, payload = await self._claim.wait(name, event=event or name, timeout=timeout)
            value = {"outcome": outcome, "payload": payload}
            kept = await self._claim.checkpoint(name, value, kind="wait", attempts=1, started_at=started)
        else:
            kept = done.output
        return adapter.validate_python(kept["payload"]) if kept["outcome"] == "event" else None

    def _enter(self, name: str, kind: str) -> Checkpoint | None:
        if name in self._used:
            raise ReplayMismatch(f"The step name {name!r} is used twice in one run: give each step its own, e.g. {name}-2.")
        self._used.add(name)
        self._claim.step = name
        done = self._done.get(name)
        if done is not None and done.kind != kind:
            raise ReplayMismatch(f"{name!r} is recorded as a {done.kind} and the code now has a {kind}: give the new one another name.")
        return done

    def _attempts(self, name: str) -> int:
        return self._failures.get(name, 0) + 1

    async def _attempt(self, name: str, retry: Retry | None, timeout: timedelta | None, body: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(timeout.total_seconds() if timeout else None) as scope:
                return await body()
        except Exception as error:  # noqa: BLE001 (the border between somebody's step and the engine: any failure is a value here)
            raised = TemporaryError(f"The step {name} took longer than {timeout}.") if scope.expired() else error
        await self._try_later(name, raised, retry or self._retry)
        self.given_up = raised
        raise raised

    async def _try_later(self, name: str, error: Exception, retry: Retry) -> None:
        """Raises: Suspended when the step has another try; its execution is due again after the pause."""
        attempts = self._attempts(name)
        delay = retry.after(error, attempts)
        if delay is not None:
            attempt = self.execution.attempt + 1
            await self._claim.retry(explain(error, step=name), delay=delay, step_attempts=attempts, attempt=attempt)
            raise Suspended


async def _find_or_act(find: Callable[[], Awaitable[T | None]], act: Callable[[], Awaitable[T]]) -> T:
    found = await find()
    return found if found is not None else await act()


def _returns(function: Callable[..., Any]) -> TypeAdapter[Any]:
    target = getattr(function, "func", function)  # functools.partial
    try:
        return TypeAdapter(get_type_hints(target).get("return", Any))
    except (NameError, TypeError):  # no function with hints: a callable object, a lambda
        return _JSON
