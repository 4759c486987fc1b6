"""I12: a map runs one child for each input, a bounded number at a time, and wakes its parent once, however many there are."""

import asyncio
from datetime import timedelta

import pytest

from suture.engine import NEVER, Run, workflow
from suture.errors import ChildFailed, PermanentError
from tests.postgres.engine.stage import QUICK, ended, eventually, reached, running


@workflow("square")
async def square(run: Run, number: int) -> int:
    return number * number


def mapping(inputs: list[int], *, child: object = square, concurrency: int = 10, runs: list[int] | None = None, **options: object):
    @workflow("parent", retry=NEVER)
    async def parent(run: Run, _: None) -> object:
        (runs if runs is not None else []).append(1)
        found = await run.map("all", child, inputs, concurrency=concurrency, **options)
        return [str(one) if isinstance(one, ChildFailed) else one for one in found]

    return parent


async def test_results_come_in_the_order_of_the_inputs_and_the_parent_is_woken_once(engine, database, psql):
    runs: list[int] = []
    parent = mapping(list(range(250)), concurrency=7, runs=runs)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square, name="one"), running(database, parent, square, name="two"):
        done = await ended(engine, task.id)
    assert done.output == [number * number for number in range(250)]
    assert (len(runs), done.epoch) == (2, 2)
    assert len(await engine.timeline(task.id)) == 6
    assert [c.kind for c in await engine.checkpoints(task.id)] == ["map"]
    for left in ("fan_outs", "fan_out_inputs", "tidings"):
        assert await psql.fetchval(f"select count(*) from suture.{left}") == 0


async def test_no_more_children_live_than_were_asked_for(engine, database, psql):
    """Counted by the database at each move of any of them."""
    await psql.execute(
        """create table public.most (live bigint);
           create function public.count_live() returns trigger language plpgsql as $$ begin
               insert into public.most select count(*) from suture.workflow_executions
               where parent_id is not null and status in ('enqueued', 'running', 'waiting');
               return null; end $$;
           create trigger count_live after insert or update on suture.workflow_executions
               for each statement execute function public.count_live()"""
    )
    parent = mapping(list(range(60)), concurrency=4)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square):
        assert len((await ended(engine, task.id)).output) == 60
    assert await psql.fetchval("select max(live) from public.most") == 4


async def test_ten_thousand_inputs_make_few_rows_and_one_pass_over_them(engine, database, psql):
    """The work for one child does not grow with the inputs: neither rows, nor what is read of the parent."""
    parent = mapping(list(range(10_000)), concurrency=3)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent):
        await reached(engine, task.id, "waiting")
    assert await psql.fetchval("select count(*) from suture.workflow_executions where parent_id = $1", task.id) == 3
    assert await psql.fetchval("select count(*) from suture.fan_out_inputs") == 100
    assert await psql.fetchval("select count(*) from suture.operation_outputs") == 0
    async with running(database, parent, square):

        async def moved() -> bool:
            return await psql.fetchval("select ended >= 30 from suture.fan_outs")

        await eventually(moved)
        live = "select count(*) from suture.workflow_executions where parent_id = $1 and finished_at is null"
        assert await psql.fetchval(live, task.id) <= 3
        assert (await engine.get(task.id)).epoch == 1
        await engine.cancel(task.id, actor="test")
        await ended(engine, task.id)

        async def quiet() -> bool:
            return await psql.fetchval(live, task.id) == 0 and await psql.fetchval("select count(*) from suture.tidings") == 0

        await eventually(quiet)
    assert await psql.fetchval("select count(*) from suture.fan_out_inputs") == 0


@workflow("picky")
async def picky(run: Run, number: int) -> int:
    if number == 3:
        await run.wait("fail", type(None))
        raise PermanentError(f"{number} is no good")
    if number > 3:
        await run.wait("never", int)
    return number


async def test_a_failure_stops_the_map_and_its_siblings(engine, database, psql):
    parent = mapping(list(range(50)), child=picky, concurrency=5)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, picky):
        await eventually(lambda: psql.fetchval("select count(*) = 3 from suture.child_results"), what="the end of those that are good")
        (bad,) = [child for child in await engine.page(workflow="picky") if child.input == 3]
        await engine.emit(bad.id, "fail", None, actor="test")
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason) == ("error", "ChildFailed")
    assert "The child all[3]" in done.error.message
    assert "3 is no good" in done.error.message
    ends = await psql.fetch("select status, count(*) from suture.workflow_executions where parent_id = $1 group by 1", task.id)
    counted = dict(map(tuple, ends))
    assert (counted["completed"], counted["error"]) == (3, 1)
    assert counted["cancelled"] <= 5
    assert sum(counted.values()) < 10


