"""I10: steps and executions are tried again by their own policies; what does not help is not tried; nothing fails in silence."""

import asyncio
from datetime import datetime, timedelta

import pytest

from suture.engine import NEVER, Retry, Run, workflow
from suture.engine.lease import sweep
from suture.engine.records import Failure
from suture.errors import Conflict, IllegalTransition, NotFound, PermanentError, RateLimited, TemporaryError
from tests.postgres.engine.stage import LEASE, QUICK, ended, eventually, running


class Fails:
    """A step that fails some times before it does not."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.runs = error, times, 0

    async def __call__(self) -> str:
        self.runs += 1
        if self.runs <= self.times:
            raise self.error
        return "done"


def one_step(step, *, retry: Retry | None = QUICK, whole: Retry | None = None, timeout: timedelta | None = None):
    @workflow("w", retry=whole)
    async def w(run: Run, _: None) -> str:
        return await run.step("step", step, retry=retry, timeout=timeout)

    return w


async def test_a_step_is_tried_as_often_as_it_says_and_counts_apart_from_crashes(engine, database):
    step = Fails(ConnectionError("a secret"), 2)
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step)):
        done = await ended(engine, task.id)
    assert (done.status, done.attempt, done.crashes) == ("completed", 3, 0)
    assert (await engine.checkpoints(task.id))[0].attempts == 3


async def test_each_failed_try_is_in_the_log_with_its_place(engine, database, caplog):
    step = Fails(ConnectionError("it was the cable"), 2)
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step)):
        await ended(engine, task.id)
    told = [record for record in caplog.records if "a step failed and is tried again" in record.message]
    assert [(record.step, record.tries, record.task) for record in told] == [("step", 1, str(task.id)), ("step", 2, str(task.id))]
    assert "it was the cable" in caplog.text


async def test_the_last_failure_makes_a_dead_letter_that_keeps_no_secret(engine, database):
    step = Fails(ConnectionError("password=hunter2"), 99)
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step)):
        done = await ended(engine, task.id)
    (letter,) = await engine.dead_letters()
    assert (done.status, step.runs) == ("error", 3)
    assert (letter.execution_id, letter.reason, letter.step, letter.attempts, letter.crashes) == (task.id, "UnexpectedError", "step", 3, 0)
    assert letter.error.message == "ConnectionError; the worker's log has the details"


@pytest.mark.parametrize("inside", [True, False], ids=["in a step", "between steps"])
async def test_a_permanent_error_is_not_tried_again(engine, database, inside):
    step = Fails(PermanentError("this cannot work: use another name"), 99)

    @workflow("w")
    async def between(run: Run, _: None) -> str:
        return await step()

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step) if inside else between):
        done = await ended(engine, task.id)
    assert (step.runs, done.attempt, done.error.message) == (1, 1, "this cannot work: use another name")


async def test_a_temporary_error_says_when_it_is_tried_again(engine, database, pass_time):
    step = Fails(RateLimited("the forge asks for patience", delay=timedelta(seconds=700)), 1)
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step, retry=Retry(initial=timedelta(0)))):

        async def failed() -> bool:
            return (await engine.get(task.id)).attempt == 2

        await eventually(failed)
        waiting = await engine.get(task.id)
        assert waiting.run_at - waiting.updated_at == timedelta(seconds=700)
        assert (await engine.timeline(task.id))[-1].reason == "RateLimited: try again in 700 s"
        await pass_time(701)
        assert (await ended(engine, task.id)).output == "done"


async def test_failures_between_steps_have_tries_of_their_own(engine, database):
    """Two failures of a step do not use up what the workflow may fail by itself."""
    step, whole = Fails(ConnectionError(), 2), Fails(ConnectionError(), 2)

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> str:
        await run.step("step", step)
        return await whole()

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert (done.status, done.attempt, step.runs, whole.runs) == ("completed", 5, 3, 3)


async def test_a_limit_of_the_request_counts_all_tries(engine, database):
    step = Fails(ConnectionError(), 99)
    task = (await engine.enqueue("w", None, actor="test", max_attempts=2)).execution
    async with running(database, one_step(step, retry=Retry(attempts=9, initial=timedelta(0)))):
        assert (await ended(engine, task.id)).attempt == 2
    assert step.runs == 2


async def test_the_error_of_a_step_that_was_given_up_is_no_reason_to_run_the_whole_again(engine, database):
    step = Fails(ConnectionError(), 99)
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(step, retry=NEVER, whole=Retry(attempts=5, initial=timedelta(0)))):
        done = await ended(engine, task.id)
    assert (done.attempt, step.runs) == (1, 1)


async def test_a_step_that_takes_too_long_is_ended_and_tried_again(engine, database):
    runs = []

    async def slow() -> str:
        runs.append(1)
        await asyncio.sleep(60 if len(runs) == 1 else 0)
        return "done"

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(slow, timeout=timedelta(seconds=1))):
        assert (await ended(engine, task.id)).output == "done"
    assert len(runs) == 2


async def test_a_cancellation_inside_a_step_is_its_failure_and_not_the_worker_s_stop(engine, database):
    async def cancels() -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(cancels, retry=NEVER)):
        done = await ended(engine, task.id)
    assert (done.status, done.error.message, done.crashes) == ("error", "Something that the step waited for was cancelled.", 0)


async def test_a_group_of_tasks_may_hold_steps(engine, database):
    steps = [Fails(ConnectionError(), n) for n in range(2)]

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run.step(f"s{n}", step)) for n, step in enumerate(steps)]
        return [task.result() for task in tasks]

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert done.output == ["done", "done"]


async def test_a_group_whose_step_is_given_up_ends_in_error(engine, database):
    """The group cancels the workflow's own task to get out, and that must not be taken for the worker's stop."""

    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run.step("fails", Fails(PermanentError("no"), 9)))
            group.create_task(asyncio.sleep(60))

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        assert (await ended(engine, task.id)).status == "error"


async def test_an_input_that_no_longer_fits_is_buried_at_once(engine, database):
    @workflow("w")
    async def w(run: Run, input_: dict[str, int]) -> None: ...

    task = (await engine.enqueue("w", {"a": "secret"}, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert (done.status, done.attempt, done.error.reason) == ("error", 1, "InvalidRequest")
    assert "input.a: Input should be a valid integer" in done.error.message
    assert "secret" not in done.error.message


async def test_a_deadline_ends_what_waits_in_the_queue_and_what_runs(engine, database, pass_time, psql):
    inside, stopped = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    at = (await database.one("ping"))["at"] + timedelta(minutes=5)
    runs = (await engine.enqueue("w", None, actor="test", deadline_at=at)).execution
    waits = (await engine.enqueue("other", None, actor="test", deadline_at=at)).execution
    async with running(database, one_step(long)):
        await asyncio.wait_for(inside.wait(), 30)
        await pass_time(299)
        await sweep(database, lease=LEASE)
        assert (await engine.get(waits.id)).status == "enqueued"
        await pass_time(2)
        for id_ in (runs.id, waits.id):
            done = await ended(engine, id_)
            assert (done.status, done.error.reason) == ("error", "DeadlineExceeded")
        await asyncio.wait_for(stopped.wait(), 30)
    assert {letter.reason for letter in await engine.dead_letters()} == {"DeadlineExceeded"}


@pytest.mark.parametrize(("from_step", "first_runs"), [("failed", 1), ("start", 2)])
async def test_a_dead_letter_runs_again_from_the_failed_step_or_from_the_start(engine, database, from_step, first_runs):
    first, second = Fails(ConnectionError(), 0), Fails(PermanentError("no"), 1)

    @workflow("w")
    async def w(run: Run, _: dict[str, int]) -> str:
        await run.step("first", first)
        answer = await run.wait("answer", str)
        return answer + await run.step("second", second)

    task = (await engine.enqueue("w", {"n": 1}, actor="test", operation_key="k", labels={"a": "b"})).execution
    await engine.emit(task.id, "answer", "yes ", actor="anna")
    async with running(database, w):
        await ended(engine, task.id)
        again = await engine.requeue(task.id, actor="bob", from_step=from_step)
        assert (again.forked_from, again.operation_key, again.labels, again.input) == (task.id, "k", {"a": "b"}, {"n": 1})
        if from_step == "start":
            await engine.emit(again.id, "answer", "yes ", actor="anna")
        done = await ended(engine, again.id)
    assert (done.status, done.output, first.runs, second.runs) == ("completed", "yes done", first_runs, 2)
    (letter,) = await engine.dead_letters()
    assert letter.requeued_as == again.id
    with pytest.raises(IllegalTransition, match="no dead letter that waits"):
        await engine.requeue(task.id, actor="bob")


async def test_two_that_requeue_at_once_make_one_successor(engine, database, psql):
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, one_step(Fails(PermanentError("no"), 1))):
        await ended(engine, task.id)
    results = await asyncio.gather(*(engine.requeue(task.id, actor="bob") for _ in range(8)), return_exceptions=True)
    assert sum(not isinstance(r, Exception) for r in results) == 1
    assert {type(r) for r in results if isinstance(r, Exception)} == {IllegalTransition}
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 2


async def test_a_requeue_whose_key_is_taken_by_the_living_is_a_conflict_and_stays_possible(engine, database):
    task = (await engine.enqueue("w", None, actor="test", operation_key="k")).execution
    async with running(database, one_step(Fails(PermanentError("no"), 1))):
        await ended(engine, task.id)
    other = (await engine.enqueue("w", None, actor="test", operation_key="k", reuse="new")).execution
    with pytest.raises(Conflict, match=f"is taken by {other.id}"):
        await engine.requeue(task.id, actor="bob")
    await engine.cancel(other.id, actor="bob")
    assert (await engine.requeue(task.id, actor="bob")).status == "enqueued"
    with pytest.raises(NotFound):
        await engine.requeue(type(other.id)("00000000-0000-7000-8000-000000000000"), actor="bob")


async def test_an_unfit_time_zone_cannot_shift_a_retry(engine, database, take):
    """Durations are added by the database to its own clock: there is no local time to be an hour off."""
    await engine.enqueue("w", None, actor="test")
    claim = await take()
    before: datetime = (await database.one("ping"))["at"]
    await claim.retry(Failure("Bad", "bad"), delay=timedelta(hours=24), step_attempts=1, attempt=2)
    found = await engine.get(claim.execution.id)
    assert timedelta(0) <= found.run_at - before - timedelta(hours=24) < timedelta(minutes=1)


async def test_a_swallowed_signal_is_not_possible(engine, database):
    """A workflow that catches every Exception still suspends for the pause between two tries."""
    step = Fails(TemporaryError("soon", delay=timedelta(0)), 1)

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> str:
        try:
            return await run.step("step", step)
        except Exception:  # noqa: BLE001 (what careless code does)
            return "swallowed"

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        assert (await ended(engine, task.id)).output == "done"
