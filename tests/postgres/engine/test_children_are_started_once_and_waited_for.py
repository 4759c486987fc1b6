"""I12: children are started once, waited for without a worker, told of their parent's end, and nobody's end is missed."""

import asyncio
from datetime import timedelta

import pytest
from pydantic import BaseModel

from suture.engine import NEVER, Run, workflow
from suture.engine.children import tend
from suture.errors import ChildFailed, Conflict, PermanentError
from tests.postgres.engine.stage import QUICK, ended, eventually, reached, running


class Sum(BaseModel):
    total: int


@workflow("add")
async def add(run: Run, numbers: list[int]) -> Sum:
    return Sum(total=sum(numbers))


@workflow("refuse")
async def refuse(run: Run, why: str) -> None:
    raise PermanentError(why)


@workflow("hold")
async def hold(run: Run, _: object) -> str:
    return await run.wait("let-go", str) or "nobody came"


async def test_a_result_comes_back_in_its_type(engine, database):
    @workflow("parent")
    async def parent(run: Run, _: None) -> list[int]:
        by_function = await run.start("first", [1, 2], workflow=add)
        by_name = await run.start("add", [3, 4], returns=Sum)
        results = await run.join(by_function, by_name)
        assert all(isinstance(result, Sum) for result in results)
        return [result.total for result in results]

    task = (await engine.enqueue("parent", None, actor="test", queue="default")).execution
    async with running(database, parent, add):
        done = await ended(engine, task.id)
    assert (done.status, done.output) == ("completed", [3, 7])
    first, second = await engine.page(workflow="add")
    assert first.parent_id == second.parent_id == task.id


async def test_a_parent_waits_as_a_row_and_gives_its_slot_to_the_child(engine, database):
    runs = []

    @workflow("parent")
    async def parent(run: Run, _: None) -> str:
        runs.append(1)
        child = await run.start("hold", None)
        return await child.result()

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, hold, concurrency=1):
        waiting = await reached(engine, task.id, "waiting")
        (child,) = await engine.page(workflow="hold")
        await reached(engine, child.id, "waiting")
        assert (waiting.owner_id, waiting.step, waiting.has_children) == (None, "hold", True)
        await engine.emit(child.id, "let-go", "a friend", actor="test")
        done = await ended(engine, task.id)
    assert (done.output, len(runs)) == ("a friend", 2)
    assert [m.reason for m in await engine.timeline(task.id)][2:4] == ["waits for the child hold", "ended: hold"]


async def test_no_end_is_missed_whether_it_comes_before_during_or_after_the_wait(engine, database):
    """Children that end at once, on two workers, race with their parents' waits."""

    @workflow("parent")
    async def parent(run: Run, delay: float) -> int:
        children = [await run.start(f"child-{n}", [n], workflow=add) for n in range(3)]
        await asyncio.sleep(delay)
        return sum(result.total for result in await run.join(*children))

    tasks = [(await engine.enqueue("parent", n % 5 / 100, actor="test")).execution.id for n in range(40)]
    async with running(database, parent, add, name="one"), running(database, parent, add, name="two"):
        for task in tasks:
            assert (await ended(engine, task)).output == 3


async def test_an_end_whose_worker_died_before_it_was_told_is_told_by_the_next_look(engine, database, take):
    @workflow("parent")
    async def parent(run: Run, _: None) -> int:
        return (await (await run.start("add", [5], returns=Sum)).result()).total

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent):  # it knows no child's workflow
        await reached(engine, task.id, "waiting")
    claim = await take("lost")
    await claim.complete({"total": 5})  # and nothing more: the process is gone
    assert (await engine.get(task.id)).status == "waiting"
    async with running(database, parent):
        assert (await ended(engine, task.id)).output == 5


