"""How soon lost work runs again: workers are killed and stopped in the middle of a step, and the next run's first line is timed."""

import asyncio
import signal
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from suture.engine import Database, Engine, migrate
from tests.proof.figures import Figure, Say, at_most
from tests.proof.fleet import Fleet, Worker, fleet, forget
from tests.proof.oracle import lines
from tests.proof.server import server

LEASE = 10.0
"""Seconds: by presence nobody waits for it."""
ORPHANS = 16
_LONG = 30.0  # seconds that the step lasts in which the worker is lost: longer than any of this


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    """`seed` has no meaning here: nothing is chosen."""
    return asyncio.run(_measure(say, rounds=2 if quick else 8))


async def _measure(say: Say, *, rounds: int) -> list[Figure]:
    async with server(settings={"max_connections": "100"}) as postgres:
        await migrate(postgres.url)
        async with Database.connect(postgres.url, size=4) as database:
            by_presence = await _repeat(say, database, postgres.url, "SIGKILL, presence", rounds, _killed, presence=True)
            by_lease = await _repeat(say, database, postgres.url, "SIGKILL, lease alone", max(rounds // 2, 1), _killed, presence=False)
            handed_back = await _repeat(say, database, postgres.url, "SIGTERM", rounds, _stopped, presence=True)
    return [
        _worst("SIGKILL, presence: until the first orphan runs again", [first for first, _ in by_presence], 1.0),
        _worst("SIGKILL, presence: from the first orphan to the last", [last - first for first, last in by_presence], 1.0),
        _worst(f"SIGKILL, a lease of {LEASE:g} s alone: until the first orphan runs again", [first for first, _ in by_lease], LEASE + 2),
        _worst("SIGKILL, lease alone: from the first orphan to the last", [last - first for first, last in by_lease], 1.0),
        _worst("SIGTERM, nothing drained: until the last runs again", [last for _, last in handed_back], 1.0),
    ]


def _worst(name: str, seconds: list[float], limit: float) -> Figure:
    told = f"median {statistics.median(seconds):.2f} s of {len(seconds)}"
    return at_most(f"{name}, the worst of {len(seconds)}", max(seconds), limit, "s", told)


async def _killed(worker: Worker) -> None:
    worker.signal(signal.SIGKILL)


async def _stopped(worker: Worker) -> None:
    worker.signal(signal.SIGTERM)


async def _repeat(
    say: Say, database: Database, url: str, what: str, rounds: int, lose: Callable[[Worker], Awaitable[None]], *, presence: bool
) -> list[tuple[float, float]]:
    """Seconds until the first and until the last of the orphans runs again, for each round."""
    found = []
    for _ in range(rounds):
        world = Path(tempfile.mkdtemp(prefix="suture-recovery-"))
        try:
            with fleet(world) as ships:
                found.append(await _once(database, url, ships, lose, presence=presence))
        finally:
            forget(world)
        say(f"{what}: first {found[-1][0]:.2f} s, all {found[-1][1]:.2f} s")
    return found


async def _once(
    database: Database, url: str, ships: Fleet, lose: Callable[[Worker], Awaitable[None]], *, presence: bool
) -> tuple[float, float]:
    options: dict[str, Any] = {"url": url, "presence": presence, "lease": LEASE, "heartbeat": LEASE / 3, "drain": 0.0}
    engine = Engine(database)
    first = ships.start(name="first", concurrency=2 * ORPHANS, **options)
    order = {"number": 0, "sleep": 0.0, "work": _LONG, "stumbles": False}
    ids = await engine.enqueue_many("five-steps", [order] * ORPHANS, actor="proof")
    await _until(lambda: len(_begun(ships.world, first.pid)) == ORPHANS)
    heir = ships.start(name="heir", concurrency=2 * ORPHANS, **options)
    if presence:
        await _until_present(database, 2)
    await asyncio.sleep(1.5 * options["heartbeat"])  # the heir is at rest, and its look is nowhere near
    lost_at = time.monotonic()
    await lose(first)
    await _until(lambda: len(_begun(ships.world, heir.pid)) == ORPHANS)
    again = sorted(_begun(ships.world, heir.pid))
    for id_ in ids:
        await engine.cancel(id_, actor="proof")
    return again[0] - lost_at, again[-1] - lost_at


def _begun(world: Path, pid: int) -> list[float]:
    """When this process began the long step, on the machine's monotonic clock."""
    return [body["at"] for body in lines(world / f"bodies-{pid}") if body["step"] == "price"]


async def _until_present(database: Database, workers: int) -> None:
    while sum(worker["presence"] for worker in (await Engine(database).health()).workers) < workers:
        await asyncio.sleep(0.05)


async def _until(look: Callable[[], bool], *, within: float = 60.0) -> None:
    end = time.monotonic() + within
    while not look():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing for {within:g} s")
        await asyncio.sleep(0.02)
