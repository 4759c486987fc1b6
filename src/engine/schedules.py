"""Schedules: executions that are due again and again. Every runner looks, and a due one is enqueued once.

The row's advance and the new execution commit together, so that a worker that dies between them changes nothing.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

from suture.engine.database import Database, Row, Session
from suture.engine.ids import uuid7
from suture.engine.payload import decode, digest

BATCH = 100
"""Schedules that one look takes at most."""

ACTOR = "schedule"


@dataclass(frozen=True, slots=True)
class Schedule:
    name: str
    workflow: str
    version: int
    queue: str
    input: Any
    every: timedelta
    next_at: datetime
    changed_by: str

    @classmethod
    def from_row(cls, row: Row) -> Self:
        return cls(**{name: row[name] for name in cls.__slots__ if name != "input"}, input=decode(row["input"]))


async def enqueue_due(database: Database) -> int:
    """Enqueue what is due, each once, whoever else looks; returns how many.

    Raises: DatabaseUnavailable.
    """
    async with database.transaction() as session:
        due = await session.many("due_schedules", BATCH)
        for row in due:
            await _enqueue(session, row)
        if due:
            await session.none("advance_schedules", [row["name"] for row in due])
            await session.none("hint", list({row["queue"] for row in due}))
    return len(due)


async def _enqueue(session: Session, row: Row) -> None:
    """While the execution of an earlier time still lives, the key makes this one the same: a slow run is not run twice at a time."""
    key, labels = f"schedule:{row['name']}", json.dumps({"schedule": row["name"]})
    what = uuid7(), row["workflow"], row["version"], row["queue"], 0, row["input"], key, digest(row["input"]), labels
    await session.one("enqueue", *what, None, None, None, ACTOR, f"due at {row['next_at']:%Y-%m-%d %H:%M:%S} UTC", None)
