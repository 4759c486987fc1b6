"""I10: the wait in the queue, the run and the whole have deadlines that are rows; lost workers count until there is progress."""

from datetime import UTC, datetime, timedelta

import pytest

from suture.engine import NEVER, Run, workflow
from suture.engine.lease import sweep
from tests.postgres.engine.stage import LEASE, ended, reached, running

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@workflow("w")
async def w(run: Run, _: None) -> None:
    await run.wait("go", type(None))


async def test_what_nobody_begins_in_time_ends_in_the_dead_letters(engine, database, pass_time):
    late = (await engine.enqueue("w", None, actor="test", queue_timeout=timedelta(seconds=60))).execution
    patient = (await engine.enqueue("w", None, actor="test", queue_timeout=timedelta(seconds=600))).execution
    await pass_time(59)
    await sweep(database, lease=LEASE)
    assert (await engine.get(late.id)).status == "enqueued"
    await pass_time(2)
    await sweep(database, lease=LEASE)
    done = await engine.get(late.id)
    assert (done.status, done.error.reason, "not begun by" in done.error.message) == ("error", "QueueTimeout", True)
    assert [letter.reason for letter in await engine.dead_letters()] == ["QueueTimeout"]
    assert (await engine.get(patient.id)).status == "enqueued"


async def test_the_wait_counts_from_when_it_is_due(engine, database, pass_time):
    soon = datetime.now(UTC) + timedelta(seconds=100)
    task = (await engine.enqueue("w", None, actor="test", run_at=soon, queue_timeout=timedelta(seconds=10))).execution
    await pass_time(105)
    await sweep(database, lease=LEASE)
    assert (await engine.get(task.id)).status == "enqueued"
    await pass_time(10)
    await sweep(database, lease=LEASE)
    assert (await engine.get(task.id)).error.reason == "QueueTimeout"


async def test_what_was_begun_in_time_may_come_back_to_the_queue(engine, database, take, pass_time):
    task = (await engine.enqueue("w", None, actor="test", queue_timeout=timedelta(seconds=60))).execution
    claim = await take()
    await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")
    await pass_time(100)
    await sweep(database, lease=LEASE)
    assert (await engine.get(task.id)).status == "enqueued"


@pytest.mark.parametrize("deadline", [None, 3600.0, 10.0])
async def test_a_run_has_its_time_from_when_it_is_begun(engine, database, pass_time, deadline):
    """The nearer one counts, where there is a deadline of the whole as well."""
    whole = None if deadline is None else datetime.now(UTC) + timedelta(seconds=deadline + 1000)
    task = (await engine.enqueue("w", None, actor="test", run_timeout=timedelta(seconds=60), deadline_at=whole)).execution
    await pass_time(1000)  # the wait in the queue does not count
    async with running(database, w):
        waiting = await reached(engine, task.id, "waiting")
    left = min(60.0, deadline or 60.0)
    assert abs((waiting.deadline_at - waiting.started_at).total_seconds() - left) < 10
    await pass_time(left + 10)
    await sweep(database, lease=LEASE)
    done = await engine.get(task.id)
    assert (done.status, done.error.reason) == ("error", "DeadlineExceeded")


async def test_a_key_that_is_taken_keeps_the_deadlines_of_its_execution(engine, psql):
    await engine.enqueue("w", None, actor="test", operation_key="k", run_timeout=timedelta(seconds=60))
    again = await engine.enqueue("w", None, actor="test", operation_key="k", run_timeout=timedelta(seconds=1))
    assert not again.created
    assert await psql.fetchval("select run_timeout from suture.workflow_executions") == timedelta(seconds=60)


async def lose(database, pass_time) -> None:
    await pass_time(60)
    await database.many("recover", timedelta(0), 5, 10, "test", timedelta(0))


async def test_workers_that_are_lost_over_weeks_make_no_dead_letter_as_long_as_steps_are_finished(engine, database, take, pass_time):
    task = (await engine.enqueue("w", None, actor="test")).execution
    for number in range(20):
        claim = await take()
        await claim.checkpoint(f"step-{number}", None, kind="step", attempts=1, started_at=NOW)
        await lose(database, pass_time)
        found = await engine.get(task.id)
        assert (found.status, found.crashes) == ("enqueued", 1)


async def test_progress_under_another_worker_begins_the_count_anew(engine, database, take, pass_time):
    task = (await engine.enqueue("w", None, actor="test")).execution
    for _ in range(4):
        await take()
        await lose(database, pass_time)
    assert (await engine.get(task.id)).crashes == 4
    claim = await take()
    await claim.checkpoint("step", None, kind="step", attempts=1, started_at=NOW)
    await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")
    await take()
    await lose(database, pass_time)
    assert (await engine.get(task.id)).crashes == 1


async def test_a_loop_that_finishes_nothing_ends_in_the_dead_letters(engine, database, take, pass_time):
    task = (await engine.enqueue("w", None, actor="test")).execution
    claim = await take()
    await claim.checkpoint("step", None, kind="step", attempts=1, started_at=NOW)
    await lose(database, pass_time)
    for _ in range(5):
        await take()
        await lose(database, pass_time)
    done = await engine.get(task.id)
    assert (done.status, done.error.reason, done.crashes) == ("error", "CrashLoop", 6)


async def test_who_comes_to_a_wait_with_progress_is_no_suspect_any_more(engine, database, take, pass_time):
    @workflow("w", retry=NEVER)
    async def long(run: Run, _: None) -> None:
        async def step() -> None: ...

        await run.step("step", step)
        await run.wait("go", type(None))

    task = (await engine.enqueue("w", None, actor="test")).execution
    for _ in range(2):
        await take()
        await lose(database, pass_time)
    async with running(database, long):
        assert (await reached(engine, task.id, "waiting")).crashes == 0
        await engine.emit(task.id, "go", None, actor="test")
        await ended(engine, task.id)
