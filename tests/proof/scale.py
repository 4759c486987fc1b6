"""A claim beside a million pending and ten million finished executions, and beside none: the time of the statement itself."""

import asyncio
import statistics
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from suture.engine import Database, migrate
from suture.engine.ids import uuid7
from tests.proof.figures import Figure, Say, at_most
from tests.proof.server import server

SETTINGS = {"max_connections": "20", "shared_buffers": "1GB", "max_wal_size": "16GB", "maintenance_work_mem": "512MB", "fsync": "off"}
"""Without sync only the loading is faster: what is timed is the claim's own statement, and its commit is not waited for on either side."""
BATCH = 16
_CLAIMS = 400
_QUEUES = ["q0", "q1", "q2"]

_PENDING = """
    insert into suture.workflow_executions (id, workflow, queue, priority, input, run_at, created_at, updated_at, changed_by)
    select gen_random_uuid(), 'w', 'q' || n % 3, n % 5, '{"order": 4711}', moment, moment, moment, 'proof'
    from generate_series(1, $1::int) n, lateral (select now() - interval '1 hour' * (1 - n / $1::float8) as moment) m"""
_ENDED = """
    insert into suture.workflow_history (id, workflow, queue, status, input, output, epoch, run_at, created_at, started_at, started_by,
                                         updated_at, finished_at, changed_by)
    select gen_random_uuid(), 'w', 'q' || n % 3, 'completed', '{"order": 4711}',
           '"done"', 1, moment, moment, moment, 'proof', moment, moment, 'proof'
    from generate_series(1, $1::int) n, lateral (select now() - interval '1 second' * (n % 86400) as moment) m"""


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    """`seed` has no meaning here: nothing is chosen."""
    return asyncio.run(_measure(say, pending=100_000 if quick else 1_000_000, ended=200_000 if quick else 10_000_000))


async def _measure(say: Say, *, pending: int, ended: int) -> list[Figure]:
    async with server(settings=SETTINGS) as postgres:
        await migrate(postgres.url)
        psql = await asyncpg.connect(postgres.url, command_timeout=3600)
        async with Database.connect(postgres.url, size=2, plan_once=True) as database:
            await _load(psql, _PENDING, BATCH * _CLAIMS * 2)
            empty = await _time_claims(database, psql)
            say(f"beside nothing: p50 {empty:.2f} ms")
            await psql.execute("set session_replication_role = replica; delete from suture.workflow_executions")
            for done in range(0, ended, 1_000_000):
                await _load(psql, _ENDED, min(1_000_000, ended - done))
                say(f"{min(done + 1_000_000, ended):,} ended")
            await _load(psql, _PENDING, pending)
            say(f"{pending:,} pending")
            await psql.execute("vacuum analyze suture.workflow_history")
            full = await _time_claims(database, psql)
            say(f"beside {pending:,} pending and {ended:,} ended: p50 {full:.2f} ms")
        await psql.close()
    told = f"{empty:.2f} ms -> {full:.2f} ms for {BATCH} rows"
    return [at_most(f"claim p50 beside {pending:,} pending and {ended:,} ended, of an empty table's", full / empty, 1.5, "x", told)]


async def _load(psql: "asyncpg.Connection[Any]", statement: str, rows: int) -> None:
    """Past the triggers: a history of its own would take hours."""
    await psql.execute("set session_replication_role = replica")
    await psql.execute(statement, rows)


async def _time_claims(database: Database, psql: "asyncpg.Connection[Any]") -> float:
    """The median of many claims, in milliseconds, each of a full batch."""
    await psql.execute("vacuum analyze suture.workflow_executions")
    await psql.execute("checkpoint")
    owner, took = uuid7(), []
    for number in range(_CLAIMS):
        started = time.perf_counter()
        rows = await database.many("claim", owner, _QUEUES, ["w"], [1], BATCH, timedelta(minutes=5), "proof", 3, False)
        took.append(1000 * (time.perf_counter() - started))
        assert len(rows) == BATCH, "there was nothing left to claim"
        if number % 20 == 19:
            await _put_away(database, owner)
    return statistics.median(took[20:])  # the first ones plan


async def _put_away(database: Database, owner: UUID) -> None:
    """What was claimed ends, as in life: a worker holds no thousands."""
    async with database.session() as session:
        await session.connection.execute(
            """update suture.workflow_executions set status = 'completed', owner_id = null, lease_expires = null, finished_at = now(),
                      changed_xid = suture.xid(), changed_by = 'proof', reason = 'finished'
               where owner_id = $1 and status = 'running'""",
            owner,
        )
