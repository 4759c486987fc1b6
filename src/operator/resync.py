"""The resync: compares all Tasks with all rows that live, slowly and in both directions. What every watch missed is found here.

A Task without a row gets one, a row that moved unseen is shown, a status that another hand wrote is mended, a row whose Task is gone is
cancelled. Rows are read before Tasks: a row that was there first and whose Task is not there afterwards has lost it.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from datetime import timedelta

from suture.engine import LIVE, Execution, is_terminal
from suture.errors import IllegalTransition, NotFound, SutureError
from suture.operator.keeper import ACTOR, Keeper, Known
from suture.operator.mirror import settle_all
from suture.operator.resource import Task
from suture.operator.signs import Sign

log = logging.getLogger(__name__)

_PAGE = 500


class Resync:
    """`sign` gives that of the watch over a namespace: what it ought to have shown is found here."""

    def __init__(self, keeper: Keeper, *, every: timedelta, sign: Callable[[str], Sign]) -> None:
        self._keeper, self._every, self._sign = keeper, every.total_seconds(), sign
        self._compared = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since a comparison ended, well or not."""
        return time.monotonic() - self._compared

    async def run(self) -> None:
        """Compare for ever."""
        while True:
            # Jitter: replicas that start together should not list together.
            await asyncio.sleep(self._every * random.uniform(0.8, 1.0))  # noqa: S311 (no secret)
            try:
                await self.compare()
            except SutureError as error:
                log.warning("no resync this time: %s", error)
            self._compared = time.monotonic()

    async def compare(self) -> None:
        """One pass.

        Raises: DatabaseUnavailable, ServiceUnavailable, RateLimited, AccessDenied, NotFound when the resource is not installed.
        """
        rows = await self._living_rows()
        before, seen = set(self._keeper.known), set[str]()
        async for page in self._keeper.objects.everywhere():
            seen.update(task.meta.uid for task in page)
            for task in page:
                self._sign(task.meta.namespace).compare(task.meta.uid, task.meta.resource_version)
            await settle_all(self._keeper, [await self._meet(task, rows) for task in page])
        for uid in before - seen:
            if (known := self._keeper.known.get(uid)) is not None:
                self._sign(known.task.meta.namespace).forget(uid)
            self._keeper.forget(uid)
        await self._cancel_orphans(row for row in rows.values() if row.labels["uid"] not in seen)

    async def _living_rows(self) -> dict[str, Execution]:
        """The rows of this cluster that live, by the uid of their Task."""
        labels, rows, last = {"cluster": await self._keeper.objects.cluster_id()}, list[Execution](), None
        while page := await self._keeper.engine.page(statuses=tuple(LIVE), labels=labels, before=last, limit=_PAGE):
            rows += page
            last = page[-1].id
        return {row.labels["uid"]: row for row in reversed(rows) if "uid" in row.labels}

    async def _meet(self, task: Task, rows: dict[str, Execution]) -> Known:
        known = self._keeper.meet(task)
        if (row := rows.get(task.meta.uid)) is not None:
            self._keeper.moved(row)
        elif known.row is not None and not is_terminal(known.row.status):
            self._keeper.moved(await self._keeper.engine.get(known.row.id))  # it ended, or it is another's
        return known

    async def _cancel_orphans(self, rows: Iterable[Execution]) -> None:
        for row in rows:
            namespace, name = row.labels.get("namespace", ""), row.labels.get("task", "")
            if (
                self._keeper.objects.serves(namespace)
                and not row.cancel_requested_by
                and await self._is_gone(namespace, name, row.labels["uid"])
            ):
                log.info("cancelled: its Task is gone", extra={"namespace": namespace, "task": name, "execution": str(row.id)})
                try:
                    await self._keeper.engine.cancel(row.id, actor=ACTOR, reason="its Task is gone")
                except IllegalTransition:
                    continue  # it ended meanwhile

    async def _is_gone(self, namespace: str, name: str, uid: str) -> bool:
        """Ask once more before a cancellation, which cannot be taken back."""
        try:
            return (await self._keeper.objects.get(namespace, name)).meta.uid != uid
        except NotFound:
            return True
