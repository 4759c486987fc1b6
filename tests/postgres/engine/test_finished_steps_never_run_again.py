"""I5: the first write of a step wins, its result comes back in the same statement, and code may gain steps while executions wait."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from suture.engine import NEVER, Run, workflow
from suture.engine.ids import uuid7
from suture.errors import ReplayMismatch
from tests.postgres.engine.stage import LEASE, ended, eventually, reached, running

NOW = datetime.now(UTC)


async def test_of_two_that_write_the_same_step_at_once_both_get_the_first_result(engine, take):
    await engine.enqueue("anything", None, actor="test")
    claim = await take()
    for n in range(20):
        results = await asyncio.gather(*(claim.checkpoint(f"s{n}", i, kind="step", attempts=1, started_at=NOW) for i in range(4)))
        assert len(set(results)) == 1
        assert (await claim.checkpoints())[f"s{n}"].output == results[0]


async def test_the_second_writer_gets_the_prior_result_even_where_its_snapshot_cannot_see_it(engine, database, psql, take):
    """The first has not committed yet when the second starts to write: it waits, and reads what was committed meanwhile."""
    task = (await engine.enqueue("anything", None, actor="test")).execution
    claim = await take()
    insert = """insert into suture.operation_outputs (execution_id, step_id, kind, output, owner_id, epoch, started_at)
                values ($1, 'pay', 'step', '"first"', $2, 1, now())"""
    transaction = psql.transaction()
    await transaction.start()
    await psql.execute(insert, task.id, uuid7())
    second = asyncio.create_task(claim.checkpoint("pay", "second", kind="step", attempts=1, started_at=NOW))
    done, _ = await asyncio.wait([second], timeout=0.2)
    assert not done
    await transaction.commit()
    assert await second == "first"


async def test_steps_that_finished_before_a_kill_never_run_again(engine, workers):
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    killed = []
    for n in range(3):
        worker = workers.start()
        await workers.noted("hold", times=n + 1)
        worker.kill()
        killed.append(worker.pid)
    workers.release()
    last = workers.start()
    done = await ended(engine, task.id)
    assert done.output == last.pid
    assert workers.notes("first") == killed[:1]
    assert workers.notes("hold") == [*killed, last.pid]
    assert workers.notes("last") == [last.pid]


async def test_a_result_is_the_same_in_the_first_run_and_in_every_later_one(engine, database):
    seen = []

    @workflow("typed")
    async def typed(run: Run, _: None) -> None:
        async def moment() -> datetime:
            return NOW

        async def loose() -> tuple:
            return (1, 2)

        seen.append((await run.step("moment", moment), await run.step("loose", loose)))
        await run.wait("go", int)

    task = (await engine.enqueue("typed", None, actor="test")).execution
    async with running(database, typed):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", 1, actor="test")
        await ended(engine, task.id)
    assert seen == [(NOW, (1, 2))] * 2


async def test_a_step_name_that_is_used_twice_is_an_error(engine, database):
    runs = []

    async def note() -> None:
        runs.append(1)

    @workflow("twice")
    async def twice(run: Run, _: None) -> None:
        await run.step("pay", note)
        await run.step("pay", note)

    task = (await engine.enqueue("twice", None, actor="test")).execution
    async with running(database, twice):
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason) == ("error", "ReplayMismatch")
    assert "'pay' is used twice" in done.error.message
    assert runs == [1]


async def test_a_step_that_is_added_under_a_wait_is_safe_and_runs_once(engine, database):
    runs = []

    def noted(name):
        async def note() -> str:
            runs.append(name)
            return name

        return note

    @workflow("order")
    async def old(run: Run, _: None) -> list[str]:
        first = await run.step("first", noted("first"))
        await run.wait("go", int)
        return [first]

    @workflow("order")
    async def new(run: Run, _: None) -> list[str]:
        added = await run.step("added", noted("added"))
        first = await run.step("first", noted("first"))
        await run.wait("go", int)
        return [first, added, await run.step("last", noted("last"))]

    task = (await engine.enqueue("order", None, actor="test")).execution
    async with running(database, old):
        await reached(engine, task.id, "waiting")
    async with running(database, new):
        await engine.emit(task.id, "go", 1, actor="test")
        done = await ended(engine, task.id)
    assert done.output == ["first", "added", "last"]
    assert runs == ["first", "added", "last"]


async def test_a_step_that_became_another_kind_is_loud(engine, database, take):
    task = (await engine.enqueue("changed", None, actor="test")).execution
    claim = await take()
    await claim.checkpoint("approval", 1, kind="step", attempts=1, started_at=NOW)
    await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")

    @workflow("changed", retry=NEVER)
    async def changed(run: Run, _: None) -> None:
        with pytest.raises(ReplayMismatch, match="recorded as a step and the code now has a wait"):
            await run.wait("approval", int)

    async with running(database, changed):  # however the code takes it
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason) == ("error", "ReplayMismatch")


async def test_a_recorded_result_that_no_longer_fits_the_code_is_loud(engine, database, take):
    task = (await engine.enqueue("changed", None, actor="test")).execution
    claim = await take()
    await claim.checkpoint("count", "many", kind="step", attempts=1, started_at=NOW)
    await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")

    async def count() -> int:
        return 1

    @workflow("changed")
    async def changed(run: Run, _: None) -> None:
        await run.step("count", count)

    async with running(database, changed):
        done = await ended(engine, task.id)
    assert done.error.reason == "ReplayMismatch"
    assert "recorded result of the step count" in done.error.message


async def test_a_result_that_could_not_be_read_back_fails_before_it_is_kept(engine, database):
    runs = []

    async def liar() -> int:
        runs.append(1)
        return "a secret"  # type: ignore[return-value]

    async def stranger() -> object:
        runs.append(1)
        return object()

    @workflow("bad")
    async def bad(run: Run, which: str) -> None:
        await run.step("step", liar if which == "liar" else stranger)

    for which in ("liar", "stranger"):
        task = (await engine.enqueue("bad", which, actor="test")).execution
        async with running(database, bad):
            done = await ended(engine, task.id)
        assert (done.status, done.error.reason, done.attempt) == ("error", "PayloadUnfit", 1)
        assert "The result of the step step" in done.error.message
        assert "secret" not in done.error.message
        assert [c.kind for c in await engine.checkpoints(task.id)] == ["failure"]
    assert runs == [1, 1]


async def test_the_workflow_s_own_result_is_checked_as_well(engine, database):
    @workflow("bad")
    async def bad(run: Run, size: int) -> object:
        return "x" * size if size else object()

    unfit, large = [(await engine.enqueue("bad", n, actor="test")).execution.id for n in (0, 2 << 20)]
    async with running(database, bad):
        assert (await ended(engine, unfit)).error.reason == "PayloadUnfit"
        assert (await ended(engine, large)).error.reason == "PayloadTooLarge"


async def test_text_that_is_no_unicode_never_fails_a_step_that_is_done(engine, database):
    odd = {"log": "a\0b\ud800", "nan": float("nan"), "\ud800": [1e22, -0.0, 2**53 + 1]}

    async def plain() -> str:
        return "a\0b\ud800"

    async def typed() -> dict[str, object]:
        return odd

    @workflow("odd")
    async def odd_one(run: Run, _: None) -> object:
        first = await run.step("plain", plain), await run.step("typed", typed)
        await run.wait("go", int)
        return list(first)

    task = (await engine.enqueue("odd", None, actor="test")).execution
    async with running(database, odd_one):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", 1, actor="test")
        done = await ended(engine, task.id)
    assert done.status == "completed"
    assert repr(done.output) == repr(["a\0b\ud800", odd])


async def test_a_write_under_way_arrives_although_its_worker_stops(engine, database, psql):
    """The step is done: its checkpoint waits for a lock when the drain cancels, and must not be lost."""

    async def pay() -> str:
        return "paid"

    @workflow("payment")
    async def payment(run: Run, _: None) -> None:
        await run.step("pay", pay)
        await run.wait("never", int)

    async with psql.transaction():
        await psql.execute("lock table suture.operation_outputs in share row exclusive mode")
        task = (await engine.enqueue("payment", None, actor="test")).execution
        async with running(database, payment, lease=LEASE, drain=timedelta(0)) as runner:

            async def waits() -> bool:
                return await psql.fetchval("select exists (select from pg_locks where not granted)")

            await eventually(waits)
            runner.stop()
            await asyncio.sleep(0.05)
            await psql.execute("select 1")
            await psql.execute("rollback")
    assert [c.step_id for c in await engine.checkpoints(task.id)] == ["pay"]


async def test_a_confirmation_under_way_arrives_although_its_step_is_cancelled(engine, take, psql):
    """The effect is there: whoever cancels the step hears of it when the ledger knows."""
    task = (await engine.enqueue("payment", None, actor="test")).execution
    claim = await take()
    await claim.intend("pay", kind="pay", key="a")
    async with psql.transaction():
        await psql.execute("select from suture.effects for update")
        paying = asyncio.create_task(claim.confirm("pay", "paid", kind="pay", key="a", attempts=1, started_at=NOW))
        await eventually(lambda: psql.fetchval("select exists (select from pg_locks where not granted)"))
        paying.cancel()
        await asyncio.sleep(0.2)  # in which a statement that is told to stop has stopped
    with pytest.raises(asyncio.CancelledError):
        await paying
    assert [c.output for c in await engine.checkpoints(task.id)] == ["paid"]
