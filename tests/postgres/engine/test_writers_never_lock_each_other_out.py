"""Rows are locked in one order everywhere: heartbeats, writes, cancels, sweeps and hand-backs at once end without a deadlock."""

import asyncio
from datetime import UTC, datetime

from suture.engine import Run, workflow
from suture.engine.lease import beat, sweep
from suture.errors import IllegalTransition, LeaseLost, Suspended
from tests.postgres.engine.stage import LEASE, ended, running

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
    assert await psql.fetchval(open_) == 0
