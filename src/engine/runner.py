"""The runner: claims executions and runs them, keeps their leases, sweeps, drains. Any number of runners share one database.

It reads top to bottom: a process life, its loops, one execution. Stops on request only; an outage of Postgres it outlives.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from typing import NamedTuple, TypeVar
from uuid import UUID

from suture.engine.children import tend
from suture.engine.claim import Claim
from suture.engine.database import Database, Row, Session
from suture.engine.driver import about, drive
from suture.engine.ids import uuid7
from suture.engine.journal import Journal
from suture.engine.lease import Beat, Lease, hide_presence, show_presence, tidy
from suture.engine.pulse import Pulse
from suture.engine.records import Execution, Failure
from suture.engine.retention import Retention
from suture.engine.steps import CHANNEL as STEPS
from suture.engine.steps import Pauses
from suture.engine.watch import CHANNEL, Watch
from suture.engine.workflows import Workflows
from suture.errors import DatabaseUnavailable, LeaseLost, NoSession, Signal, Suspended

T = TypeVar("T")

log = logging.getLogger(__name__)

_LAST_WORDS = 2.0  # seconds that cancelled steps get to end before their work is handed back
_RELISTEN = timedelta(milliseconds=200)
_WITHOUT_HINTS = timedelta(minutes=1)  # until a pooler is asked again: an address may be mended while we run
_TIDY = 60.0  # seconds between two tidy passes of a fleet; they are cheap, and any runner makes them
_UNTIDY = timedelta(seconds=1)
_WARM = 3  # connections: those of a claim, of a checkpoint or an end, and of a look that falls together with both
_GREET = 30  # heartbeats between two looks at a listening connection that gives no reason to


class Claimed(NamedTuple):
    """What one claim found."""

    rows: Sequence[Row]
    at: float
    """When it was asked for, on this machine's monotonic clock: their leases are no younger."""


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
        retention: timedelta = timedelta(days=90),
        resources: object = None,
    ) -> None:
        self.owner: UUID = uuid7()
        """Unique in this process life: a restarted pod is another owner, whatever its name."""
        self.name, self.resources = name, resources
        self.ready = False
        """Whether it is registered and claims: not while Postgres is away, or takes no writes."""
        self._database, self._workflows, self._version, self._queues = database, workflows, version, queues
        self._concurrency, self._lease, self._poll, self._drain = concurrency, lease or Lease(), poll, drain
        self._keep_ended, self._retention = keep_ended, Retention(database, keep=retention)
        self._running: dict[Claim, asyncio.Task[None]] = {}
        self._settling: set[Claim] = set()
        self._due, self._stop, self._greeted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._journal = Journal(database, self.owner, actor=self.actor)
        self._watch = Watch(database, lease=self._lease, poll=poll)
        self._shown = 0.0
        """When the presence was last shown on the connection that listens."""
        self._kin = asyncio.Event()
        self._pauses = Pauses(database, poll=poll)
        self._unwritten: set[UUID] = set()
        self._strays = False
        """Whether the database may hold claims of ours that are not running here."""
        # list() of a dict is one step of the interpreter: the pulse's thread may take it at any time.
        self._pulse = Pulse(database, self.owner, lease=self._lease, claims=lambda: list(self._running), heard=self._heed)

    @property
    def actor(self) -> str:
        """What the timeline calls it."""
        return f"worker {self.name}"

    @property
    def running(self) -> int:
        """How many executions run here now."""
        return len(self._running)

    def stop(self) -> None:
        """Claim nothing more; finish or hand back what runs; then `run` returns."""
        self._stop.set()
        self._due.set()

    async def run(self) -> None:
        """Work until `stop`. However it ends, cancelled too, what still runs is handed back."""
        while not (self.ready or self._stop.is_set()):
            await self._outlive(self._register)
        try:
            async with self._pulse.beating(), asyncio.TaskGroup() as loops:
                kinds = self._sweep_loop, self._listen_loop, self._tidy_loop, self._tend_loop, self._pauses.follow
                others = [loops.create_task(loop()) for loop in kinds]
                await self._claim_loop()
                await self._finish_running()
                for other in others:
                    other.cancel()
        finally:
            await asyncio.shield(self._leave())

    # A life ------------------------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        await self._database.none("register", self.owner, self.name, self._version, list(self._queues))
        await self._pauses.read()
        self.ready = True

    async def _warm(self) -> None:
        """Let the connections that a claim may find itself on be opened, and plan it there: that takes as long as several claims."""
        nothing = self._terms([], 0, holds=True)
        await asyncio.gather(*(self._database.many("claim", *nothing) for _ in range(_WARM)))

    async def _finish_running(self) -> None:
        if self._running:
            await asyncio.wait(self._running.values(), timeout=self._drain.total_seconds())

    async def _leave(self) -> None:
        """Hand back at once what has not finished: nobody waits for a lease."""
        self.ready = False
        left = dict(self._running)
        for claim in left:
            self._end(claim)
        if left:
            await asyncio.wait(left.values(), timeout=_LAST_WORDS)
        try:
            await self._hand_back([(claim.execution.id, claim.epoch) for claim in left])
            if any(claim.is_parent for claim in left) or self._kin.is_set():
                await tend(self._database)
            await self._database.none("deregister", self.owner)
        except DatabaseUnavailable as error:
            log.warning("Postgres is away: what runs here is taken over when its lease runs out: %s", error)

    async def _hand_back(self, held: Sequence[tuple[UUID, int]]) -> None:
        if held:
            ids, epochs = zip(*held, strict=True)
            rows = await self._database.many("hand_back", self.owner, ids, epochs, self.actor, "handed back")
            log.info("handed back", extra={"count": len(rows)})

    # Loops -------------------------------------------------------------------------------------------------------------------

    async def _claim_loop(self) -> None:
        # Presence first: work of a process that dies in its first moments shall be missed as soon as any other.
        await asyncio.gather(self._nap(self._greeted, self._poll), self._outlive(self._warm))
        while not self._stop.is_set():
            self._due.clear()
            if self._strays:
                await self._outlive(self._hand_back_strays)
                continue
            free = self._concurrency - len(self._running)
            claimed = await self._outlive(lambda free=free: self._claim(free)) if free else 0  # type: ignore[misc]
            if free:
                self.ready = claimed is not None  # while nothing can be written here, whoever asks is told
            if not claimed or claimed < free:
                await self._nap(self._due, timedelta(seconds=self._watch.nap(worked=bool(claimed))))

    async def _claim(self, free: int) -> int:
        """Claim as many as there are slots, and how many it were. While those of one claim begin here, Postgres looks for the next."""
        count, found = 0, await self._ask(free)
        while not self._stop.is_set() and len(found.rows) == free and (free := self._concurrency - len(self._running) - free) > 0:
            count += len(found.rows)
            found, _ = await asyncio.gather(self._ask(free, beside=found.rows), self._begin(found))
        await self._begin(found)
        self._strays = False
        return count + len(found.rows)

    async def _ask(self, free: int, *, beside: Sequence[Row] = ()) -> Claimed:
        """Claim up to `free`; they are ours from now on, as are those of `beside`, which have not begun."""
        started = time.monotonic()
        self._strays = True  # until the answer is here: it may be lost on its way
        rows = await self._database.many("claim", *self._terms(self._queues, free, holds=self._holds_suspect(beside)))
        self._watch.timed(time.monotonic() - started)
        return Claimed(rows, started)

    def _terms(self, queues: Sequence[str], free: int, *, holds: bool) -> tuple[object, ...]:
        """What a claim is given."""
        known = list(self._workflows)
        return (
            *(self.owner, list(queues), [w.name for w in known], [w.version for w in known]),
            *(free, self._lease.duration, self.actor, self._lease.suspect, holds),
        )

    async def _begin(self, claimed: Claimed) -> None:
        await asyncio.sleep(0)  # the next claim is on its way before the work of this one takes the loop
        if self._stop.is_set():
            await self._hand_back([(row["id"], row["epoch"]) for row in claimed.rows])
            return
        for row in claimed.rows:
            try:
                self._start(row, claimed.at)
            except (ValueError, RecursionError) as error:
                await self._refuse(row, error)
        if claimed.rows:
            self._watch.hurry()

    def _holds_suspect(self, beside: Sequence[Row]) -> bool:
        crashes = chain((claim.execution.crashes for claim in self._running), (row["crashes"] for row in beside))
        return max(crashes, default=0) >= self._lease.suspect

    def _start(self, row: Row, renewed: float) -> None:
        claim = Claim(self._database, Execution.from_claim(row), self.owner, self.actor, renewed=renewed, shared=self._journal)
        task = asyncio.create_task(self._execute(claim))
        self._running[claim] = task
        task.add_done_callback(lambda _: self._forget(claim))

    async def _refuse(self, row: Row, error: Exception) -> None:
        """A row that was written by hand and cannot be read must not keep the others of its batch from running."""
        failure = Failure("PayloadUnfit", f"The row cannot be read ({type(error).__name__}): its input was not written by this engine.")
        await self._database.maybe("fail", row["id"], self.owner, row["epoch"], failure.to_json(), failure.reason, None, self.actor)

    def _forget(self, claim: Claim) -> None:
        self._running.pop(claim, None)
        self._settling.discard(claim)
        self._due.set()  # a slot is free
        if claim.is_parent:
            self._kin.set()

    async def _hand_back_strays(self) -> None:
        """Give back what the database says is ours and nobody here runs: such a claim would idle until its lease runs out."""
        known = self._unwritten.union(claim.execution.id for claim in self._running)
        rows = await self._database.many("strays", self.owner, list(known))
        await self._hand_back([(row["id"], row["epoch"]) for row in rows])
        self._strays = False

    def _heed(self, found: Beat) -> None:
        """Act on what a heartbeat found out."""
        self._strays = self._strays or found.strays or bool(found.overdue)
        for claim in found.lost:
            self._give_up(claim, "lost the lease")
        for claim in found.overdue:
            # Others may run it by now, so that nothing is done twice at the same time.
            self._give_up(claim, "no heartbeat for a whole lease")
        for claim in found.cancelled:
            self._cancel(claim)

    def _give_up(self, claim: Claim, why: str) -> None:
        if claim in self._running:
            log.warning(why, extra=about(claim))
            self._end(claim)

    def _end(self, claim: Claim) -> None:
        claim.stopped = True
        self._running[claim].cancel()

    async def _sweep_loop(self) -> None:
        while True:
            await self._watch.turn()
            await self._outlive(self._watch.look)

    async def _tidy_loop(self) -> None:
        await asyncio.sleep(_jittered(_UNTIDY))  # what waits goes first
        while True:
            await self._outlive(self._retention.turn)
            await self._outlive(lambda: tidy(self._database, keep_ended=self._keep_ended, keep_workers=timedelta(days=1)))
            await asyncio.sleep(_jittered(timedelta(seconds=_TIDY * self._watch.sharers)))

    async def _tend_loop(self) -> None:
        """Tell the relatives of what has just ended here, all at once. What a lost worker leaves untold, the next look finds."""
        while True:
            await self._kin.wait()
            self._kin.clear()
            await self._outlive(lambda: tend(self._database))

    async def _listen_loop(self) -> None:
        """Hints and presence: both only make it fast. Without this connection, polling and leases do the same, later."""
        pause = _RELISTEN
        while True:
            self._shown = 0.0
            try:
                await self._database.listen(
                    ["suture_due", "suture_cancel", STEPS, CHANNEL], self._hear, greet=self._greet, every=self._lease.heartbeat
                )
            except DatabaseUnavailable as error:
                log.debug("no hints for now: %s", error)
                self._watch.hears = False
                self._pauses.told(hears=False)
                self._due.set()  # a hint may have been lost with it
                self._greeted.set()  # or as much of it as can be had
                pause = _WITHOUT_HINTS if isinstance(error, NoSession) else _RELISTEN
            await self._say_alive()
            await asyncio.sleep(_jittered(pause))

    async def _say_alive(self) -> None:
        """Before the others take our work for lost, which is soon: an idle connection of the pool may have been cut as well."""
        for _ in range(5):
            with suppress(DatabaseUnavailable):
                return await hide_presence(self._database, self.owner)
            await asyncio.sleep(0.05)
        return None

    async def _greet(self, session: Session) -> None:
        """At the start, and then seldom: a connection that died without a sign is one on which nobody's look is heard."""
        if self._shown and not self._watch.deaf and time.monotonic() - self._shown < _GREET * self._lease.heartbeat.total_seconds():
            return
        await show_presence(session, self.owner)
        self._shown = time.monotonic()
        self._watch.hears = True
        self._pauses.told(hears=True)
        self._greeted.set()

    def _hear(self, channel: str, payload: str) -> None:
        if channel == "suture_due" and payload in self._queues:
            self._due.set()
            self._watch.hurry()
        if channel == CHANNEL:
            self._watch.heard(payload)
        if channel == STEPS:
            self._pauses.told(hears=True)
        if channel == "suture_cancel":
            for claim in [c for c in self._running if str(c.execution.id) == payload]:
                self._cancel(claim)

    def _cancel(self, claim: Claim) -> None:
        """Stop its step, and every step after it: a step may swallow its cancellation, so each heartbeat says it again."""
        claim.cancel_requested = True
        if claim in self._running and claim not in self._settling:
            self._end(claim)

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
            await drive(claim, self._workflows, resources=self.resources, pauses=self._pauses)
        except Suspended:
            log.debug("waits", extra=about(claim))
        except LeaseLost:
            log.warning("lost the lease, nothing more is written", extra=about(claim))
            self._strays = True  # it may be ours still, when only the heartbeats failed
        except asyncio.CancelledError:
            if claim.cancel_requested:
                await self._settle(claim)
            # else: it is handed back, or another worker holds it
        except BaseExceptionGroup as group:
            if group.subgroup(Signal) is None:
                raise
            log.debug("waits or lost, in a group of tasks", extra=about(claim))
        except Exception:
            # The border of a task: the engine's own write failed for a reason that time does not mend. The lease will run out, which
            # counts as a crash, and a few of these make a dead letter.
            log.exception("the outcome could not be written", extra=about(claim))
            self._unwritten.add(claim.execution.id)

    async def _settle(self, claim: Claim) -> None:
        self._settling.add(claim)
        try:
            await claim.finish_cancel()
        except LeaseLost:
            log.info("it had ended before it could be cancelled", extra=about(claim))


def _jittered(pause: timedelta) -> float:
    return pause.total_seconds() * random.uniform(0.8, 1.2)  # noqa: S311 (no secret)
