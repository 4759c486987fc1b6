"""A glance: what a person looks at every second, in three statements whose cost does not grow with the backlog or the history.

For exact numbers see `Engine.health` and `Queues.list`, which count everything. Changes nothing.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from suture.engine.database import Database

MOST = 10_000
"""Rows of a queue that are counted, and rows of it with a key, for the parked; beyond it `more` and `parked_more` say so."""

SPAN = 10
"""Seconds over which `ended` and `failed` are counted."""


@dataclass(frozen=True, slots=True)
class Glance:
    at: datetime
    """The database's time."""
    queues: list[dict[str, Any]]
    """name, paused, concurrency, per_key, rate_starts, rate_seconds, running, due, delayed, oldest_seconds, more, parked, parked_more."""
    workers: list[dict[str, Any]]
    """id, name, queues, presence, absent, beat_seconds, running."""
    longest: list[dict[str, Any]]
    """id, workflow, queue, step, worker, seconds, crashes of what has run longest since its claim."""
    ended: int
    """Executions that ended in the last ten seconds."""
    failed: int
    """Those of them that ended in error."""
    dead_letters: int
    """Those that nobody has requeued or discarded."""


async def glance(database: Database) -> Glance:
    """Raises: DatabaseUnavailable."""
    async with database.session() as session:
        queues = [dict(row) for row in await session.many("glance_queues", MOST)]
        workers = [{**row, "id": str(row["id"])} for row in await session.many("glance_workers")]
        work = dict(await session.one("glance_work"))
    return Glance(queues=queues, workers=workers, **work | {"longest": json.loads(work["longest"])})
