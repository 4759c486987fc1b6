"""A snapshot that somebody holds for a quarter of an hour, while work comes at a steady rate: nothing that ends meanwhile can be vacuumed.
Engines collapse of it when their claims read the rows that are dead to everyone else.
"""

import asyncio
import itertools
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import asyncpg

from suture.engine import Database, Engine, migrate
from tests.proof.figures import Figure, Say, at_most
from tests.proof.fleet import fleet, forget
from tests.proof.oracle import lines
from tests.proof.server import Server, server

RATE = 800
"""Tasks a second."""
WORKERS = 2
_BATCHES = 10  # a second: what one client hands in at once
SETTINGS = {"max_connections": "100", "shared_buffers": "512MB", "max_wal_size": "4GB"}


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    """`seed` has no meaning here: nothing is chosen."""
    return asyncio.run(_measure(say, seconds=90.0 if quick else 900.0, window=20.0 if quick else 60.0))


async def _measure(say: Say, *, seconds: float, window: float) -> list[Figure]:
    world = Path(tempfile.mkdtemp(prefix="suture-snapshot-"))
    try:
        async with server(settings=SETTINGS) as postgres:
            await migrate(postgres.url)
            with fleet(world) as ships:
                for number in range(WORKERS):
                    ships.start(url=postgres.url, name=f"w{number}", concurrency=100)
                return await _hold(say, postgres, world, seconds, window)
    finally:
        forget(world)


async def _hold(say: Say, postgres: Server, world: Path, seconds: float, window: float) -> list[Figure]:
    holder, watcher = await asyncpg.connect(postgres.url), await asyncpg.connect(postgres.url)
    async with Database.connect(postgres.url, size=4) as database:
        engine, started = Engine(database), time.monotonic()
        await holder.execute("begin isolation level repeatable read; select count(*) from suture.workflow_executions")
        handed_in, next_word = 0, 0.0
        for number in itertools.count(1):
            await engine.enqueue_many("one-step", [None] * (RATE // _BATCHES), actor="proof")
            handed_in += RATE // _BATCHES
            late = time.monotonic() - started - number / _BATCHES
            await asyncio.sleep(max(0.0, -late))
            if (passed := time.monotonic() - started) >= next_word:
                say(f"{passed:.0f} s: {await _backlog(watcher)} behind; claims {_told(_claims(world, time.monotonic() - window))}")
                next_word = passed + max(seconds / 15, 10)
            if passed >= seconds:
                break
        rate = handed_in / (time.monotonic() - started)
        await asyncio.sleep(1)  # a task takes a few milliseconds
        behind = await _backlog(watcher)
        ended_at = time.monotonic() - 1
        await holder.execute("rollback")
    await holder.close()
    await watcher.close()
    first = _claims(world, started + 2, started + 2 + window)  # connections are made and plans are new in the first moments
    last = _claims(world, ended_at - window, ended_at)
    return [
        Figure("tasks a second, handed in", f"{rate:.0f}", f">= {0.98 * RATE:.0f}", rate >= 0.98 * RATE),
        at_most(f"behind after {seconds / 60:g} minutes of a held snapshot", behind, 0),
        at_most("claim p99 at the end, of its start", _p99(last) / _p99(first), 2.0, "x", f"{_told(first)} -> {_told(last)}"),
    ]


async def _backlog(watcher: "asyncpg.Connection[Any]") -> int:
    return int(await watcher.fetchval("select count(*) from suture.workflow_executions where status in ('enqueued', 'running')"))


def _claims(world: Path, since: float, until: float = float("inf")) -> list[float]:
    """How long each claim took, in milliseconds."""
    return [1000 * c["took"] for path in world.glob("claims-*") for c in lines(path) if since <= c["at"] < until]


def _p99(took: list[float]) -> float:
    return statistics.quantiles(took, n=100)[98] if len(took) > 1 else float("nan")


def _told(took: list[float]) -> str:
    return f"p50 {statistics.median(took):.1f} ms, p99 {_p99(took):.1f} ms of {len(took)}" if len(took) > 1 else "none"
