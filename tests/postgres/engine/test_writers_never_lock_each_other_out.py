"""Rows are locked in one order everywhere: heartbeats, writes, cancels, sweeps and hand-backs at once end without a deadlock."""

import asyncio
from datetime import UTC, datetime

import pytest

from suture.engine import Database, Run, workflow
from suture.engine.ids import uuid7
from suture.engine.journal import Journal
from suture.engine.lease import beat, sweep
from suture.errors import IllegalTransition, LeaseLost, Suspended
from tests.postgres.engine.stage import LEASE, ended, eventually, running

ALLOWED = (LeaseLost, Suspended, IllegalTransition)


async def test_two_hundred_pairs_of_writers_on_the_same_rows_meet_no_deadlock(engine, database, take, psql):
    ids = [(await engine.enqueue("w", None, actor="test")).execution.id for _ in range(20)]
    owner = (await take()).owner
    claims = [await take(owner=owner) for _ in range(19)]
    here = [c.execution.id for c in claims]

    async def round_(n: int) -> None:
        claim = claims[n % len(claims)]
        await claim.checkpoint(f"s{n}", n, kind="step", attempts=1, started_at=datetime.now(UTC))
        await engine.emit(claim.execution.id, f"e{n}", n, actor="test")

    others = [
        lambda: beat(database, owner, claims[::-1], lease=LEASE),
        lambda: beat(database, owner, claims, lease=LEASE),
        lambda: sweep(database, lease=LEASE),
        lambda: engine.cancel(ids[5], actor="anna"),
    ]
    results = await asyncio.gather(*(round_(n) for n in range(200)), *(others[n % 4]() for n in range(200)), return_exceptions=True)
    handed = await asyncio.gather(
        beat(database, owner, claims, lease=LEASE),
        database.many("hand_back", owner, here[::-1], [1] * len(here), "worker", "test"),
        return_exceptions=True,
    )
    wrong = [r for r in [*results, *handed] if isinstance(r, BaseException) and not isinstance(r, ALLOWED)]
    assert wrong == []
    assert await psql.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


async def test_a_write_that_collides_is_made_again_and_its_step_is_not(engine, database, psql):
    """E14: what Postgres takes back for a collision is written once more, after a pause; the work is done and stays done."""
    await psql.execute(
        """create sequence suture.collisions;
           create function suture.collide() returns trigger language plpgsql as $$
           begin
               if nextval('suture.collisions') <= 2 then raise exception 'made to collide' using errcode = '40001'; end if;
               return new;
           end $$;
           create trigger collide before insert on suture.operation_outputs for each row execute function suture.collide()"""
    )
    runs = []

    async def pay() -> str:
        runs.append(1)
        return "paid"

    @workflow("w")
    async def w(run: Run, _: None) -> str:
        return await run.step("pay", pay)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert (done.output, done.attempt, runs) == ("paid", 1, [1])
    assert await psql.fetchval("select last_value from suture.collisions") == 3


async def test_a_stop_in_mid_step_leaves_no_transaction_open(engine, database, psql):
    """E10: a worker that is stopped while it writes, or between its claim and its first step."""

    @workflow("w")
    async def w(run: Run, _: None) -> None:
        for n in range(1000):
            await run.step(f"s{n}", asyncio.sleep, 0)

    for n in range(6):
        task = (await engine.enqueue("w", None, actor="test")).execution
        async with running(database, w):
            await asyncio.sleep(0.02 * n)  # somewhere else each time
        assert (await engine.get(task.id)).status == "enqueued"
        assert (await engine.get(task.id)).attempt == 1
        await engine.cancel(task.id, actor="test")
    open_ = (
        "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()"
    )
    await eventually(lambda: psql.fetchval(f"select ({open_}) = 0"), what="the end of every transaction")


@pytest.mark.parametrize("plan_once", [True, False], ids=["as a worker plans", "as the server plans"])
@pytest.mark.parametrize("write", ["checkpoints", "endings", "beat", "hand back"])
async def test_rows_are_locked_in_the_order_of_their_ids(engine, direct_url, take, psql, write, plan_once):
    """While somebody holds the first, a writer of all waits for it and holds no other, however it was told of them or they lie."""
    for _ in range(5):
        await engine.enqueue("w", None, actor="test")
    # Among many that lie in no order: there the planner would rather read as they lie.
    await psql.execute(
        """insert into suture.workflow_executions (id, workflow, input, run_at)
           select gen_random_uuid(), 'later', 'null', now() + interval '1 day' from generate_series(1, 3000);
           analyze suture.workflow_executions"""
    )
    async with Database.connect(direct_url, size=20, plan_once=plan_once) as database:
        await _locks_in_order(database, take, psql, write)


async def _locks_in_order(database, take, psql, write):
    owner = uuid7()
    claims = sorted([await take(owner=owner) for _ in range(5)], key=lambda c: c.execution.id, reverse=True)
    ids, journal = [c.execution.id for c in claims], Journal(database, owner, actor="test")
    for claim in claims:
        claim.journal = journal
        await psql.execute("update suture.workflow_executions set run_at = now() where id = $1", claim.execution.id)  # the youngest first
    now = datetime.now(UTC)
    acts = {
        "checkpoints": lambda: asyncio.gather(*(c.checkpoint("s", 1, kind="step", attempts=1, started_at=now) for c in claims)),
        "endings": lambda: asyncio.gather(*(c.complete(1) for c in claims)),
        "beat": lambda: beat(database, owner, claims, lease=LEASE),
        "hand back": lambda: database.many("hand_back", owner, ids, [1] * 5, "worker", "test"),
    }

    async def waits() -> bool:
        return await psql.fetchval("select exists (select from pg_locks where not granted)")

    async with psql.transaction():
        await psql.execute("select from suture.workflow_executions where id = $1 for update", min(ids))
        writing = asyncio.ensure_future(acts[write]())
        await eventually(waits)
        async with database.session() as other:
            free = await other.connection.fetch("select id from suture.workflow_executions where workflow = 'w' for update skip locked")
    await writing
    assert {row["id"] for row in free} == set(ids) - {min(ids)}