async def test_tidings_that_are_told_twice_at_once_are_told_once(engine, database, take):
    @workflow("parent")
    async def parent(run: Run, _: None) -> int:
        return (await (await run.start("add", [5], returns=Sum)).result()).total

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent):
        await reached(engine, task.id, "waiting")
    await (await take()).complete({"total": 5})
    assert sorted(await asyncio.gather(*(tend(database) for _ in range(5)))) == [0, 0, 0, 0, 1]
    assert [m.to_status for m in await engine.timeline(task.id)] == ["enqueued", "running", "waiting", "enqueued"]


async def test_a_child_that_fails_raises_the_same_in_every_run(engine, database):
    seen = []

    @workflow("parent", retry=NEVER)
    async def parent(run: Run, _: None) -> str:
        child = await run.start("refuse", "there is no such account")
        try:
            await child.result()
        except ChildFailed as failed:
            seen.append((failed.child == child.id, failed.cause, str(failed)))
        await run.sleep("pause", timedelta(0))
        await run.wait("go", type(None))
        return seen[-1][2]

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, refuse):
        await reached(engine, task.id, "waiting")
        await eventually(lambda: _waits_for(engine, task.id, "go"))
        await engine.emit(task.id, "go", None, actor="test")
        done = await ended(engine, task.id)
    assert done.output.endswith("ended as error: PermanentError: there is no such account")
    assert len(seen) >= 2
    assert set(seen) == {(True, "PermanentError", done.output)}


async def _waits_for(engine, id_, step) -> bool:
    found = await engine.get(id_)
    return found.status == "waiting" and found.step == step


async def test_a_child_s_failure_that_nobody_catches_is_the_parent_s(engine, database):
    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        await (await run.start("refuse", "no")).result()

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, refuse):
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason, done.error.step, done.attempt) == ("error", "ChildFailed", "refuse", 1)


@pytest.mark.parametrize("how", ["cancelled", "past its deadline", "by hand"])
async def test_a_parent_hears_of_its_child_s_end_however_it_came(engine, database, psql, pass_time, how):
    @workflow("parent", retry=NEVER)
    async def parent(run: Run, _: None) -> str:
        child = await run.start("hold", None, run_timeout=timedelta(minutes=1) if how == "past its deadline" else None)
        try:
            await child.result()
        except ChildFailed as failed:
            return failed.cause
        return "none"

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, hold):
        await reached(engine, task.id, "waiting")
        (child,) = await engine.page(workflow="hold")
        await reached(engine, child.id, "waiting")
        if how == "cancelled":
            await engine.cancel(child.id, actor="somebody")
        if how == "past its deadline":
            await pass_time(61)
        if how == "by hand":
            await psql.execute("update suture.workflow_executions set status = 'cancelled', finished_at = now() where id = $1", child.id)
        done = await ended(engine, task.id)
    assert done.output == ("DeadlineExceeded" if how == "past its deadline" else "Cancelled")


@pytest.mark.parametrize("child_is", ["enqueued", "running", "waiting"])
@pytest.mark.parametrize("end", ["cancelled", "error"])
async def test_a_parent_that_ends_otherwise_than_well_takes_its_children_along(engine, database, end, child_is):
    inside, stopped = asyncio.Event(), asyncio.Event()

    @workflow("grandchild")
    async def grandchild(run: Run, _: None) -> None:
        await run.wait("never", str)

    @workflow("child")
    async def child(run: Run, _: None) -> None:
        await run.start("grandchild", None, queue="default")
        if child_is == "running":
            await run.step("for-ever", for_ever)
        await run.wait("never", str)

    async def for_ever() -> None:
        inside.set()
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        await run.start("child", None, queue="nobody" if child_is == "enqueued" else "default")
        await run.wait("go", type(None))
        raise PermanentError("it goes wrong")

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, child, grandchild):
        await reached(engine, task.id, "waiting")
        (one,) = await engine.page(workflow="child")
        await reached(engine, one.id, child_is)
        if child_is == "running":
            await asyncio.wait_for(inside.wait(), 30)
        if child_is != "enqueued":
            await eventually(lambda: engine.page(workflow="grandchild"))
        await (engine.cancel(task.id, actor="somebody") if end == "cancelled" else engine.emit(task.id, "go", None, actor="somebody"))
        assert (await ended(engine, task.id)).status == end
        assert (await ended(engine, one.id)).status == "cancelled"
        for other in await engine.page(workflow="grandchild"):
            assert (await ended(engine, other.id)).status == "cancelled"
    last = (await engine.timeline(one.id))[-1]
    assert (last.actor, last.reason) == (f"task {task.id}", "parent ended")
    assert stopped.is_set() == (child_is == "running")


