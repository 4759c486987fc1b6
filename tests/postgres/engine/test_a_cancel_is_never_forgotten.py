"""I12: what nobody runs is cancelled at once, what runs at its next step boundary or in its step; a wish survives every race."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from suture.engine import Lease, Run, workflow
from suture.engine.lease import sweep
from suture.engine.records import Failure
from suture.errors import IllegalTransition, LeaseLost, NotFound, Suspended
from tests.postgres.engine.stage import LEASE, ended, reached, running

NOW = datetime.now(UTC)


async def test_what_is_queued_or_waits_is_cancelled_at_once(engine, take):
    queued = (await engine.enqueue("w", None, actor="test")).execution
    waiting = (await engine.enqueue("w", None, actor="test", priority=1)).execution
    with pytest.raises(Suspended):
        await (await take()).wait("answer", event="answer", timeout=None)
    for id_, origin in ((queued.id, "enqueued"), (waiting.id, "waiting")):
        assert (await engine.cancel(id_, actor="anna", reason="not needed")).status == "cancelled"
        last = (await engine.timeline(id_))[-1]
        assert (last.from_status, last.actor, last.reason) == (origin, "anna", "not needed")


async def test_what_runs_is_stopped_in_its_step(engine, database):
    inside, stopped = asyncio.Event(), []

    async def long() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    @workflow("w")
    async def w(run: Run, _: None) -> None:
        await run.step("long", long)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await asyncio.wait_for(inside.wait(), 30)
        assert (await engine.cancel(task.id, actor="anna", reason="not needed")).status == "running"
        done = await ended(engine, task.id, within=8)
    last = (await engine.timeline(task.id))[-1]
    assert (done.status, last.actor, last.reason) == ("cancelled", "anna", "not needed")
    assert stopped == [1]
    assert await engine.dead_letters() == []


@pytest.mark.parametrize("hint", [True, False], ids=["with the hint", "by the heartbeat alone"])
async def test_a_step_that_swallows_its_cancellation_is_the_last_one(engine, database, database_url, hint):
    inside, leave, later = asyncio.Event(), asyncio.Event(), []

    async def stubborn() -> str:
        inside.set()
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                leave.set()
        return "done all the same"

    async def next_one() -> None:
        later.append(1)

    @workflow("w")
    async def w(run: Run, _: None) -> None:
        await run.step("stubborn", stubborn)
        await run.step("next", next_one)

    task = (await engine.enqueue("w", None, actor="test")).execution
    lease = Lease(timedelta(seconds=20), timedelta(seconds=0.2), timedelta(seconds=0.1), restart=timedelta(0))
    if not hint:
        database._direct = "postgresql:///none?host=/nonexistent"
    async with running(database, w, lease=lease):
        await asyncio.wait_for(inside.wait(), 30)
        await engine.cancel(task.id, actor="anna")
        assert (await ended(engine, task.id, within=8)).status == "cancelled"
    assert [c.output for c in await engine.checkpoints(task.id)] == ["done all the same"]
    assert later == []


async def test_a_cancelled_step_that_raises_something_else_is_cancelled_and_no_failure(engine, database):
    inside = asyncio.Event()

    async def converts() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("as some libraries do") from None

    @workflow("w")
    async def w(run: Run, _: None) -> None:
        await run.step("converts", converts)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await asyncio.wait_for(inside.wait(), 30)
        await engine.cancel(task.id, actor="anna")
        done = await ended(engine, task.id, within=8)
    assert (done.status, done.attempt) == ("cancelled", 1)


@pytest.mark.parametrize("way", ["suspend", "retry", "hand_back", "recover"])
async def test_a_wish_that_comes_just_before_the_row_goes_back_is_met(engine, database, take, pass_time, way):
    """The holder does not know of the wish yet. Among the waiting nobody would ever look for it."""
    task = (await engine.enqueue("w", None, actor="test")).execution
    claim = await take()
    await engine.cancel(task.id, actor="anna", reason="not needed")
    if way == "suspend":
        with pytest.raises(Suspended):
            await claim.wait("answer", event="answer", timeout=None)
    elif way == "retry":
        await claim.retry(Failure("Bad", "bad", "s"), delay=timedelta(hours=1), step_attempts=1, attempt=2)
    elif way == "hand_back":
        await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "handed back")
    else:
        await pass_time(31)
        await sweep(database, lease=LEASE)
    found, last = await engine.get(task.id), (await engine.timeline(task.id))[-1]
    assert (found.status, last.actor, last.reason) == ("cancelled", "anna", "not needed")
    assert found.finished_at


async def test_a_checkpoint_tells_its_writer_of_the_wish(engine, take):
    task = (await engine.enqueue("w", None, actor="test")).execution
    claim = await take()
    await claim.checkpoint("one", 1, kind="step", attempts=1, started_at=NOW)
    assert not claim.cancel_requested
    await engine.cancel(task.id, actor="anna")
    await claim.checkpoint("two", 2, kind="step", attempts=1, started_at=NOW)
    assert claim.cancel_requested


async def test_cancel_and_completion_that_race_give_one_end(engine, database):
    leave: dict = {}

    @workflow("w")
    async def w(run: Run, _: None) -> str:
        await leave.setdefault(run.id, asyncio.Event()).wait()
        return "done"

    ids = [(await engine.enqueue("w", None, actor="test")).execution.id for _ in range(30)]
    async with running(database, w, concurrency=30):
        for id_ in ids:
            await reached(engine, id_, "running")

        async def let_go(n: int, id_) -> None:
            await asyncio.sleep(n * 0.001)
            leave.setdefault(id_, asyncio.Event()).set()

        results = await asyncio.gather(
            *(engine.cancel(id_, actor="anna") for id_ in ids), *(let_go(n, id_) for n, id_ in enumerate(ids)), return_exceptions=True
        )
        ends = [await ended(engine, id_) for id_ in ids]
    assert [r for r in results if isinstance(r, BaseException) and not isinstance(r, IllegalTransition)] == []
    assert {e.status for e in ends} <= {"completed", "cancelled"}
    for end in ends:
        moves = await engine.timeline(end.id)
        assert [m.to_status for m in moves] == ["enqueued", "running", end.status]


async def test_to_cancel_twice_changes_nothing_and_what_has_ended_is_refused(engine, take):
    task = (await engine.enqueue("w", None, actor="test")).execution
    first = await engine.cancel(task.id, actor="anna")
    second = await engine.cancel(task.id, actor="bob")
    assert second == first
    assert len(await engine.timeline(task.id)) == 2
    done = (await engine.enqueue("w", None, actor="test")).execution
    await (await take()).complete(1)
    with pytest.raises(IllegalTransition, match=r"is completed: it cannot be cancelled\. Allowed are: nothing"):
        await engine.cancel(done.id, actor="anna")
    with pytest.raises(NotFound):
        await engine.cancel(UUID(int=5), actor="anna")


async def test_nothing_is_cancelled_that_nobody_wishes_cancelled(engine, take):
    task = (await engine.enqueue("w", None, actor="test")).execution
    with pytest.raises(LeaseLost):
        await (await take()).finish_cancel()
    assert (await engine.get(task.id)).status == "running"
