"""I13: a step of a paused kind is begun by nobody; whoever comes to it is a waiting row that says why, and goes on when the pause ends."""

import asyncio
from datetime import timedelta

import pytest

from suture.engine import NEVER, Limits, Run, workflow
from suture.engine.steps import PausedStep, Pauses
from suture.errors import NotFound
from tests.postgres.engine.stage import ended, eventually, reached, running


class Stage:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.inside, self.go = asyncio.Event(), asyncio.Event()


async def note(stage: Stage, name: str) -> str:
    stage.done.append(name)
    return name


async def let_go(stage: Stage) -> None:
    stage.inside.set()
    await stage.go.wait()


@workflow("fix")
async def fix(run: Run, _: None) -> str:
    stage: Stage = run.resources
    await run.step("diagnose", note, stage, "diagnose")
    await run.step("let-go", let_go, stage)
    return await run.step("open-pull-request", note, stage, "open")


@workflow("other")
async def other(run: Run, _: None) -> str:
    return await run.step("open-pull-request", note, run.resources, "other")


@workflow("deliver")
async def deliver(run: Run, _: None) -> str:
    stage: Stage = run.resources

    async def find() -> str | None:
        return None

    return await run.effect(
        "deliver-1", kind="pull-request", key="k", find=find, act=lambda: note(stage, "deliver"), returns=str, retry=NEVER
    )


@pytest.fixture
def stage():
    return Stage()


async def test_a_run_suspends_in_front_of_a_paused_step_and_goes_on_after_it(engine, database, stage):
    await engine.steps.pause("open-*", actor="anna", reason="release freeze")
    stage.go.set()
    task = (await engine.enqueue("fix", None, actor="test")).execution
    async with running(database, fix, resources=stage):
        found = await reached(engine, task.id, "waiting")
        assert (found.step, found.reason) == ("open-pull-request", "open-pull-request is paused by anna: release freeze")
        assert stage.done == ["diagnose"]
        assert await engine.steps.resume("open-*", actor="bert") == 1
        assert (await ended(engine, task.id)).output == "open"
    moves = [(move.actor, move.to_status, move.reason) for move in await engine.timeline(task.id)]
    assert ("bert", "enqueued", "open-pull-request is paused no longer") in moves
    assert stage.done == ["diagnose", "open"]
    assert (await engine.get(task.id)).attempt == 1


async def test_a_pause_holds_for_what_runs_already_and_takes_back_nothing(engine, database, stage):
    task = (await engine.enqueue("fix", None, actor="test")).execution
    async with running(database, fix, resources=stage, poll=timedelta(minutes=10)) as runner:
        await asyncio.wait_for(stage.inside.wait(), 30)
        await engine.steps.pause("let-go", actor="anna")
        await engine.steps.pause("open-pull-request", actor="anna")
        await eventually(lambda: _covers(runner, "fix", "open-pull-request"), what="that a worker hears of a pause")
        stage.go.set()
        await reached(engine, task.id, "waiting")
        assert await engine.steps.resume("let-go", actor="anna") == 0
        assert (await engine.get(task.id)).status == "waiting"
        assert await engine.steps.resume("open-pull-request", actor="anna") == 1
        await ended(engine, task.id)
    assert stage.done == ["diagnose", "open"]


async def test_a_pause_of_one_workflow_leaves_the_others_alone(engine, database, stage):
    await engine.steps.pause("open-pull-request", workflow="fi*", actor="anna")
    stage.go.set()
    held = (await engine.enqueue("fix", None, actor="test")).execution
    free = (await engine.enqueue("other", None, actor="test")).execution
    async with running(database, fix, other, resources=stage):
        await ended(engine, free.id)
        await reached(engine, held.id, "waiting")
        await engine.steps.resume("open-pull-request", workflow="fi*", actor="anna")
        await ended(engine, held.id)


async def test_what_two_pauses_cover_goes_on_when_both_have_ended(engine, database, stage):
    await engine.steps.pause("open-*", actor="anna")
    await engine.steps.pause("*-request", actor="bert")
    task = (await engine.enqueue("other", None, actor="test")).execution
    async with running(database, other, resources=stage):
        await reached(engine, task.id, "waiting")
        assert [(p.step, p.paused_by, p.held) for p in await engine.steps.list()] == [("*-request", "bert", 1), ("open-*", "anna", 1)]
        assert await engine.steps.resume("open-*", actor="anna") == 0
        assert await engine.steps.resume("*-request", actor="anna") == 1
        await ended(engine, task.id)
    assert await engine.steps.list() == []


