"""What an idle fleet costs: twenty workers with nothing to do, for a minute. Seen in Postgres itself: the processor time of its backends,
and then, for as long again, the statements in its log, which would cost time themselves.
"""

import asyncio
import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path

import asyncpg

from suture.engine import migrate
from tests.proof.figures import Figure, Say, at_most
from tests.proof.fleet import fleet, forget
from tests.proof.server import Server, server

WORKERS = 20
SETTINGS = {"max_connections": "200"}
_STATEMENT = re.compile(r"(?:execute [^:]*|statement): (?:/\* (\w+) \*/)?(.{0,30})")
_SETTLED = 15.0  # seconds after which a fleet that has just started is at rest


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    """`seed` has no meaning here: nothing is chosen."""
    return asyncio.run(_measure(say, workers=WORKERS, seconds=20.0 if quick else 60.0))


async def _measure(say: Say, *, workers: int, seconds: float) -> list[Figure]:
    world = Path(tempfile.mkdtemp(prefix="suture-idle-"))
    try:
        async with server(settings=SETTINGS) as postgres:
            await migrate(postgres.url)
            watcher = await asyncpg.connect(postgres.url)
            with fleet(world) as ships:
                for number in range(workers):
                    ships.start(url=postgres.url, name=f"idle-{number}")
                say(f"{workers} workers have started; they come to rest")
                await asyncio.sleep(_SETTLED)
                return await _watch(say, postgres, watcher, seconds)
    finally:
        forget(world)


async def _watch(say: Say, postgres: Server, watcher: "asyncpg.Connection[asyncpg.Record]", seconds: float) -> list[Figure]:
    used, started = _processor_seconds(postgres.pid), time.monotonic()
    await asyncio.sleep(seconds)
    share = (_processor_seconds(postgres.pid) - used) / (time.monotonic() - started)
    say(f"processor time: {share:.2%} of one core")

    await watcher.execute("alter system set log_statement = 'all'")
    await watcher.execute("select pg_reload_conf()")
    await watcher.close()
    await asyncio.sleep(1)
    before, started = len(postgres.log()), time.monotonic()
    await asyncio.sleep(seconds)
    seen, took = Counter(_named(postgres.log()[before:])), time.monotonic() - started
    told = ", ".join(f"{name} {calls / took:.2f}" for name, calls in seen.most_common())
    say(f"statements a second: {told}")
    return [
        at_most("statements a second, all workers", seen.total() / took, 2.0, "/s", told),
        at_most("of one core in Postgres, all workers", 100 * share, 1.0, "%"),
    ]


def _named(log: str) -> list[str]:
    return [found[1] or found[2].strip() for found in _STATEMENT.finditer(log)]


def _processor_seconds(postmaster: int) -> float:
    """Of the server and of all its children, dead ones too."""
    ticks = sum(_ticks(postmaster))
    for line in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
        ticks += sum(_ticks(int(line))[:2])
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> tuple[int, int, int, int]:
    """utime, stime, and those of the children that were waited for (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return tuple(int(field) for field in fields[11:15])  # type: ignore[return-value]
