"""The watch: a fleet looks at what is due as one, with no leader.

Whoever looks tells the others, and all put their own look off; when it dies, the first of them whose pause is over looks. A worker that
hears nobody looks by itself. Knows no claims; what a sweep writes is the affair of `lease`.
"""

import asyncio
import logging
import random
import time
from datetime import timedelta

from suture.engine.database import Database
from suture.engine.lease import Lease, sweep
from suture.engine.schedules import enqueue_due

log = logging.getLogger(__name__)

CHANNEL = "suture_looked"

_BUSY = 0.2  # seconds between two looks while anything runs: with the grace, a lost worker is missed within a second
_REST = 4  # polls between two looks, or of one worker, of a fleet at rest
_GAP = 0.1  # seconds between two looks when much is due: what gathered meanwhile is one batch
_SPREAD = 0.25  # part of the pause, at random: one of many is the first, and the others hear of it before their turn
_SHORT = 0.06  # seconds: of a pause below a second, which somebody waits for
_LABOUR = 0.025  # seconds that a claim takes only when it reads what nobody can remove, or when the machine is busy
_SHARE = 4  # a look comes no sooner than this many times what the last one took: while a snapshot is held for long it may be much
_DEAF = 3  # looks of one's own
_SHARERS = 30  # workers that share the polls of a fleet at most: a hint that is lost is made up for within a minute


class Watch:
    """One worker's part in it."""

    def __init__(self, database: Database, *, lease: Lease, poll: timedelta) -> None:
        self._database, self._lease, self._poll = database, lease, poll.total_seconds()
        self._hears, self._present = False, 1
        self._turn, self._moved, self._cost = 0.0, asyncio.Event(), 0.0
        self._empty = self._unheard = 0
        self._labours = False

    @property
    def hears(self) -> bool:
        """Whether the others are heard."""
        return self._hears

    @hears.setter
    def hears(self, hears: bool) -> None:
        if hears != self._hears:
            self._hears, self._unheard = hears, 0
            self._put(0.0)

    async def turn(self) -> None:
        """Wait until nobody has looked for as long as is good."""
        while (left := self._turn - time.monotonic()) > 0:
            self._moved.clear()
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Find out what is due, bring it back if there is any, and tell the others. Raises: DatabaseUnavailable."""
        self._put(self._busy)  # however it ends
        await self._find_floors()
        self._unheard += self._hears
        started = time.monotonic()
        seen = await self._database.one("look", self._lease.grace, self._hears)
        self._cost = time.monotonic() - started
        if seen["schedules"]:
            await enqueue_due(self._database)
        if seen["due"]:
            await sweep(self._database, lease=self._lease)
            seen = await self._database.one("look", self._lease.grace, self._hears)
        self._note(runs=seen["runs"], present=seen["present"], due_in=float("inf") if seen["next"] is None else seen["next"])

    def timed(self, claim: float) -> None:
        """A claim took so many seconds."""
        self._labours = self._labours or claim > _LABOUR

    async def _find_floors(self) -> None:
        """Where claims labour, let them begin where the first that waits is; where the search is quick, they can do without."""
        if not self._labours:
            return
        found = await self._database.many("raise_floors")
        if found and max(row["took"] for row in found) < _LABOUR:
            await self._database.none("drop_floors")
            self._labours = False

    def heard(self, told: str) -> None:
        """Somebody has looked, and tells what there is."""
        self._unheard = 0
        try:
            runs, present, due_in = told.split()
            self._note(runs=runs == "1", present=int(present), due_in=float(due_in))
        except ValueError:
            log.warning("a notification on %s is none of ours: %.100r", CHANNEL, told)

    def hurry(self) -> None:
        """Something begins: the fleet rests no longer."""
        self._put(min(max(self._busy, _SHARE * self._cost), self._turn - time.monotonic()))

    def nap(self, *, worked: bool) -> float:
        """Seconds until the next poll. Where hints are heard, workers that find nothing share the polls of the whole fleet."""
        self._empty = 0 if worked else min(self._empty + 1, 10)
        return self._poll * min(2.0 ** max(self._empty - 1, 0), _REST * self.sharers if self._hears else 1)

    @property
    def sharers(self) -> int:
        """How many workers share what only one of them need do."""
        return min(max(self._present, 1), _SHARERS) if self._hears else 1

    @property
    def deaf(self) -> bool:
        """Whether it ought to have heard of its own looks, and has not: the connection that listens is dead without a sign."""
        return self._unheard >= _DEAF

    @property
    def _busy(self) -> float:
        return min(_BUSY, self._poll, self._lease.grace.total_seconds()) if self._hears else self._poll

    def _note(self, *, runs: bool, present: int, due_in: float) -> None:
        self._present = present
        longest = self._busy if runs or not self._hears else max(self._busy, _REST * self._poll)
        self._put(max(min(longest, max(due_in, min(_GAP, longest))), _SHARE * self._cost))

    def _put(self, pause: float) -> None:
        spread = _SPREAD * pause if pause > 1 else min(_SPREAD * pause, _SHORT)
        self._turn = time.monotonic() + pause + random.uniform(0, spread)  # noqa: S311 (no secret)
        self._moved.set()
