"""Attempts: one try of a step, and what its failure means: another try after a pause, or an error that is remembered for good.

Knows nothing of what steps do (see `run`), nor of failures between steps (see `runner`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TypeVar

from suture.engine.claim import Claim
from suture.engine.outcome import again, explain, recalled, remembered
from suture.engine.records import Failure
from suture.engine.retry import Retry
from suture.errors import Suspended, SutureError, TemporaryError

log = logging.getLogger(__name__)

T = TypeVar("T")

UNLUCKY = Retry(attempts=20, initial=timedelta(seconds=0.02), maximum=timedelta(seconds=5), jitter=0.5)
"""For transactions that Postgres could not put into an order, or that waited for each other: one of them gets through each time."""

_STAND_BACK = Retry(initial=timedelta(seconds=2))


class Attempts:
    """The tries of one run's steps."""

    def __init__(self, claim: Claim, failures: dict[str, int], retry: Retry) -> None:
        self._claim, self.failures, self._retry = claim, failures, retry
        self.given_up: Exception | None = None
        """The error of the step whose tries are used up; it is never a reason to try the whole execution again."""
        self.given_up_step: str | None = None

    def number(self, step: str) -> int:
        """Which try of the step this is, from 1."""
        return self.failures.get(step, 0) + 1

    def failure(self, error: BaseException, *, step: str | None) -> Failure:
        """What ended the run, as a row may hold it: in the step that was given up, when it is that step's error, or else in `step`."""
        return explain(error, step=self.given_up_step if error is self.given_up else step)

    async def make(
        self, name: str, body: Callable[[], Awaitable[T]], *, retry: Retry | None, timeout: timedelta | None, started: datetime
    ) -> T:
        """The result of one try of `body`. Raises: see `fail`."""
        self._claim.hold()
        before = cancellations()
        scope = asyncio.timeout(timeout.total_seconds()) if timeout else None
        try:
            if scope is None:
                return await body()
            async with scope:
                return await body()
        except (Exception, asyncio.CancelledError) as error:
            # The border between somebody's step and the engine: any failure is a value here, but for being stopped ourselves.
            spent = timeout if scope is not None and scope.expired() else None
            await self.fail(name, error, before=before, spent=spent, retry=retry, started=started)
            raise

    async def fail(
        self, name: str, error: BaseException, *, before: int, spent: timedelta | None, retry: Retry | None, started: datetime
    ) -> None:
        """A try ended in `error`; `spent` is the time that it had, when that was over.

        Always raises: Suspended for another try, or the error when there is none; that is recorded, the workflow may catch it.
        """
        if cancellations() > before:
            raise asyncio.CancelledError from error
        raised = TemporaryError(f"The step {name} took longer than {spent}.") if spent else _unstopped(error)
        await self._try_later(name, raised, retry or self._retry)
        raise await self.remember(name, raised, started) from raised

    async def remember(self, name: str, error: Exception, started: datetime) -> Exception:
        """Record that the step failed for good; the error as this run and any later one raises it."""
        kept = remembered(error)
        await self._claim.checkpoint(name, kept, kind="failure", attempts=self.number(name), started_at=started)
        later = recalled(kept)
        return self.give_up(name, error if isinstance(error, SutureError) and type(later) is type(error) else later)

    def give_up(self, name: str, error: Exception) -> Exception:
        """Note that a step has failed for good, now or in an earlier run; returns its error."""
        self.given_up, self.given_up_step = error, name
        return error

    async def _try_later(self, name: str, error: Exception, retry: Retry) -> None:
        """Raises: Suspended when the step has another try; its execution is due again after the pause."""
        tries, unlucky = self.number(name), retry is UNLUCKY
        delay = retry.after(error, tries) if unlucky else again(error, retry, tries=tries, execution=self._claim.execution)
        if delay is not None:
            about = {"task": str(self._claim.execution.id), "step": name, "tries": tries}
            details = None if isinstance(error, SutureError) else error  # the row keeps its type only
            log.warning("a step failed and is tried again: %s", explain(error).message, extra=about, exc_info=details)
            attempt = self._claim.execution.attempt + (not unlucky)
            await self._claim.retry(explain(error, step=name), delay=delay, step_attempts=tries, attempt=attempt)
            raise Suspended

    async def stand_back(self, kind: str, key: str) -> None:
        """Come again when the living execution that holds the intent of this effect may have done it. Raises: Suspended."""
        failure = Failure("EffectUnderWay", f"Another task is about the {kind} {key}: its outcome is waited for.")
        await self._claim.retry(failure, delay=_STAND_BACK.delay(1), step_attempts=0, attempt=self._claim.execution.attempt)
        raise Suspended


def cancellations() -> int:
    """How often this task was asked to stop from outside. More than before, not more than none: a TaskGroup may leave one behind."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _unstopped(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else TemporaryError("Something that the step waited for was cancelled.")
