"""What the tests of limits share: a claim as a worker makes it, an end, and what the timeline says ran at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg

from suture.engine import Database, Engine, Session
from suture.engine.ids import uuid7

Psql = asyncpg.Connection
T = TypeVar("T")


async def claim(
    database: Database | Session, batch: int = 5, *, queues: Sequence[str] = ("default",), suspect: int = 99, holds: bool = False
) -> list[dict[str, Any]]:
    known = ["w", "v"]
    rows = await database.many(
        "claim", uuid7(), list(queues), known, [1] * len(known), batch, timedelta(seconds=30), "worker", suspect, holds
    )
    return [dict(row) for row in rows]


async def end(database: Database, *rows: dict[str, Any]) -> None:
    for row in rows:
        assert (await database.one("complete", row["owner_id"], [row["id"]], [row["epoch"]], ["null"], "worker"))["held"] is None


async def many(engine: Engine, count: int, **options: Any) -> list[UUID]:
    return await engine.enqueue_many("w", [None] * count, actor="test", **options)


async def work_off(database: Database, total: int, *, workers: int, batch: int = 2, queues: Sequence[str] = ("default",)) -> None:
    """Claim and end `total` executions with so many workers at once."""
    done = 0

    async def worker() -> None:
        nonlocal done
        while done < total:
            rows = await claim(database, batch, queues=queues)
            await end(database, *rows)
            done += len(rows)

    async with asyncio.timeout(60):
        await asyncio.gather(*(worker() for _ in range(workers)))
    assert done == total


async def most_at_once(psql: "Psql[Any]", *, of: str = "true", kind: str = "running") -> int:
    """How many executions of `of` ran, or were begun and not ended, at the same time; from the timeline.

    A claim writes its time before it commits, and an end too: whoever saw an end has a later time, whoever did not an earlier one.
    """
    begun = {"running": "to_status = 'running'", "begun": "t.to_status = 'running' and t.epoch = 1"}[kind]
    over = {"running": "from_status = 'running'", "begun": "to_status in ('completed', 'error', 'cancelled') and t.epoch > 0"}[kind]
    return await psql.fetchval(
        f"""select coalesce(max(level), 0) from (
                select sum(step) over (order by at, id) as level from (
                    select t.at, t.id, case when {begun} then 1 when {over} then -1 else 0 end as step
                    from suture.timeline t join suture.executions e on e.id = t.execution_id where {of}) as steps) as levels"""
    )


async def running_now(psql: "Psql[Any]", queue: str = "default") -> int:
    return await psql.fetchval("select count(*) from suture.workflow_executions where status = 'running' and queue = $1", queue)


async def reads(database: Database, psql: "Psql[Any]", work: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """What `work` returns, and how many rows and index entries of living executions were read meanwhile, in functions too."""
    before = await _read(database, psql)
    found = await work()
    return found, await _read(database, psql) - before


async def _read(database: Database, psql: "Psql[Any]") -> int:
    async with database.session() as session:
        await session.connection.execute("select pg_stat_force_next_flush()")
    await psql.execute("select pg_stat_clear_snapshot()")
    return int(
        await psql.fetchval(
            """select sum(idx_tup_read) + (select seq_tup_read from pg_stat_user_tables where relname = 'workflow_executions')
               from pg_stat_user_indexes where relname = 'workflow_executions'"""
        )
    )