async def test_a_map_that_returns_failures_runs_all(engine, database):
    @workflow("odd")
    async def odd(run: Run, number: int) -> int:
        if number % 2 == 0:
            raise PermanentError(f"{number} is even")
        return number

    parent = mapping([1, 2, 3, 4], child=odd, concurrency=1, failures="return")
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, odd):
        done = await ended(engine, task.id)
    assert (done.status, done.output[0], done.output[2]) == ("completed", 1, 3)
    assert [text.rpartition(": ")[2] for text in (done.output[1], done.output[3])] == ["2 is even", "4 is even"]


@pytest.mark.parametrize(("inputs", "concurrency", "ends"), [([], 1, "completed"), ([1], 0, "error"), ([0] * 100_001, 1, "error")])
async def test_none_and_too_many_inputs_are_an_answer(engine, database, inputs, concurrency, ends):
    parent = mapping(inputs, concurrency=concurrency)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square):
        done = await ended(engine, task.id)
    assert done.status == ends
    assert done.error.reason == "InvalidRequest" if ends == "error" else done.output == []


async def test_an_input_that_cannot_be_kept_starts_nothing(engine, database):
    parent = mapping([1, float("nan"), 3])  # type: ignore[list-item]
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square):
        done = await ended(engine, task.id)
    assert (done.error.reason, "input 1" in done.error.message) == ("PayloadUnfit", True)
    assert await engine.page(workflow="square") == []


async def test_two_maps_of_one_workflow_and_a_later_replay_keep_their_results(engine, database):
    @workflow("parent", retry=QUICK)
    async def parent(run: Run, _: None) -> list[list[int]]:
        first = await run.map("first", "square", [1, 2, 3], returns=int)
        second = await run.map("second", square, first)
        await run.sleep("pause", timedelta(0))
        await run.wait("go", type(None))
        return [first, second]

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square):

        async def waits() -> bool:
            found = await engine.get(task.id)
            return found.status == "waiting" and found.step == "go"

        await eventually(waits)
        await engine.emit(task.id, "go", None, actor="test")
        assert (await ended(engine, task.id)).output == [[1, 4, 9], [1, 16, 81]]
    assert len(await engine.page(workflow="square")) == 6


async def test_maps_side_by_side_are_done_one_after_the_other_and_none_is_lost(engine, database):
    @workflow("parent")
    async def parent(run: Run, _: None) -> list[list[int]]:
        return list(await asyncio.gather(*(run.map(f"map-{n}", square, [n, n + 1]) for n in range(3))))

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, square):
        assert (await ended(engine, task.id)).output == [[0, 1], [1, 4], [4, 9]]


async def test_a_requeued_map_keeps_what_was_done(engine, database):
    runs: list[int] = []

    @workflow("once-bad")
    async def once_bad(run: Run, number: int) -> int:
        runs.append(number)
        if number == 2 and runs.count(2) == 1:
            raise PermanentError("not yet")
        return number

    parent = mapping([0, 1, 2, 3, 4], child=once_bad, concurrency=1)
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, once_bad):
        assert (await ended(engine, task.id)).status == "error"
        again = await engine.requeue(task.id, actor="test")
        assert (await ended(engine, again.id)).output == [0, 1, 2, 3, 4]
    assert sorted(runs) == [0, 1, 2, 2, 3, 4]


async def test_a_requeued_map_over_other_inputs_keeps_no_result_of_an_old_one(engine, database):
    """Mended code maps over other inputs: what fits is kept, and no place holds the result of another input."""

    @workflow("picky")
    async def fussy(run: Run, number: int) -> int:
        if number == 99:
            raise PermanentError("the code gave a wrong number")
        return number

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, mapping([0, 1, 5, 99], child=fussy, concurrency=1), fussy):
        assert (await ended(engine, task.id)).status == "error"
    again = await engine.requeue(task.id, actor="test")
    async with running(database, mapping([0, 1, 2], child=fussy, concurrency=1), fussy):
        assert (await ended(engine, again.id)).output == [0, 1, 2]
    assert sorted(child.input for child in await engine.page(workflow="picky")) == [0, 1, 2, 5, 99]
