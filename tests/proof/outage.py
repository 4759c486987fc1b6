"""Postgres is away for a minute, in the middle of everything: no task is lost or punished, and no worker has to be started again."""

import asyncio
import tempfile
import time
from pathlib import Path
from uuid import UUID

import asyncpg

from suture.engine import Database, Engine, migrate
from tests.proof.figures import Figure, Say, at_most, none_of
from tests.proof.fleet import Fleet, fleet, forget
from tests.proof.server import Server, server

TASKS = 200
WORKERS = 4
_PATIENCE = 60.0  # seconds after Postgres is back


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    """`seed` has no meaning here: nothing is chosen."""
    return asyncio.run(_measure(say, seconds=5.0 if quick else 60.0))


async def _measure(say: Say, *, seconds: float) -> list[Figure]:
    """With the settings that a worker has by default: a lease of 30 s runs out meanwhile."""
    world = Path(tempfile.mkdtemp(prefix="suture-outage-"))
    try:
        async with server(settings={"max_connections": "100"}) as postgres:
            await migrate(postgres.url)
            with fleet(world) as ships:
                for number in range(WORKERS):
                    ships.start(url=postgres.url, name=f"w{number}")
                return await _go_away(say, postgres, ships, seconds)
    finally:
        forget(world)


async def _go_away(say: Say, postgres: Server, ships: Fleet, seconds: float) -> list[Figure]:
    async with Database.connect(postgres.url) as database:
        engine = Engine(database)
        orders = [{"number": n, "sleep": 0.5, "work": 4.0 * (n % 3), "stumbles": n % 5 == 0} for n in range(TASKS)]
        ids = await engine.enqueue_many("five-steps", orders, actor="proof")
        for id_ in ids:
            await engine.emit(id_, "approval", "client", actor="client")
        await asyncio.sleep(3)
        running = await _count(postgres, "status = 'running'")
        await postgres.crash()
        say(f"Postgres goes away while {running} of {TASKS} executions run")
        await asyncio.sleep(seconds)
        await postgres.start()
        back = time.monotonic()
        say(f"it is back after {seconds:g} s")
        while await _count(postgres, "status not in ('completed', 'error', 'cancelled')") and time.monotonic() < back + _PATIENCE:
            await asyncio.sleep(0.2)
    took = time.monotonic() - back
    punished = await _punished(postgres, ids)
    dead = [worker.name for worker in ships.started if not worker.alive]
    return [
        none_of(f"tasks that an outage of {seconds:g} s cost, or punished", punished),
        none_of("workers that ended", dead),
        at_most("seconds until all is done, once Postgres is back", took, _PATIENCE / 2, "s", f"{running} were running"),
    ]


async def _count(postgres: Server, condition: str) -> int:
    psql = await asyncpg.connect(postgres.url)
    try:
        return int(await psql.fetchval(f"select count(*) from suture.executions where {condition}"))
    finally:
        await psql.close()


async def _punished(postgres: Server, ids: list[UUID]) -> list[str]:
    """What did not end well, or counts a crash or a failure that was none of its own."""
    psql = await asyncpg.connect(postgres.url)
    try:
        rows = await psql.fetch(
            """select q.id, e.status, e.crashes, e.attempt, (e.input ->> 'stumbles')::boolean::int + 1 as wanted
               from unnest($1::uuid[]) as q (id) left join suture.executions e on e.id = q.id
               where e.status is distinct from 'completed' or e.crashes <> 0
                  or e.attempt <> (e.input ->> 'stumbles')::boolean::int + 1""",
            ids,
        )
    finally:
        await psql.close()
    return [f"{row['id']} is {row['status']} after {row['crashes']} crashes, attempt {row['attempt']} of {row['wanted']}" for row in rows]
