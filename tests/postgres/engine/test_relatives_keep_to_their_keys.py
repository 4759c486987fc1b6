"""I12, I13: children, the items of a map and what a schedule enqueues carry concurrency keys: one of a key lives, whoever asked for it."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suture.engine import Limits, Run, workflow
from suture.engine.ids import uuid7
from suture.errors import InvalidRequest
from tests.postgres.engine.limits import claim, end, most_at_once
from tests.postgres.engine.sample_worker import three_steps
from tests.postgres.engine.stage import QUICK, ended, eventually, reached, running


@workflow("work")
async def work(run: Run, number: int) -> int:
    async def do() -> int:
        await asyncio.sleep(0.01)
        return number

    return await run.step("do", do)


@workflow("two", retry=QUICK)
async def two(run: Run, key: str) -> list[int]:
    """Two children of one key beside each other, and one that has none."""
    children = [
        await run.start("first", 1, workflow=work, concurrency_key=key),
        await run.start("second", 2, workflow=work, concurrency_key=key),
        await run.start("third", 3, workflow=work),
    ]
    return [await child.result() for child in children]


async def test_children_of_a_key_run_one_at_a_time_with_each_other_and_with_anybody(engine, database, psql):
    parents = [(await engine.enqueue("two", "k", actor="test")).execution.id for _ in range(6)]
    await engine.enqueue_many("work", list(range(20)), actor="test", concurrency_keys=["k"] * 20)
    async with running(database, two, work, name="one"), running(database, two, work, name="two"):
        for id_ in parents:
            assert (await ended(engine, id_)).output == [1, 2, 3]
    assert await most_at_once(psql, of="e.concurrency_key = 'k'", kind="begun") == 1
    assert await psql.fetchval("select count(*) from suture.workflow_executions where concurrency_key = 'k'") == 32


async def test_a_child_stands_behind_who_holds_its_key_and_has_its_turn_at_that_end(engine, database):
    holder = (await engine.enqueue("w", None, actor="test", concurrency_key="k")).execution.id
    (held,) = await claim(database)
    parent = (await engine.enqueue("one", None, actor="test")).execution.id

    @workflow("one")
    async def one(run: Run, _: None) -> int:
        return await (await run.start("child", 7, workflow=work, concurrency_key="k")).result()

    async with running(database, one, work):
        await reached(engine, parent, "waiting")
        child = (await engine.page(workflow="work", limit=1))[0]
        assert (child.concurrency_key, child.parent_id) == ("k", parent)
        await eventually(lambda: is_parked(engine, child.id), what="the child behind the holder of its key")
        assert held["id"] == holder
        await end(database, held)
        assert (await ended(engine, parent)).output == 7


async def is_parked(engine, id_) -> bool:
    return (await engine.get(id_)).parked


async def test_a_parked_child_goes_with_its_parent(engine, database):
    await engine.enqueue("w", None, actor="test", concurrency_key="k")
    (held,) = await claim(database)

    @workflow("one")
    async def one(run: Run, _: None) -> None:
        await (await run.start("child", 7, workflow=work, concurrency_key="k")).result()

    async with running(database, one, work):
        parent = (await engine.enqueue("one", None, actor="test")).execution.id
        await reached(engine, parent, "waiting")
        child = (await engine.page(workflow="work", limit=1))[0]
        await eventually(lambda: is_parked(engine, child.id), what="the child behind the holder of its key")
        await engine.cancel(parent, actor="anna")
        assert (await ended(engine, child.id)).status == "cancelled"
        await end(database, held)
        later = (await engine.enqueue("work", 1, actor="test", concurrency_key="k")).execution.id
        assert (await ended(engine, later)).output == 1


@pytest.mark.parametrize("how", ["start", "map"])
async def test_a_parent_that_waits_for_its_own_key_can_be_cancelled_with_the_child(engine, database, how):
    """The key is free when the parent ends: the child may begin before it hears of that, and is stopped in its step."""

    @workflow("endless")
    async def endless(run: Run, _: int) -> None:
        await run.step("wait", asyncio.Event().wait)

    @workflow("one")
    async def one(run: Run, _: None) -> None:
        if how == "map":
            await run.map("all", endless, [7], concurrency_keys=["k"])
        await (await run.start("child", 7, workflow=endless, concurrency_key="k")).result()

    async with running(database, one, endless):
        parent = (await engine.enqueue("one", None, actor="test", concurrency_key="k")).execution.id
        await reached(engine, parent, "waiting")
        child = (await engine.page(workflow="endless", limit=1))[0]
        await eventually(lambda: is_parked(engine, child.id), what="the child behind its parent")
        await engine.cancel(parent, actor="anna")
        assert (await ended(engine, child.id)).status == "cancelled"


async def test_a_child_of_its_parent_s_key_begins_when_the_parent_has_completed(engine, database):
    @workflow("one")
    async def one(run: Run, _: None) -> str:
        return str((await run.start("child", 7, workflow=work, concurrency_key="k")).id)

    async with running(database, one, work):
        parent = (await engine.enqueue("one", None, actor="test", concurrency_key="k")).execution.id
        done = await ended(engine, parent)
        child = await ended(engine, done.output)
    assert (child.output, child.started_at >= done.finished_at) == (7, True)


async def test_a_killed_parent_s_child_keeps_its_key(engine, database, workers, psql):
    """Its worker dies while its child has the key; the heir of the parent finds the same child, and nobody passed it."""

    @workflow("one", retry=QUICK)
    async def one(run: Run, _: None) -> int:
        return await (await run.start("child", None, workflow=three_steps, concurrency_key="k")).result()  # type: ignore[no-any-return]

    async with running(database, one):
        parent = (await engine.enqueue("one", None, actor="test")).execution.id
        await reached(engine, parent, "waiting")
    first = workers.start(name="one")
    await workers.noted("hold")
    other = (await engine.enqueue("three-steps", None, actor="test", concurrency_key="k", priority=50)).execution.id
    first.kill()
    second = workers.start(name="two")
    await workers.noted("hold", times=2)
    assert (await engine.get(other)).started_at is None
    workers.release()
    async with running(database, one):
        assert (await ended(engine, parent)).output == second.pid
    child = await psql.fetchrow("select crashes, finished_at from suture.executions where parent_id = $1", parent)
    assert child["crashes"] == 1
    assert child["finished_at"] <= (await ended(engine, other)).started_at


async def test_a_map_keeps_its_bound_and_the_keys_of_its_items(engine, database, psql):
    keys = ["a" if n % 3 == 0 else "b" if n % 3 == 1 else None for n in range(90)]

    @workflow("mapper", retry=QUICK)
    async def mapper(run: Run, _: None) -> list[int]:
        return await run.map("all", work, list(range(90)), concurrency=12, concurrency_keys=keys)

    task = (await engine.enqueue("mapper", None, actor="test")).execution
    async with running(database, mapper, work, concurrency=20), running(database, mapper, work, concurrency=20, name="two"):
        assert (await ended(engine, task.id)).output == list(range(90))
    for key in ("a", "b"):
        assert await most_at_once(psql, of=f"e.concurrency_key = '{key}'", kind="begun") == 1
    found = await psql.fetch(
        "select parent_item, concurrency_key from suture.executions where parent_id = $1 order by parent_item", task.id
    )
    assert [row["concurrency_key"] for row in found] == keys


async def test_a_map_all_of_one_key_goes_one_by_one_to_its_end(engine, database, psql):
    """Those of its turn stand behind each other, which is no standstill."""

    @workflow("mapper", retry=QUICK)
    async def mapper(run: Run, _: None) -> list[int]:
        return await run.map("all", work, list(range(25)), concurrency=10, concurrency_keys=["k"] * 25)

    task = (await engine.enqueue("mapper", None, actor="test")).execution
    async with running(database, mapper, work, concurrency=20):
        assert (await ended(engine, task.id)).output == list(range(25))
    assert await most_at_once(psql, of="e.concurrency_key = 'k'", kind="begun") == 1


async def test_each_of_many_items_has_its_own_key_whenever_it_is_made(engine, database, psql):
    """Inputs and keys lie in chunks; most of these are made long after the map was opened, by whoever tells of an end."""

    @workflow("mapper", retry=QUICK)
    async def mapper(run: Run, _: None) -> list[int]:
        return await run.map("all", work, list(range(230)), concurrency=60, concurrency_keys=[f"k{n}" for n in range(230)])

    task = (await engine.enqueue("mapper", None, actor="test")).execution
    async with running(database, mapper, work, concurrency=30):
        assert (await ended(engine, task.id)).output == list(range(230))
    assert await keys_of(psql, task.id) == [f"k{n}" for n in range(230)]


async def keys_of(psql, parent) -> list[str | None]:
    """Of its children, in the order of the map."""
    rows = await psql.fetch("select concurrency_key from suture.executions where parent_id = $1 order by parent_item", parent)
    return [row[0] for row in rows]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    keys=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=24),
    children=st.lists(st.sampled_from(["a", "b", None]), max_size=4),
    others=st.lists(st.sampled_from(["a", "b"]), max_size=6),
    concurrency=st.integers(1, 8),
    room=st.integers(1, 3),
)
async def test_whatever_the_keys_every_result_comes_and_no_key_is_overrun(
    engine, database, psql, keys, children, others, concurrency, room
):
    queue = f"q{uuid7()}"
    await engine.queues.limit(queue, Limits(per_key=room), actor="anna")

    @workflow("parent", retry=QUICK)
    async def parent(run: Run, _: None) -> list[int]:
        started = [await run.start(f"c{n}", n, workflow=work, concurrency_key=key) for n, key in enumerate(children)]
        mapped = await run.map("all", work, list(range(len(keys))), concurrency=concurrency, concurrency_keys=keys)
        return await run.join(*started) + mapped

    task = (await engine.enqueue("parent", None, actor="test", queue=queue)).execution
    beside = await engine.enqueue_many("work", [0] * len(others), actor="test", queue=queue, concurrency_keys=others)
    async with running(database, parent, work, queues=[queue], concurrency=20):
        assert (await ended(engine, task.id)).output == [*range(len(children)), *range(len(keys))]
        for id_ in beside:
            await ended(engine, id_)
    for key in ("a", "b"):
        assert await most_at_once(psql, of=f"e.queue = '{queue}' and e.concurrency_key = '{key}'", kind="begun") <= room
    of_map = f"e.queue = '{queue}' and e.parent_item is not null"
    assert await most_at_once(psql, of=of_map, kind="begun") <= concurrency


async def test_a_requeued_map_gives_those_that_are_left_the_keys_of_their_places(engine, database, psql):
    fails = [True]

    @workflow("third-fails")
    async def child(_run: Run, number: int) -> int:
        if number == 2 and fails:
            raise ValueError
        return number

    @workflow("mapper")
    async def mapper(run: Run, _: None) -> list[int]:
        return await run.map("all", child, list(range(5)), concurrency=1, concurrency_keys=[f"k{n}" for n in range(5)])

    async with running(database, mapper, child):
        task = (await engine.enqueue("mapper", None, actor="test", max_attempts=1)).execution
        assert (await ended(engine, task.id)).status == "error"
        fails.clear()
        again = await engine.requeue(task.id, actor="test")
        assert (await ended(engine, again.id)).output == list(range(5))
    assert await keys_of(psql, again.id) == ["k2", "k3", "k4"]


@pytest.mark.parametrize("how", ["requeued", "forked"])
async def test_a_child_that_is_run_again_by_itself_stands_behind_who_has_its_key_now(engine, database, how):
    fails = [True]

    @workflow("child")
    async def child(run: Run, _: int) -> str:
        async def fail() -> None:
            if fails:
                raise ValueError

        await run.step("fail", fail)
        return "done"

    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        await run.start("one", 0, workflow=child, concurrency_key="k")

    async with running(database, parent, child):
        await ended(engine, (await engine.enqueue("parent", None, actor="test")).execution.id)
        first = await eventually(lambda: engine.page(workflow="child"), what="the child")
        assert (await ended(engine, first[0].id, within=60)).status == "error"
        fails.clear()
        await engine.enqueue("w", None, actor="test", concurrency_key="k")
        (held,) = await claim(database)
        if how == "requeued":
            again = await engine.requeue(first[0].id, actor="test")
        else:
            again = await engine.fork(first[0].id, from_step="fail", actor="test")
        assert again.concurrency_key == "k"
        await eventually(lambda: is_parked(engine, again.id), what="the successor behind the holder of its key")
        await end(database, held)
        assert (await ended(engine, again.id)).output == "done"


async def test_what_a_schedule_enqueues_carries_its_key_by_the_clock_and_by_hand(engine, database, psql):
    every = {"every": timedelta(seconds=1), "overlap": "allow", "missed": "all", "actor": "test"}
    made = await engine.schedules.put("often", "work", 1, concurrency_key="k", **every)
    assert made.concurrency_key == "k"
    async with running(database, work, concurrency=20):
        by_hand = [await engine.schedules.run_now("often", actor="anna") for _ in range(10)]
        await eventually(lambda: psql.fetchval("select fired_count >= 2 from suture.schedules"), what="two times by the clock")
        for id_ in by_hand:
            assert (await ended(engine, id_)).concurrency_key == "k"
    assert await most_at_once(psql, of="e.concurrency_key = 'k'", kind="begun") == 1
    assert (await engine.schedules.put("often", "work", 1, **every)).concurrency_key is None


async def test_a_requeued_child_and_a_requeued_map_keep_their_keys(engine, database, psql):
    fails = [True]

    @workflow("child")
    async def child(_run: Run, _: int) -> str:
        if fails:
            raise ValueError
        return "done"

    @workflow("parent")
    async def parent(run: Run, _: None) -> list[str]:
        one = await run.start("one", 0, workflow=child, concurrency_key="k")
        return [await one.result(), *await run.map("all", child, [1, 2], concurrency_keys=["k", None])]

    async with running(database, parent, child):
        task = (await engine.enqueue("parent", None, actor="test", max_attempts=1)).execution
        assert (await ended(engine, task.id)).status == "error"
        fails.clear()
        again = await engine.requeue(task.id, actor="test")
        assert (await ended(engine, again.id)).output == ["done"] * 3
    rows = await psql.fetch("select concurrency_key from suture.executions where parent_id = $1 order by parent_item nulls first", again.id)
    assert [row[0] for row in rows] == ["k", "k", None]


@pytest.mark.parametrize("limit", [1, 2])
async def test_as_many_children_of_a_key_live_as_the_queue_says(engine, database, psql, limit):
    await engine.queues.limit("default", Limits(per_key=limit), actor="anna")

    @workflow("mapper", retry=QUICK)
    async def mapper(run: Run, _: None) -> list[int]:
        return await run.map("all", work, list(range(30)), concurrency=10, concurrency_keys=["k"] * 30)

    task = (await engine.enqueue("mapper", None, actor="test")).execution
    async with running(database, mapper, work, concurrency=20):
        await ended(engine, task.id)
    assert await most_at_once(psql, of="e.concurrency_key = 'k'", kind="begun") == limit


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"concurrency_key": ""}, "The concurrency key '' has 0 characters: use 1 to 512"),
        ({"concurrency_key": "k" * 513}, "has 513 characters: use 1 to 512"),
        ({"concurrency_keys": ["a"]}, "There are 1 concurrency keys for 2 inputs"),
        ({"concurrency_keys": ["a", "\0"]}, r"The concurrency key 1 '\\x00' has a control character at 0"),
    ],
)
async def test_a_key_that_is_none_starts_nothing(engine, database, psql, options, complaint):
    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        if "concurrency_keys" in options:
            await run.map("all", work, [1, 2], **options)
        else:
            await run.start("one", 1, workflow=work, **options)

    async with running(database, parent, work):
        task = (await engine.enqueue("parent", None, actor="test")).execution
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason) == ("error", "InvalidRequest")
    assert complaint.replace("\\\\", "\\") in done.error.message
    assert await psql.fetchval("select count(*) from suture.executions") == 1


@pytest.mark.parametrize(("key", "complaint"), [("", "'' has 0 characters: use 1 to 512"), ("k" * 513, "has 513 characters: use 1 to 512")])
async def test_a_schedule_s_key_is_checked_at_the_door(engine, key, complaint):
    with pytest.raises(InvalidRequest, match=f"The concurrency key .*{complaint}"):
        await engine.schedules.put("often", "work", 1, every=timedelta(seconds=1), concurrency_key=key, actor="test")
    assert await engine.schedules.all() == []
