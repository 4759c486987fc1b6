"""The runner: claims executions and runs them, keeps their leases, sweeps, drains. Any number of runners share one database.

It reads top to bottom: a process life, its loops, one execution. Stops on request only; an outage of Postgres it outlives.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from suture.engine.claim import Claim
from suture.engine.database import Database, Session
from suture.engine.ids import uuid7
from suture.engine.lease import Lease, beat, show_presence, sweep, tidy
from suture.engine.outcome import again, explain
from suture.engine.records import Execution
from suture.engine.run import Run
from suture.engine.workflows import Workflow, Workflows
from suture.errors import DatabaseUnavailable, LeaseLost, Suspended, SutureError

T = TypeVar("T")

log = logging.getLogger(__name__)

_TIDY = 60.0  # seconds between two tidy passes of one runner; they are cheap, and every runner makes them


class Runner:
    """Claims from `queues` what `workflows` knows, up to `concurrency` executions at a time."""

    def __init__(
        self,
        database: Database,
        workflows: Workflows,
        *,
        name: str,
        version: str = "",
        queues: tuple[str, ...] = ("default",),
        concurrency: int = 16,
        lease: Lease | None = None,
        poll: timedelta = timedelta(seconds=1),
        drain: timedelta = timedelta(seconds=20),
        keep_ended: timedelta = timedelta(hours=1),
        resources: object = None,
    ) -> None:
        self.owner: UUID = uuid7()
        """Unique in this process life: a restarted pod is another owner, whatever its name."""
        self.name, self.resources = name, resources
        self.ready = False
        """Whether it is registered and claims."""
        self._database, self._workflows, self._version, self._queues = database, workflows, version, queues
        self._concurrency, self._lease, self._poll, self._drain = concurrency, lease or Lease(), poll, drain
        self._keep_ended = keep_ended
        self._running: dict[Claim, asyncio.Task[None]] = {}
        self._cancelled: set[Claim] = set()
        self._due, self._stop = asyncio.Event(), asyncio.Event()
        self._renewed = time.monotonic()

    @property
    def actor(self) -> str:
        return f"worker {self.name}"

    @property
    def running(self) -> int:
        return len(self._running)

    def stop(self) -> None:
        """Claim nothing more; finish or hand back what runs; then `run` returns."""
        self._stop.set()
        self._due.set()

    async def run(self) -> None:
        """Work until `stop`."""
        await self._outlive(self._register)
        async with asyncio.TaskGroup() as loops:
            others = [loops.create_task(loop()) for loop in (self._beat_loop, self._sweep_loop, self._listen_loop, self._tidy_loop)]
            await self._claim_loop()
            await self._drain_all()
            for other in others:
                other.cancel()
        await self._deregister()

    # A life ------------------------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        await self._database.none("register", self.owner, self.name, self._version, list(self._queues))
        self.ready = True

    async def _deregister(self) -> None:
        self.ready = False
        try:
            await self._database.none("deregister", self.owner)
        except DatabaseUnavailable:
            log.info("Postgres is away: the worker's row stays until it is forgotten")

    async def _drain_all(self) -> None:
        """Give what runs the time to finish, then hand the rest back at once: nobody waits for a lease."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._drain.total_seconds())
        left = dict(self._running)
        for task in left.values():
            task.cancel()
        if left:
            await asyncio.wait(left.values(), timeout=5)
            await self._hand_back(list(left))

    async def _hand_back(self, claims: list[Claim]) -> None:
        ids, epochs = [c.execution.id for c in claims], [c.epoch for c in claims]
        try:
            rows = await self._database.many("hand_back", self.owner, ids, epochs, self.actor, "handed back by a worker that stops")
            log.info("handed back", extra={"count": len(rows)})
        except DatabaseUnavailable as error:
            log.warning("could not hand back, the leases will expire: %s", error)

    # Loops -------------------------------------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        while not self._stop.is_set():
            self._due.clear()
            free = self._concurrency - len(self._running)
            claimed = await self._outlive(lambda free=free: self._claim(free)) if free else 0  # type: ignore[misc]
            if not claimed or claimed < free or not free:
                await self._nap(self._due, self._poll)

    async def _claim(self, free: int) -> int:
        known = list(self._workflows)
        rows = await self._database.many(
            "claim",
            *(self.owner, list(self._queues), [w.name for w in known], [w.version for w in known]),
            *(free, self._lease.duration, self.actor),
        )
        for row in rows:
            self._start(Claim(self._database, Execution.from_row(row), self.owner, self.actor))
        return len(rows)

    def _start(self, claim: Claim) -> None:
        task = asyncio.create_task(self._execute(claim), name=f"execution {claim.execution.id}")
        self._running[claim] = task
        task.add_done_callback(lambda _: self._forget(claim))

    def _forget(self, claim: Claim) -> None:
        self._running.pop(claim, None)
        self._cancelled.discard(claim)
        self._due.set()  # a slot is free

    async def _beat_loop(self) -> None:
        while True:
            await asyncio.sleep(self._lease.heartbeat.total_seconds())
            await self._outlive(self._beat)
            if time.monotonic() - self._renewed > self._lease.duration.total_seconds():
                self._give_up_all()

    async def _beat(self) -> None:
        started = time.monotonic()
        result = await beat(self._database, self.owner, list(self._running), lease=self._lease)
        self._renewed = started
        for claim in result.lost:
            if claim in self._running:
                log.warning("lost the lease", extra={"task": str(claim.execution.id)})
                self._running[claim].cancel()
        for claim in result.cancelled:
            self._cancel(claim)

    def _give_up_all(self) -> None:
        """Every lease has run out unseen: others may run these by now, so nothing of theirs is done twice at the same time."""
        for claim, task in self._running.items():
            log.warning("no heartbeat for a whole lease", extra={"task": str(claim.execution.id)})
            task.cancel()

    async def _sweep_loop(self) -> None:
        while True:
            await self._outlive(lambda: sweep(self._database, lease=self._lease))
            await asyncio.sleep(_jittered(min(self._poll, self._lease.grace)))

    async def _tidy_loop(self) -> None:
        while True:
            await self._outlive(lambda: tidy(self._database, keep_ended=self._keep_ended, keep_workers=timedelta(days=1)))
            await asyncio.sleep(_jittered(timedelta(seconds=_TIDY)))

    async def _listen_loop(self) -> None:
        """Hints and presence: both only make it fast. Without this connection, polling and leases do the same, later."""
        while True:
            try:
                await self._database.listen(["suture_due", "suture_cancel"], self._heard, greet=self._greet)
            except DatabaseUnavailable as error:
                log.debug("no hints for now: %s", error)
            await asyncio.sleep(_jittered(timedelta(milliseconds=200)))

    async def _greet(self, session: Session) -> None:
        await show_presence(session, self.owner)

    def _heard(self, channel: str, payload: str) -> None:
        if channel == "suture_due" and payload in self._queues:
            self._due.set()
        if channel == "suture_cancel":
            for claim in [c for c in self._running if str(c.execution.id) == payload]:
                self._cancel(claim)

    def _cancel(self, claim: Claim) -> None:
        if claim in self._running and claim not in self._cancelled:
            self._cancelled.add(claim)
            self._running[claim].cancel()

    async def _nap(self, wake: asyncio.Event, longest: timedelta) -> None:
        try:
            async with asyncio.timeout(_jittered(longest)):
                await wake.wait()
        except TimeoutError:
            pass

    async def _outlive(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """The result of `work`, or None while Postgres is away: the loop comes again, the process does not end."""
        try:
            return await work()
        except DatabaseUnavailable as error:
            log.warning("Postgres is away: %s", error)
            await asyncio.sleep(_jittered(timedelta(seconds=0.5)))
            return None

    # One execution -----------------------------------------------------------------------------------------------------------

    async def _execute(self, claim: Claim) -> None:
        """Run it to its end, its next wait or its next failure. Never raises: what happened is in the row, or in its heir's."""
        try:
            await self._drive(claim)
        except Suspended:
            log.debug("waits", extra={"task": str(claim.execution.id), "step": claim.step})
        except LeaseLost:
            log.warning("lost the lease, nothing more is written", extra={"task": str(claim.execution.id), "step": claim.step})
        except asyncio.CancelledError:
            if claim in self._cancelled:
                await self._settle(claim.finish_cancel())
            # else: it is handed back by the drain, or another worker holds it

    async def _drive(self, claim: Claim) -> None:
        if claim.execution.cancel_requested_by:
            await claim.finish_cancel()
            return
        workflow = self._workflows.get(claim.execution.workflow)
        done, failures = await claim.checkpoints(), await claim.failures()
        run = Run(claim, done=done, failures=failures, retry=workflow.retry, resources=self.resources)
        try:
            output = await workflow.function(run, workflow.read_input(claim.execution.input))
            result = workflow.output.dump_python(output, mode="json")
        except Exception as error:  # noqa: BLE001 (the border between somebody's workflow and the engine: any failure is a value here)
            await self._fail(claim, workflow, error, given_up=error is run.given_up)
        else:
            await claim.complete(result)

    async def _fail(self, claim: Claim, workflow: Workflow, error: Exception, *, given_up: bool) -> None:
        execution, failure = claim.execution, explain(error, step=claim.step)
        details = None if isinstance(error, SutureError) else error
        log.warning("failed: %s", failure.message, extra={"task": str(execution.id), "step": claim.step}, exc_info=details)
        most = execution.max_attempts
        delay = again(error, workflow.retry, attempt=execution.attempt, most=most, given_up=given_up)
        if delay is None:
            await claim.fail(failure)
        else:
            await claim.retry(replace(failure, step=None), delay=delay, step_attempts=0, attempt=execution.attempt + 1)

    async def _settle(self, write: Awaitable[None]) -> None:
        try:
            await write
        except LeaseLost:
            log.warning("lost the lease while it was cancelled")


def _jittered(pause: timedelta) -> float:
    return pause.total_seconds() * random.uniform(0.8, 1.2)  # noqa: S311 (no secret)
