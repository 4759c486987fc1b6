"""The mirror: notices what moved in the database and brings the status of its Task up to date, once a change. Knows nothing of kopf.

Polls one cheap query; several moves between two looks are one write. Also the one place where what failed is tried again, so that no
outage makes a hot loop: a look at the database comes first, and while it fails nothing else is tried.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

from suture.engine import Execution
from suture.errors import DatabaseUnavailable, NotFound, SutureError
from suture.operator.keeper import Keeper, Known

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Tasks that are settled at the same time: kind to the API server, and within the pool of connections."""

_GLANCE = 10.0  # seconds between two looks at the steps of what runs: a worker writes its step with each heartbeat
_GLANCED = 50  # executions a glance; with more that run, each is seen every few glances


class Mirror:
    def __init__(self, keeper: Keeper, *, every: timedelta) -> None:
        self._keeper, self._every = keeper, every.total_seconds()
        self._cursor: str | None = None
        self._unseen: dict[UUID, Execution] = {}
        """Rows that moved and whose Tasks could not be asked for yet."""
        self._glanced, self._turn = time.monotonic(), 0
        self._away = False
        self.ready = False
        """Whether Postgres answered the last look, and the API server what it was asked."""
        self._looked = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since a look ended."""
        return time.monotonic() - self._looked

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.look()
            self._looked = time.monotonic()
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Mirror what moved since the last look, and try again what is behind."""
        await self._settle(self._keeper.overdue())
        try:
            await self._poll()
            self._back()
            for row in list(self._unseen.values()):
                await self._note(row)
                del self._unseen[row.id]
            await self._keeper.objects.cluster_id()
            self.ready = True
        except DatabaseUnavailable as error:
            return self._gone(error)
        except SutureError as error:
            self.ready = False
            log.warning("the API server does not answer as it should: %s", error)
        return await self._settle(self._behind())

    async def _poll(self) -> None:
        engine = self._keeper.engine
        if self._cursor is None:
            self._cursor = await engine.cursor()
        self._cursor, rows = await engine.changed_since(self._cursor, label="uid")
        self._unseen |= {row.id: row for row in rows}
        if time.monotonic() - self._glanced >= _GLANCE:
            self._glanced = time.monotonic()
            for row in self._running():
                self._unseen[row.id] = await engine.get(row.id)

    async def _note(self, row: Execution) -> None:
        """Put the Tasks that show the row on the list; one that no watch has shown yet is fetched."""
        objects, namespace = self._keeper.objects, row.labels.get("namespace", "")
        if self._keeper.moved(row) or not objects.serves(namespace) or row.labels.get("cluster") != await objects.cluster_id():
            return
        try:
            task = await objects.get(namespace, row.labels.get("task", ""))
        except NotFound:
            return  # deleted: the resync cancels what still lives
        if task.meta.uid == row.labels["uid"]:
            await self._keeper.heed(task)

    async def _settle(self, behind: Iterable[Known]) -> None:
        await settle_all(self._keeper, behind)

    def _behind(self) -> list[Known]:
        known = self._keeper.known
        return [known[uid] for uid in list(self._keeper.behind) if uid in known]

    def _running(self) -> list[Execution]:
        rows = [known.row for known in self._keeper.known.values() if known.row is not None and known.row.status == "running"]
        start = self._turn % len(rows) if rows else 0
        self._turn += _GLANCED
        return [*rows[start:], *rows[:start]][:_GLANCED]

    def _gone(self, error: SutureError) -> None:
        if not self._away:
            log.warning("Postgres is away: %s", error)
        self._away, self.ready = True, False

    def _back(self) -> None:
        if self._away:
            log.info("Postgres is back")
        self._away = False


async def settle_all(keeper: Keeper, tasks: Iterable[Known]) -> None:
    """Settle them, a few at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(known: Known) -> None:
        async with slots:
            await keeper.settle(known)

    async with asyncio.TaskGroup() as group:
        for known in tasks:
            group.create_task(one(known))
