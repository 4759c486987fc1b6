"""The pulse: keeps a runner's leases alive from a thread of its own, with its own event loop and connection.

A step that blocks the runner's loop, or a pool that is busy, delays its neighbours and not the heartbeat. What a beat finds out is told
to the runner in its loop. Knows nothing of how claims are run, nor what a beat writes (see `lease`).
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from suture.engine.claim import Claim
from suture.engine.database import Database
from suture.engine.lease import Beat, Lease, beat, overdue
from suture.errors import DatabaseUnavailable

log = logging.getLogger(__name__)

_IDLE = 6  # heartbeats between two that renew nothing: they tell people that the worker lives
_AGAIN = 0.2  # part of a heartbeat after which one that failed is tried again: a lease forgives several


class Pulse:
    """Beats for `owner` as long as its block is open."""

    def __init__(
        self, database: Database, owner: UUID, *, lease: Lease, claims: Callable[[], list[Claim]], heard: Callable[[Beat], None]
    ) -> None:
        self._database, self._owner, self._lease, self._claims, self._heard = database, owner, lease, claims, heard
        self._answered = time.monotonic()
        self._beaten = 0.0

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Start the thread, and end it with the block."""
        runner = asyncio.get_running_loop()
        over, begun = runner.create_future(), runner.create_future()
        thread = threading.Thread(target=lambda: asyncio.run(self._live(runner, begun, over)), name="pulse", daemon=True)
        thread.start()
        try:
            await asyncio.shield(begun)
            yield
        finally:
            (await asyncio.shield(begun))()
            await asyncio.shield(over)

    async def _live(
        self, runner: asyncio.AbstractEventLoop, begun: "asyncio.Future[Callable[[], object]]", over: "asyncio.Future[None]"
    ) -> None:
        own, stopped = asyncio.get_running_loop(), asyncio.Event()
        runner.call_soon_threadsafe(begun.set_result, lambda: own.call_soon_threadsafe(stopped.set))
        database = self._database.twin(size=1)
        try:
            await database.open()
            pause = self._pause()
            while not await _within(stopped, pause):
                pause = await self._beat(database, runner)
        finally:
            await database.close()
            _tell(runner, over.set_result, None)

    async def _beat(self, database: Database, runner: asyncio.AbstractEventLoop) -> float:
        """One beat; returns the pause until the next."""
        claims = self._claims()
        if not self._answers():
            return self._pause()
        _tell(runner, self._answer)
        if not claims and time.monotonic() - self._beaten < _IDLE * self._pause():
            return self._pause()
        try:
            async with asyncio.timeout(self._pause()):
                _tell(runner, self._heard, await beat(database, self._owner, claims, lease=self._lease))
        except (DatabaseUnavailable, TimeoutError) as error:
            log.warning("no heartbeat: %s", error or "Postgres is slow", extra={"claims": len(claims)})
        except Exception:
            # The border of a thread: one that died in silence would cost every lease of this process.
            log.exception("no heartbeat")
        else:
            self._beaten = time.monotonic()
            return self._pause()
        _tell(runner, self._heard, Beat([], [], overdue(claims, lease=self._lease)))
        return self._pause() * _AGAIN

    def _answers(self) -> bool:
        """Whether the runner's loop still turns."""
        silent = time.monotonic() - self._answered
        if silent > self._lease.blocked.total_seconds():
            log.error("a step has blocked the event loop for %.0f s: the leases are left to run out", silent)
            return False
        if silent > 2 * self._pause():
            log.warning("a step has blocked the event loop for %.1f s", silent)
        return True

    def _answer(self) -> None:
        self._answered = time.monotonic()

    def _pause(self) -> float:
        return self._lease.heartbeat.total_seconds()


async def _within(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


def _tell(runner: asyncio.AbstractEventLoop, what: Callable[..., object], *args: object) -> None:
    """Call in the runner's loop, unless that has ended."""
    if not runner.is_closed():
        runner.call_soon_threadsafe(what, *args)
