"""I11: what many callers hand in at the same time is one statement and one commit, and yet each hears of its own row alone."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from suture.engine import Database, Engine, Run, workflow
from suture.engine.intake import Hints
from suture.errors import DatabaseUnavailable, InvalidRequest, PayloadUnfit
from tests.nursery import NOWHERE
from tests.postgres.engine.stage import eventually, running

COMMITS = "select count(distinct xmin::text) from suture.workflow_executions"


async def test_many_at_once_are_few_commits_and_each_has_its_own_answer(engine, psql):
    made = await asyncio.gather(*(engine.enqueue("w", n, actor=f"client {n}") for n in range(200)))
    assert [one.execution.input for one in made] == list(range(200))
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 200
    assert await psql.fetchval(COMMITS) <= 4
    first = await engine.timeline(made[7].execution.id)
    assert [(move.actor, move.from_status, move.to_status, move.reason) for move in first] == [("client 7", None, "enqueued", "requested")]


async def test_one_after_the_other_waits_for_nobody(engine, psql):
    for n in range(5):
        await engine.enqueue("w", n, actor="test")
    assert await psql.fetchval(COMMITS) == 5


@pytest.mark.parametrize("together", [1, 5])
async def test_the_answer_is_the_row_as_it_is_read_later(engine, together):
    soon = datetime.now(timezone(timedelta(hours=9))) + timedelta(hours=1)
    what = {
        "actor": "test",
        "version": 3,
        "queue": "q",
        "priority": 5,
        "labels": {"a": "ä", "b": ""},
        "run_at": soon,
        "deadline_at": soon + timedelta(days=1),
        "max_attempts": 4,
        "reason": "why not",
    }
    given = {"text": "ü", "number": 1.5, "list": [None, True, 10**30], "deep": {"b": 1, "a": {}}}
    made = await asyncio.gather(*(engine.enqueue("w", given, **what) for _ in range(together)), engine.enqueue("w", None, actor="test"))
    for one in made:
        assert one.created
        assert one.execution == await engine.get(one.execution.id)
    assert made[0].execution.run_at.tzinfo is UTC


async def test_who_is_cancelled_takes_no_neighbour_along(engine, psql):
    tasks = [asyncio.create_task(engine.enqueue("w", n, actor="test")) for n in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False] * 10
    kept = {one.execution.id for one in done[1::2]}
    assert kept <= {row["id"] for row in await psql.fetch("select id from suture.workflow_executions")}


async def test_who_is_cancelled_before_it_left_is_not_added(engine, psql):
    await psql.execute("begin; lock table suture.workflow_executions in exclusive mode")
    tasks = [asyncio.create_task(engine.enqueue("w", "first", actor="test"))]
    await waiting(psql, 1)
    second = asyncio.create_task(engine.enqueue("w", "second lane", actor="test"))
    await waiting(psql, 2)
    tasks += [second, *(asyncio.create_task(engine.enqueue("w", n, actor="test")) for n in range(4))]
    await asyncio.sleep(0)
    for task in tasks[2::2]:
        task.cancel()
    await psql.execute("rollback")
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in done] == [False, False, True, False, True, False]
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 4


async def test_what_postgres_refuses_is_refused_to_its_caller_alone(engine, psql):
    priorities = [0, 2**40, 1, 2, 2**40, 3]
    done = await asyncio.gather(*(engine.enqueue("w", n, actor="test", priority=n) for n in priorities), return_exceptions=True)
    assert [isinstance(one, InvalidRequest) for one in done] == [n > 10 for n in priorities]
    assert await psql.fetchval("select array_agg(priority order by priority) from suture.workflow_executions") == [0, 1, 2, 3]


async def test_a_database_that_is_away_is_told_to_each():
    async with Database.connect(NOWHERE) as nowhere:
        engine = Engine(nowhere)
        done = await asyncio.gather(*(engine.enqueue("w", n, actor="test") for n in range(30)), return_exceptions=True)
    assert {type(one) for one in done} == {DatabaseUnavailable}


async def test_a_connection_that_is_cut_in_mid_statement_is_told_to_those_of_the_statement(engine, psql):
    await psql.execute("begin; lock table suture.workflow_executions in exclusive mode")
    tasks = [asyncio.create_task(engine.enqueue("w", n, actor="test")) for n in range(10)]
    pids = await waiting(psql, 1)
    await psql.fetch("select pg_terminate_backend(pid) from unnest($1::int[]) pid", pids)
    done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
    assert {type(one) for one in done} == {DatabaseUnavailable}
    await psql.execute("rollback")
    assert (await engine.enqueue("w", 1, actor="test")).created


async def test_each_queue_of_a_batch_is_hinted_at(engine, database):
    begun = asyncio.Queue()

    @workflow("w")
    async def w(run: Run, queue: str) -> None:
        begun.put_nowait(queue)

    patient = {"queues": ("a", "b", "c"), "poll": timedelta(minutes=1)}
    async with running(database, w, **patient) as runner:
        while not runner.ready or not any(worker["presence"] for worker in (await engine.health()).workers):
            await asyncio.sleep(0.01)
        for _ in range(3):
            await asyncio.gather(*(engine.enqueue("w", queue, actor="test", queue=queue) for queue in "abcabc"))
        seen = [await asyncio.wait_for(begun.get(), 30) for _ in range(18)]
    assert sorted(seen) == sorted("abcabc" * 3)


async def test_a_stream_leaves_the_connections_of_a_small_pool_to_others_too(database_url):
    async with Database.connect(database_url, size=1) as small:
        engine, over = Engine(small), asyncio.Event()

        async def stream() -> None:
            while not over.is_set():
                await engine.enqueue("w", None, actor="test")

        streams = [asyncio.create_task(stream()) for _ in range(4)]
        for _ in range(5):
            await asyncio.wait_for(engine.ping(), 30)
        over.set()
        await asyncio.gather(*streams)


async def test_a_hint_that_does_not_go_along_follows(database, psql):
    heard = asyncio.Queue()
    await psql.add_listener("suture_due", lambda _c, _p, _n, queue: heard.put_nowait(queue))
    hints = Hints(database)
    assert hints.along({"a"}) == ["a"]
    hints._told["a"] += 0.5  # a moment that lasts, however busy the machine is
    assert hints.along({"a"}) == []  # of this one it was told a moment ago
    hints.soon({"a"})
    assert await asyncio.wait_for(heard.get(), 30) == "a"
    await asyncio.sleep(0.05)
    assert heard.empty()


async def test_a_bulk_is_in_order_and_one_transaction(engine, psql):
    ids = await engine.enqueue_many("w", [{"n": n} for n in range(2500)], actor="test")
    rows = await psql.fetch("select id, (input ->> 'n')::int as n, xmin::text from suture.workflow_executions order by n")
    assert [row["id"] for row in rows] == ids
    assert len({row["xmin"] for row in rows}) == 1
    assert all(a < b or a.int >> 80 == b.int >> 80 for a, b in pairwise(ids))


@pytest.mark.parametrize("wrong", [3, 999, 1700, 2499])
async def test_a_bulk_with_one_that_cannot_be_kept_is_refused_as_a_whole(engine, psql, wrong):
    with pytest.raises(PayloadUnfit, match=rf"input {wrong} has a NUL character at 1"):
        await engine.enqueue_many("w", ["a\0" if n == wrong else "a" for n in range(2500)], actor="test")
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 0
    assert len(await engine.enqueue_many("w", [1], actor="test")) == 1


async def waiting(psql, number):
    """The processes that wait for a lock, when there are `number`; asked in a transaction, which sees the same of it for ever."""

    async def look() -> list[int]:
        await psql.execute("select pg_stat_clear_snapshot()")
        rows = await psql.fetch("select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
        return [row["pid"] for row in rows] if len(rows) >= number else []

    return await eventually(look)


async def test_what_comes_in_the_very_turn_in_which_a_lane_ends_is_written(engine):
    first = asyncio.create_task(engine.enqueue("w", 1, actor="test"))
    while not (lanes := [task for task in asyncio.all_tasks() if task.get_name() == "intake"]):
        await asyncio.sleep(0)
    while not lanes[0].done():
        await asyncio.sleep(0)

    async with asyncio.timeout(30):
        second = await engine.enqueue("w", 2, actor="test")

    assert [(await engine.get(added.execution.id)).input for added in (await first, second)] == [1, 2]
