"""I1: no two workers hold one execution, and no transaction is open while a step runs."""

import asyncio
from collections import Counter
from datetime import timedelta

from suture.engine import Lease, Run, workflow
from suture.engine.ids import uuid7
from tests.postgres.engine.stage import ended, eventually, reached, running


@workflow("count")
async def count(run: Run, _: None) -> None:
    run.resources[run.id] += 1


async def test_fifty_claimants_at_once_share_a_hundred_executions_without_overlap(engine, database):
    for _ in range(100):
        await engine.enqueue("count", None, actor="test")

    async def claim(_):
        rows = await database.many("claim", uuid7(), ["default"], ["count"], [1], 2, timedelta(seconds=30), "worker", 99, False)
        return [row["id"] for row in rows]

    taken = [id_ for ids in await asyncio.gather(*map(claim, range(60))) for id_ in ids]

    assert len(taken) == len(set(taken))
    taken += await claim(0) if len(taken) < 100 else []
    assert max(Counter(taken).values()) == 1


async def test_two_claimants_that_want_the_same_row_never_wait_for_each_other(engine, database, psql):
    first = (await engine.enqueue("count", None, actor="test", priority=9)).execution
    second = (await engine.enqueue("count", None, actor="test")).execution
    async with psql.transaction():
        await psql.execute("select from suture.workflow_executions where id = $1 for update", first.id)
        async with asyncio.timeout(30):
            rows = await database.many("claim", uuid7(), ["default"], ["count"], [1], 5, timedelta(seconds=30), "worker", 99, False)
    assert [row["id"] for row in rows] == [second.id]


async def test_a_batch_takes_no_more_than_it_asked_for_the_most_urgent_first(engine, database):
    ids = [(await engine.enqueue("count", None, actor="test", priority=p, queue=q)).execution.id for p, q in ((1, "a"), (3, "b"), (2, "a"))]
    rows = await database.many("claim", uuid7(), ["a", "b"], ["count"], [1], 2, timedelta(seconds=30), "worker", 99, False)
    assert {row["id"] for row in rows} == {ids[1], ids[2]}
    assert (await engine.get(ids[0])).status == "enqueued"


async def test_what_is_not_due_or_too_new_for_this_worker_is_left_alone(engine, database, pass_time):
    await engine.enqueue("count", None, actor="test", version=2)
    await engine.enqueue("other", None, actor="test")
    claim = ("claim", uuid7(), ["default"], ["count"], [1], 5, timedelta(seconds=30), "worker", 99, False)
    assert await database.many(*claim) == []
    at = await database.one("ping")
    await engine.enqueue("count", None, actor="test", run_at=at["at"] + timedelta(seconds=60))
    assert await database.many(*claim) == []
    await pass_time(61)
    assert len(await database.many(*claim)) == 1


async def test_no_transaction_is_open_and_no_connection_is_used_while_a_step_runs(engine, database, psql):
    inside, leave = asyncio.Event(), asyncio.Event()

    async def step() -> None:
        inside.set()
        await leave.wait()

    @workflow("long")
    async def long(run: Run, _: None) -> None:
        await run.step("wait", step)

    task = (await engine.enqueue("long", None, actor="test")).execution
    async with running(database, long, poll=timedelta(seconds=30), lease=Lease(grace=timedelta(seconds=30))):
        await asyncio.wait_for(inside.wait(), 30)

        async def quiet() -> bool:
            sessions = await psql.fetch(
                """select state, xact_start from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
                   and backend_type = 'client backend'"""
            )
            locks = await psql.fetch(
                "select mode from pg_locks where relation = 'suture.workflow_executions'::regclass and pid <> pg_backend_pid()"
            )
            return bool(sessions) and all(s["state"] == "idle" and s["xact_start"] is None for s in sessions) and not locks

        await eventually(quiet, what="that every connection is idle and nothing is locked")
        assert (await engine.get(task.id)).status == "running"
        leave.set()
        await ended(engine, task.id)


async def test_a_paused_queue_gives_out_nothing_until_it_goes_on(engine, database):
    await engine.queues.pause("default", actor="anna")
    task = (await engine.enqueue("count", None, actor="test")).execution
    other = (await engine.enqueue("count", None, actor="test", queue="other")).execution
    runs = Counter()
    async with running(database, count, queues=("default", "other"), resources=runs):
        await ended(engine, other.id)
        assert (await engine.get(task.id)).status == "enqueued"
        await engine.queues.resume("default", actor="anna")
        await ended(engine, task.id)
    assert runs == {task.id: 1, other.id: 1}


async def test_many_runners_run_each_of_many_executions_once(engine, database):
    ids = [(await engine.enqueue("count", None, actor="test")).execution.id for _ in range(60)]
    runs = Counter()
    options = {"resources": runs, "concurrency": 3}
    async with running(database, count, **options), running(database, count, **options), running(database, count, **options):
        for id_ in ids:
            await ended(engine, id_)
    assert runs == dict.fromkeys(ids, 1)


async def test_a_row_that_cannot_be_read_does_not_keep_its_batch_from_running(engine, database, psql):
    good = [(await engine.enqueue("count", None, actor="test")).execution.id for _ in range(3)]
    bad = (await engine.enqueue("count", None, actor="test", priority=5)).execution.id
    await psql.execute("update suture.workflow_executions set input = $2::jsonb where id = $1", bad, "[" * 3000 + "]" * 3000)
    async with running(database, count, resources=Counter()):
        for id_ in good:
            await ended(engine, id_)

        async def buried() -> bool:
            return any(letter.execution_id == bad for letter in await engine.dead_letters())

        await eventually(buried)


async def test_a_claim_that_comes_back_after_stop_is_handed_back(engine, database, psql):
    runs = Counter()
    async with running(database, count, resources=runs, drain=timedelta(seconds=5)) as runner:
        first = (await engine.enqueue("count", None, actor="test")).execution
        await ended(engine, first.id)  # from now on the only claims are those that take something
        async with psql.transaction():
            await psql.execute("lock table suture.queues in access exclusive mode")  # the claim reads it, and waits
            task = (await engine.enqueue("count", None, actor="test")).execution

            async def waits() -> bool:
                await psql.execute("select pg_stat_clear_snapshot()")
                return await psql.fetchval(
                    "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '/* claim */%')"
                )

            await eventually(waits, what="a claim that waits")
            runner.stop()
        moves = await eventually(lambda: engine.timeline(task.id))
        await reached(engine, task.id, "enqueued")
    assert [m.reason for m in moves][:1] == ["requested"]
    assert runs == {first.id: 1}
    assert (await engine.get(task.id)).attempt == 1