async def test_a_parent_that_ends_well_leaves_its_children_alone(engine, database, psql):
    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        await run.start("hold", None)

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, hold):
        await ended(engine, task.id)
        (child,) = await engine.page(workflow="hold")
        await reached(engine, child.id, "waiting")
        await engine.emit(child.id, "let-go", "alone", actor="test")
        assert (await ended(engine, child.id)).output == "alone"
        await eventually(lambda: _nothing_to_tell(psql))


async def _nothing_to_tell(psql) -> bool:
    return await psql.fetchval("select count(*) from suture.tidings") == 0


async def test_who_has_no_relatives_leaves_no_tidings(engine, database, psql):
    task = (await engine.enqueue("add", [1], actor="test")).execution
    failed = (await engine.enqueue("refuse", "no", actor="test")).execution
    async with running(database, add, refuse):
        await ended(engine, task.id)
        await ended(engine, failed.id)
    assert await psql.fetchval("select last_value from suture.tidings_id_seq where is_called") is None
    assert await psql.fetchval("select count(*) from suture.child_results") == 0


async def test_a_key_of_a_child_is_taken_by_one_that_lives(engine, database):
    @workflow("parent", retry=NEVER)
    async def parent(run: Run, _: None) -> None:
        await run.start("hold", None, key="the-one")

    other = (await engine.enqueue("hold", None, actor="test", operation_key="the-one")).execution
    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent):
        done = await ended(engine, task.id)
        assert (done.error.reason, "'the-one'" in done.error.message) == (Conflict.reason, True)
        await engine.cancel(other.id, actor="test")
        again = await engine.enqueue("parent", None, actor="test")
        assert (await ended(engine, again.execution.id)).status == "completed"
    assert [child.operation_key for child in await engine.page(workflow="hold")] == ["the-one", "the-one"]


async def test_a_requeued_parent_keeps_the_children_that_completed_and_starts_the_failed_one_again(engine, database):
    runs = []

    @workflow("good")
    async def good(run: Run, _: None) -> str:
        runs.append("good")
        return "good"

    @workflow("bad")
    async def bad(run: Run, _: None) -> str:
        runs.append("bad")
        if runs.count("bad") == 1:
            raise PermanentError("not yet")
        return "bad"

    @workflow("parent", retry=QUICK)
    async def parent(run: Run, _: None) -> list[str]:
        return await run.join(await run.start("good", None), await run.start("bad", None))

    task = (await engine.enqueue("parent", None, actor="test")).execution
    async with running(database, parent, good, bad):
        await ended(engine, task.id)
        again = await engine.requeue(task.id, actor="test")
        assert (await ended(engine, again.id)).output == ["good", "bad"]
    assert sorted(runs) == ["bad", "bad", "good"]


async def test_a_cancel_reaches_the_whole_family_without_a_worker(engine, database):
    """Three generations that wait; nobody sweeps."""

    @workflow("generation")
    async def generation(run: Run, left: int) -> None:
        await (await run.start("next", left - 1, workflow=generation)).result() if left else await run.wait("never", str)

    task = (await engine.enqueue("generation", 2, actor="test")).execution
    async with running(database, generation):
        await eventually(lambda: _three_wait(engine))
    await engine.cancel(task.id, actor="somebody")
    assert {one.status for one in await engine.page(workflow="generation")} == {"cancelled"}


async def _three_wait(engine) -> bool:
    return [one.status for one in await engine.page(workflow="generation")] == ["waiting"] * 3
