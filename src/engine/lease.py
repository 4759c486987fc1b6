"""Leases: kept alive by heartbeats, taken from the lost, watched by presence.

Recovery is a predicate over rows that every worker evaluates; there is no leader and no list. Knows nothing of how claims are run.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from suture.engine.children import tend
from suture.engine.claim import Claim
from suture.engine.database import Database, Session

log = logging.getLogger(__name__)

BATCH = 500
"""Rows that one sweep takes at most from each kind of the due: the next sweep takes the rest."""

SWEEPER = "recovery"

_PATIENCE = 5  # looks for one's own presence


@dataclass(frozen=True, slots=True)
class Lease:
    """When a worker counts as lost, and what becomes of its work. The same for a whole fleet."""

    duration: timedelta = timedelta(seconds=30)
    """How long a claim lasts without a heartbeat."""
    heartbeat: timedelta = timedelta(seconds=10)
    """Pause between two heartbeats; three must fit into a lease."""
    grace: timedelta = timedelta(milliseconds=500)
    """How long a presence may be missing before the lease counts as ended."""
    crash_limit: int = 5
    """Lost workers that one execution survives; the next makes it a dead letter, since it may be what kills them."""
    suspect: int = 3
    """Lost workers from which an execution counts as suspect: a worker runs one such at a time."""
    restart: timedelta = timedelta(seconds=5)
    """How long after a start of Postgres nobody from before counts as lost: their leases ran out while it was away, they come back."""
    blocked: timedelta = timedelta(minutes=5)
    """How long steps may block their event loop until heartbeats stop: a process that hangs for ever must lose its work some time."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat found out."""

    lost: list[Claim]
    cancelled: list[Claim]
    overdue: list[Claim]
    """Not renewed for a whole lease: others may run these by now."""
    strays: bool = False
    """Whether the database knows of claims of ours beside these."""


async def beat(database: Database, owner: UUID, claims: Sequence[Claim], *, lease: Lease) -> Beat:
    """Renew everything that `owner` holds, in one statement; returns what it holds no longer and what should stop.

    Raises: DatabaseUnavailable.
    """
    started = time.monotonic()
    ids, epochs, steps = [c.execution.id for c in claims], [c.epoch for c in claims], [c.step for c in claims]
    rows = await database.many("beat", owner, ids, epochs, steps, lease.duration)
    held = {(r["id"], r["epoch"]): r["cancel_requested_by"] for r in rows}
    lost = [c for c in claims if (c.execution.id, c.epoch) not in held]
    for claim in claims:
        if (claim.execution.id, claim.epoch) in held:
            claim.renewed = started
    cancelled = [c for c in claims if held.get((c.execution.id, c.epoch))]
    return Beat(lost, cancelled, overdue(claims, lease=lease), strays=not {r["id"] for r in rows} <= set(ids))


def overdue(claims: Sequence[Claim], *, lease: Lease) -> list[Claim]:
    """The claims whose lease has run out unseen."""
    return [c for c in claims if time.monotonic() - c.renewed > lease.duration.total_seconds()]


async def show_presence(session: Session, owner: UUID) -> None:
    """Hold the session's advisory lock of `owner`: as long as the connection lives, the others see it in pg_locks.

    While an earlier connection of `owner` still holds it, presence proves nothing, and the leases alone are judged.
    """
    for _ in range(_PATIENCE):
        if (await session.one("show_presence", owner))["held"]:
            return
        await asyncio.sleep(0.1)  # the earlier connection was cut a moment ago, and its lock is just going
    await session.none("hide_presence", owner)


async def hide_presence(database: Database, owner: UUID) -> None:
    """Say that `owner` lives although its listening connection is gone. Raises: DatabaseUnavailable."""
    await database.none("hide_presence", owner)


async def sweep(database: Database, *, lease: Lease) -> int:
    """Bring back what is due: work of the lost, sleeps and waits that ended, deadlines, tidings. Returns how many rows moved.

    Any number of workers may sweep at the same time.
    """
    await database.none("mark_absent", lease.restart)
    recovered = await database.many("recover", lease.grace, lease.crash_limit, BATCH, SWEEPER, lease.restart)
    for row in recovered:
        log.warning("took an execution from a lost worker", extra={"task": str(row["id"]), "crashes": row["crashes"]})
    woken = await database.many("wake_due", BATCH, SWEEPER)
    overdue = await database.many("expire_overdue", BATCH, SWEEPER)
    return len(recovered) + len(woken) + len(overdue) + await tend(database)


async def tidy(database: Database, *, keep_ended: timedelta, keep_workers: timedelta) -> int:
    """Move ended executions to the history, forget workers that left. Returns how many executions moved. See `retention` for the rest."""
    await database.none("forget_workers", keep_workers)
    moved = batch = len(await database.many("archive", BATCH, keep_ended))
    while batch == BATCH:
        moved += (batch := len(await database.many("archive", BATCH, keep_ended)))
    return moved
