"""I10: an execution that ended runs again from a step: nothing before it is done again, nothing after it is believed."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from suture.engine import NEVER, Run, workflow
from suture.errors import IllegalTransition, NotFound, PermanentError
from tests.postgres.engine.stage import ended, eventually, reached, running


class World:
    """What steps do outside, counted."""

    def __init__(self):
        self.did = Counter()
        self.broken = set()

    def step(self, name):
        async def act():
            self.did[name] += 1
            if name in self.broken:
                raise PermanentError(f"{name} is broken")
            return f"{name} {self.did[name]}"

        return act


@pytest.fixture
def world():
    return World()


@pytest.fixture
def story(world):
    @workflow("story", retry=NEVER)
    async def story_(run: Run, _: dict) -> list:
        async def find() -> None:
            return None

        one = await run.step("one", world.step("one"))
        await run.effect("tell", key="k", find=find, act=world.step("tell"), returns=str)
        answer = await run.wait("approval", str)
        two = await run.step("two", world.step("two"))
        fact = await run.wait("fact", str)
        try:
            three = await run.step("three", world.step("three"))
        except PermanentError:
            await run.step("clean up", world.step("clean up"))
            raise
        return [one, answer, two, fact, three]

    return story_


async def play(engine, *, answer="yes", **options):
    task = (await engine.enqueue("story", {"n": 1}, actor="test", **options)).execution
    await engine.emit(task.id, "approval", answer, actor="anna")
    await engine.emit(task.id, "fact", "true", actor="test")
    return await ended(engine, task.id)


async def test_what_came_before_the_step_is_kept_and_the_rest_is_done_again(engine, database, world, story):
    async with running(database, story):
        done = await play(engine, operation_key="k", labels={"a": "b"}, concurrency_key="shop")
        again = await engine.fork(done.id, from_step="two", actor="bob")
        assert (again.forked_from, again.operation_key, again.labels, again.input) == (done.id, None, {"a": "b"}, {"n": 1})
        assert (again.concurrency_key, again.status) == ("shop", "enqueued")
        await reached(engine, again.id, "waiting")
        await engine.emit(again.id, "fact", "still true", actor="test")
        result = await ended(engine, again.id)

    assert result.output == ["one 1", "yes", "two 2", "still true", "three 2"]
    assert world.did == {"one": 1, "tell": 1, "two": 2, "three": 2}
    assert (await engine.get(done.id)).output == done.output, "the first one stays as it ended"
    assert (await engine.timeline(again.id))[0].reason == f"forked from {done.id} at two"


async def test_an_approval_is_asked_for_again_when_its_wait_is(engine, database, world, story):
    async with running(database, story):
        done = await play(engine)
        again = await engine.fork(done.id, from_step="approval", actor="bob")
        await reached(engine, again.id, "waiting")
        assert (await engine.get(again.id)).step == "approval"
        assert (await engine.emit(again.id, "approval", "no", actor="otto")).accepted
        await reached(engine, again.id, "waiting")
        await engine.emit(again.id, "fact", "true", actor="test")
        assert (await ended(engine, again.id)).output[1] == "no"


async def test_an_event_that_nothing_has_used_yet_is_kept(engine, database, world, story):
    world.broken = {"two"}
    async with running(database, story):
        failed = await play(engine)
        assert failed.status == "error"
        world.broken = set()
        again = await engine.fork(failed.id, from_step="two", actor="bob")
        assert (await ended(engine, again.id)).output == ["one 1", "yes", "two 2", "true", "three 1"]


async def test_a_confirmed_effect_is_not_done_again_by_a_fork_from_the_start_of_it(engine, database, world, story):
    async with running(database, story):
        done = await play(engine)
        again = await engine.fork(done.id, from_step="tell", actor="bob")
        await engine.emit(again.id, "approval", "yes", actor="anna")
        await engine.emit(again.id, "fact", "true", actor="test")
        await ended(engine, again.id)
    assert world.did["tell"] == 1


async def test_a_requeue_tries_the_failed_step_again_and_then_what_cleans_up(engine, database, world, story):
    world.broken = {"three"}
    async with running(database, story):
        failed = await play(engine)
        assert (failed.status, failed.step) == ("error", "three")
        assert [c.step_id for c in await engine.checkpoints(failed.id)][-2:] == ["three", "clean up"]

        still = await ended(engine, (await engine.requeue(failed.id, actor="bob")).id)
        assert (still.status, world.did["three"], world.did["clean up"]) == ("error", 2, 2)

        world.broken = set()
        mended = await ended(engine, (await engine.requeue(still.id, actor="bob")).id)
    assert mended.output == ["one 1", "yes", "two 1", "true", "three 3"]
    assert world.did["two"] == 1


async def test_a_failure_that_the_workflow_lived_with_stays_when_another_step_failed(engine, database, world):
    @workflow("patient", retry=NEVER)
    async def patient(run: Run, _: dict) -> str:
        try:
            await run.step("first choice", world.step("first choice"))
        except PermanentError:
            await run.step("second choice", world.step("second choice"))
        return await run.step("last", world.step("last"))

    world.broken = {"first choice", "last"}
    async with running(database, patient):
        failed = await ended(engine, (await engine.enqueue("patient", {}, actor="test")).execution.id)
        world.broken = set()
        again = await ended(engine, (await engine.requeue(failed.id, actor="bob")).id)
    assert again.output == "last 2"
    assert world.did == {"first choice": 1, "second choice": 1, "last": 2}


async def test_steps_that_ran_beside_the_failed_one_and_finished_are_kept(engine, database, world):
    @workflow("wide", retry=NEVER)
    async def wide(run: Run, _: dict) -> list:
        recorded = [asyncio.Event() for _ in range(5)]

        async def one(n: int) -> str:
            async def act() -> str:
                await asyncio.gather(*(event.wait() for event in recorded[:2] if n >= 2))  # they begin side by side, and end in this order
                return await world.step(f"s{n}")()

            result = await run.step(f"s{n}", act)
            recorded[n].set()
            return result

        return await asyncio.gather(*map(one, range(5)))

    async with running(database, wide):
        done = await ended(engine, (await engine.enqueue("wide", {}, actor="test")).execution.id)
        again = await ended(engine, (await engine.fork(done.id, from_step="s2", actor="bob")).id)
    assert again.output[2] == "s2 2"
    assert (world.did["s0"], world.did["s1"], world.did["s2"]) == (1, 1, 2)


@pytest.mark.parametrize("how", ["cancelled", "completed", "error"])
async def test_whatever_has_ended_can_be_forked_and_nothing_that_lives(engine, database, world, story, how):
    world.broken = {"three"} if how == "error" else set()
    async with running(database, story):
        task = (await engine.enqueue("story", {"n": 1}, actor="test")).execution
        await reached(engine, task.id, "waiting")
        with pytest.raises(IllegalTransition, match="is waiting: only what has ended can be forked"):
            await engine.fork(task.id, from_step="one", actor="bob")
        if how == "cancelled":
            await engine.cancel(task.id, actor="bob")
        else:
            await engine.emit(task.id, "approval", "yes", actor="anna")
            await engine.emit(task.id, "fact", "true", actor="test")
        assert (await ended(engine, task.id)).status == how
        again = await engine.fork(task.id, from_step="approval", actor="bob", version=1)
        await reached(engine, again.id, "waiting")
    assert world.did["one"] == 1


async def test_a_step_that_is_none_is_named_with_those_that_are(engine, database, story):
    async with running(database, story):
        done = await play(engine)
    with pytest.raises(NotFound, match=r"no step 'four'\. Its steps are: 'one', 'tell', 'approval', 'two', 'fact', 'three'"):
        await engine.fork(done.id, from_step="four", actor="bob")
    with pytest.raises(NotFound, match="no task"):
        await engine.fork(type(done.id)("00000000-0000-7000-8000-000000000000"), from_step="four", actor="bob")


async def test_a_map_that_comes_after_the_step_is_mapped_anew_and_one_that_failed_only_where_it_did(engine, database, world):
    failing = {2}

    @workflow("double", retry=NEVER)
    async def double(run: Run, number: int) -> int:
        world.did[f"double {number}"] += 1
        if number in failing:
            raise PermanentError("not this one")
        return 2 * number

    @workflow("doubled", retry=NEVER)
    async def doubled(run: Run, _: dict) -> list[int]:
        await run.step("first", world.step("first"))
        return await run.map("all", double, [0, 1, 2], concurrency=1)

    async with running(database, double, doubled):
        failed = await ended(engine, (await engine.enqueue("doubled", {}, actor="test")).execution.id)
        assert failed.status == "error"
        failing.clear()
        mended = await ended(engine, (await engine.requeue(failed.id, actor="bob")).id)
        assert mended.output == [0, 2, 4]
        assert (world.did["double 0"], world.did["double 1"], world.did["double 2"]) == (1, 1, 2)

        for from_step in ("all", "first"):
            before = world.did["double 0"]
            again = await ended(engine, (await engine.fork(mended.id, from_step=from_step, actor="bob")).id)
            assert (again.output, world.did["double 0"]) == ([0, 2, 4], before + 1)


async def test_a_map_under_way_when_its_parent_died_keeps_what_it_had(engine, database, world, psql):
    @workflow("double", retry=NEVER)
    async def double(run: Run, number: int) -> int:
        world.did[f"double {number}"] += 1
        if number == 1:
            await run.wait("go", str, timeout=timedelta(minutes=5))
        return 2 * number

    @workflow("doubled", retry=NEVER)
    async def doubled(run: Run, _: dict) -> list[int]:
        return await run.map("all", double, [0, 1, 2], concurrency=2)

    async with running(database, double, doubled):
        task = (await engine.enqueue("doubled", {}, actor="test")).execution

        async def two_are_done() -> bool:
            return await psql.fetchval("select count(*) from suture.child_results where parent_id = $1", task.id) == 2

        await eventually(two_are_done)
        await psql.execute("update suture.workflow_executions set deadline_at = now() - interval '1 s' where id = $1", task.id)
        assert (await ended(engine, task.id)).reason == "DeadlineExceeded"
        again = await engine.requeue(task.id, actor="bob")

        async def asked() -> list:
            return [one for one in await engine.page(workflow="double", statuses=["waiting"]) if one.parent_id == again.id]

        (child,) = await eventually(asked)
        await engine.emit(child.id, "go", "go", actor="test")
        assert (await ended(engine, again.id)).output == [0, 2, 4]
    assert (world.did["double 0"], world.did["double 2"]) == (1, 1)
