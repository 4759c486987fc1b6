"""I15: somebody holds an old snapshot, and the dead cannot be removed from the index of what is due: claims begin behind them."""

import re
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from suture.engine import Lease
from suture.engine.ids import uuid7
from suture.engine.watch import Watch
from tests.postgres.engine.stage import ended, running
from tests.postgres.engine.test_statements_are_whole_and_served_by_indexes import plan
from tests.proof.worker import one_step

DEAD = 3_000


@pytest.fixture
async def held(psql, database_url, database):
    """Thousands have been enqueued and have ended since somebody's snapshot."""
    holder = await asyncpg.connect(database_url)
    await holder.execute("begin isolation level repeatable read; select count(*) from suture.workflow_executions")
    await database.none("register", uuid7(), "w", "1", ["default"])
    await psql.execute("set session_replication_role = replica")
    await psql.execute(
        f"""insert into suture.workflow_executions (id, workflow, input, run_at, updated_at, changed_by)
            select gen_random_uuid(), 'one-step', 'null', moment, moment, 'test'
            from generate_series(1, {DEAD}) n, lateral (select now() - interval '1 hour' + n * interval '1 s') as m (moment)"""
    )
    await psql.execute("update suture.workflow_executions set status = 'completed', finished_at = now()")
    await psql.execute("set session_replication_role = origin")
    yield holder
    await holder.close()


CLAIM = (f"'{uuid7()}'::uuid", "array['default']", "array['one-step']", "array[1]", "10", "interval '30 s'", "'worker'", "3", "false")


async def pages_read(psql):
    text = await plan(psql, "claim", *CLAIM)
    found = re.search(r"CTE due\n.*?Buffers: shared hit=(\d+)(?: read=(\d+))?", text, re.DOTALL)
    assert found, text
    return int(found[1]) + int(found[2] or 0)


async def test_a_claim_does_not_read_what_ended_while_a_snapshot_was_held(engine, database, psql, held):
    await engine.enqueue("one-step", None, actor="test")
    assert await pages_read(psql) > 100
    assert len(await database.many("raise_floors")) == 1
    assert await pages_read(psql) < 30


async def test_what_lies_below_the_floor_is_late_and_not_lost(engine, database, psql, held, pass_time, take):
    """Urgent, or handed in with a time that is past."""
    await database.many("raise_floors")
    past = datetime.now(UTC) - timedelta(minutes=30)
    task = (await engine.enqueue("one-step", None, actor="test", run_at=past)).execution
    assert await database.many("raise_floors") == []  # somebody searched a moment ago
    assert not await claim(database)
    await pass_time(2)
    assert await database.many("raise_floors")
    assert await claim(database) == [task.id]


async def test_a_floor_that_nobody_renews_counts_no_longer(engine, database, psql, held, pass_time):
    past = datetime.now(UTC) - timedelta(minutes=30)
    await database.many("raise_floors")
    task = (await engine.enqueue("one-step", None, actor="test", run_at=past)).execution
    await pass_time(61)
    assert await claim(database) == [task.id]


async def test_floors_are_looked_for_when_claims_labour_and_dropped_when_the_search_is_quick(database, psql):
    await database.none("register", uuid7(), "w", "1", ["default"])
    watch = Watch(database, lease=Lease(), poll=timedelta(seconds=1))
    await watch.look()
    assert await psql.fetchval("select count(*) from suture.floors") == 0
    await psql.execute("insert into suture.floors values ('default', interval '0', now() - interval '1 hour', interval '1 s')")
    watch.timed(0.001)
    await watch.look()
    assert await psql.fetchval("select count(*) from suture.floors") == 1
    watch.timed(1.0)
    await watch.look()
    assert await psql.fetchval("select count(*) from suture.floors") == 0


async def test_work_goes_on_while_a_snapshot_is_held(engine, database, held):
    async with running(database, one_step):
        task = (await engine.enqueue("one-step", None, actor="test")).execution
        assert (await ended(engine, task.id)).status == "completed"


async def claim(database):
    rows = await database.many("claim", uuid7(), ["default"], ["one-step"], [1], 10, timedelta(seconds=30), "worker", 3, False)
    return [row["id"] for row in rows]