async def test_an_effect_is_paused_by_its_kind_even_for_a_worker_that_has_not_heard(engine, database, stage):
    async with running(database, deliver, resources=stage) as runner:
        await eventually(lambda: _hears(runner))
        deaf = runner._pauses
        deaf.read = _nothing  # as if no word of it came through
        await engine.steps.pause("pull-request", actor="anna", reason="no more")
        task = (await engine.enqueue("deliver", None, actor="test")).execution
        found = await reached(engine, task.id, "waiting")
        assert found.reason == "deliver-1 is paused by anna: no more"
        assert stage.done == []
        await engine.steps.resume("pull-request", actor="anna")
        assert (await ended(engine, task.id)).output == "deliver"
    assert stage.done == ["deliver"]


async def test_a_worker_without_hints_asks_with_each_poll(engine, database, stage):
    pauses = Pauses(database, poll=timedelta(seconds=0.05))
    following = asyncio.create_task(pauses.follow())
    await engine.steps.pause("open-*", actor="anna")

    async def known():
        return pauses.cover("fix", "open-pull-request")

    await eventually(known)
    following.cancel()


async def test_a_held_execution_can_be_cancelled_and_keeps_neither_slot_nor_place(engine, database, stage):
    await engine.queues.limit("default", Limits(concurrency=1), actor="anna")
    await engine.steps.pause("open-pull-request", actor="anna")
    first, second = [(await engine.enqueue("other", None, actor="test")).execution.id for _ in range(2)]
    async with running(database, other, resources=stage, concurrency=1):
        await reached(engine, first, "waiting")
        await reached(engine, second, "waiting")
        await engine.cancel(first, actor="anna")
        assert await engine.steps.resume("open-pull-request", actor="anna") == 1
        await ended(engine, second)
    assert stage.done == ["other"]


async def test_no_run_is_left_waiting_by_a_pause_that_ends_while_it_suspends(engine, database, stage):
    ids = [(await engine.enqueue("other", None, actor="test")).execution.id for _ in range(40)]
    async with running(database, other, resources=stage, concurrency=8), running(database, other, resources=stage, concurrency=8):
        for _ in range(30):
            await engine.steps.pause("open-pull-request", actor="anna")
            await asyncio.sleep(0)
            await engine.steps.resume("open-pull-request", actor="anna")
        for id_ in ids:
            await ended(engine, id_)
    assert sorted(stage.done) == ["other"] * 40


async def test_a_pause_that_ends_waits_for_whoever_is_being_suspended(engine, database, psql, take, stage):
    """The lock that both take: a run that has seen the pause is seen by whoever ends it."""
    await engine.steps.pause("s", actor="anna")
    await engine.enqueue("w", None, actor="test")
    claim = await take()
    async with database.transaction() as session:
        await session.none("share_steps")
        assert await session.maybe("find_pause", "w", "s", "s")
        assert await session.maybe("suspend", *claim.fence, "s", "worker", "paused")
        resuming = asyncio.create_task(engine.steps.resume("s", actor="anna"))
        await eventually(lambda: psql.fetchval("select exists (select from pg_locks where not granted and locktype = 'advisory')"))
        await session.none("note_held", claim.execution.id, "w", "s", "s")
    assert await resuming == 1
    assert (await engine.get(claim.execution.id)).status == "enqueued"


async def test_a_pause_that_is_none_is_named(engine):
    with pytest.raises(NotFound, match="no pause of 'open' of fix"):
        await engine.steps.resume("open", workflow="fix", actor="anna")


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a_c", "abc", False),
        ("a%", "abc", False),
        ("a\\*", "a\\b", True),
        ("*", "x", True),
        ("A", "a", False),
    ],
)
async def test_a_worker_and_the_database_read_a_pattern_alike(psql, pattern, name, covered):
    now = await psql.fetchval("select now()")
    assert PausedStep(pattern, "*", "anna", now, "").covers("w", name) is covered
    assert await psql.fetchval("select suture.covers($1, $2)", pattern, name) is covered


async def _covers(runner, name, step):
    return runner._pauses.cover(name, step)


async def _hears(runner):
    return runner._pauses._hears


async def _nothing():
    return None
