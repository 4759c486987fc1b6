"""The reaper: deletes the Jobs whose execution has ended without them: cancelled, past its deadline, or given up.

Level-triggered: it compares what the API server has with the rows, again and again, in every worker. However an execution ends, also while
nobody runs it, its Job goes. One whose execution is not in this database belongs to somebody else and stays.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

from suture.clients.jobs import EXECUTION, Jobs, Object, has_ended
from suture.engine import LIVE, Engine, Execution
from suture.errands.requests import KUBERNETES_JOB
from suture.errors import NotFound, SutureError

log = logging.getLogger(__name__)

EVERY = timedelta(seconds=5)
"""Pause between two looks: a Job outlives its execution by this long at most."""

_LIVING = 1000  # rows that one look reads; beyond, an execution is asked for by its id


class Reaper:
    def __init__(self, jobs: Jobs, engine: Engine, *, every: timedelta = EVERY) -> None:
        self._jobs, self._engine, self._every = jobs, engine, every.total_seconds()

    @asynccontextmanager
    async def reaping(self) -> AsyncIterator[None]:
        """Reap for the time of the block; with no namespace to look into, do nothing."""
        if not self._jobs.namespaces:
            yield
            return
        life = asyncio.create_task(self._run(), name="reaper")
        life.add_done_callback(_mourn)
        try:
            yield
        finally:
            life.cancel()
            await asyncio.wait([life])

    async def _run(self) -> None:
        while True:
            # Jitter: workers that start together should not list together.
            await asyncio.sleep(self._every * random.uniform(0.8, 1.2))  # noqa: S311 (no secret)
            for namespace in self._jobs.namespaces:
                try:
                    await self.reap(namespace)
                except SutureError as error:
                    log.warning("no Job of %s is reaped this time: %s", namespace, error)

    async def reap(self, namespace: str) -> int:
        """Delete what has lost its execution; returns how many.

        Raises: AccessDenied, DatabaseUnavailable, ServiceUnavailable, RateLimited.
        """
        # Jobs before rows: a row that is read afterwards is at least as young as its Job.
        running = [job async for job in self._jobs.ours(namespace) if not has_ended(job) and "deletionTimestamp" not in job["metadata"]]
        living = await self._living() if running else set[str]()
        reaped = 0
        for job in running:
            of = job["metadata"]["labels"][EXECUTION]
            if of not in living and (row := await self._ended(of)) is not None:
                await self._delete(job, row)
                reaped += 1
        return reaped

    async def _living(self) -> set[str]:
        rows = await self._engine.page(statuses=tuple(LIVE), workflow=KUBERNETES_JOB, limit=_LIVING)
        return {str(row.id) for row in rows}

    async def _ended(self, execution: str) -> Execution | None:
        """The execution, where it is known here and has ended without its Job."""
        try:
            row = await self._engine.get(UUID(execution))
        except (NotFound, ValueError):
            return None
        return row if row.status in ("cancelled", "error") and row.workflow == KUBERNETES_JOB else None

    async def _delete(self, job: Object, row: Execution) -> None:
        metadata = job["metadata"]
        log.info("deletes a Job", extra={"task": str(row.id), "job": f"{metadata['namespace']}/{metadata['name']}", "state": row.status})
        await self._jobs.delete(metadata["namespace"], metadata["name"], uid=metadata["uid"])


def _mourn(life: asyncio.Task[None]) -> None:
    """Nobody awaits it before its time: what ended it shall not go unseen."""
    if not life.cancelled() and (error := life.exception()) is not None:
        log.error("the reaper has ended: Jobs of cancelled executions stay until their deadline", exc_info=error)
