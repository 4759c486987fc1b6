"""I4: work of a lost worker runs again soon, by whoever is there; a worker that stops hands back; what kills workers is buried."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from suture.engine import Database, Engine, Lease, Run, workflow
from suture.engine.ids import uuid7
from suture.engine.lease import beat, sweep, tidy
from suture.engine.records import Failure
from tests.nursery import NOWHERE
from tests.postgres.engine.stage import LEASE, Worker, ended, eventually, reached, running

CRASHES = 3


async def test_a_killed_worker_is_missed_within_a_second(engine, workers):
    """Its presence goes with its connection; the lease of 30 s is not waited for."""
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    first = workers.start(name="first")
    heir = workers.start(name="heir", queue="elsewhere")
    await workers.noted("hold")
    heir = workers.start(name="heir")
    await shown(engine, 3)
    loop = asyncio.get_running_loop()
    first.kill()
    killed = loop.time()
    await workers.noted("hold", times=2)
    missed = loop.time() - killed
    workers.release()

    done = await ended(engine, task.id)
    assert missed < 1.5  # "in about a second", on a machine that is busy
    assert (done.status, done.output, done.crashes, done.attempt) == ("completed", heir.pid, 1, 1)
    assert workers.notes("first") == [first.pid]
    assert "worker gone" in [move.reason for move in await engine.timeline(task.id)]


async def test_without_presence_the_lease_alone_brings_it_back(engine, workers):
    """As through PgBouncer, or when a whole node goes."""
    lease = 3.0
    options = {"presence": False, "lease": lease, "heartbeat": lease / 3}
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    first = workers.start(name="first", **options)
    await workers.noted("hold")
    workers.start(name="heir", **options)
    first.kill()
    await workers.noted("hold", times=2, within=lease + 2)
    workers.release()
    done = await ended(engine, task.id)
    assert (done.status, done.crashes) == ("completed", 1)
    assert "lease expired" in [move.reason for move in await engine.timeline(task.id)]


async def test_what_kills_its_workers_ends_in_the_dead_letters_and_takes_no_innocent_one_along(engine, workers):
    task = (await engine.enqueue("crasher", None, actor="test")).execution
    innocent = [(await engine.enqueue("three-steps", None, actor="test")).execution.id for _ in range(3)]
    for _ in range(CRASHES - 1):  # all share the worker, until all are suspects
        await workers.start(crash_limit=CRASHES).gone()
    workers.release()
    while not (await engine.get(task.id)).finished_at:
        worker = workers.start(crash_limit=CRASHES)

        async def over(worker: Worker = worker) -> bool:
            return not worker.alive or (await engine.get(task.id)).finished_at is not None

        await eventually(over)
    workers.start(crash_limit=CRASHES)

    done = await ended(engine, task.id)
    assert (done.status, done.error.reason, done.crashes, done.attempt) == ("error", "CrashLoop", CRASHES + 1, 1)
    assert f"lost {CRASHES + 1} times" in done.error.message
    (letter,) = await engine.dead_letters()
    assert (letter.execution_id, letter.reason, letter.crashes) == (task.id, "CrashLoop", CRASHES + 1)
    assert len(workers.notes("crash")) == CRASHES + 1
    assert {(await ended(engine, id_)).status for id_ in innocent} == {"completed"}


async def test_sigterm_hands_work_back_at_once_and_costs_no_attempt(engine, workers):
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    worker = workers.start(drain=0)
    await workers.noted("hold")
    loop = asyncio.get_running_loop()
    start = loop.time()
    worker.signal(signal.SIGTERM)
    handed_back = await reached(engine, task.id, "enqueued")
    assert loop.time() - start < 5  # neither a heartbeat nor a lease was waited for
    assert (handed_back.attempt, handed_back.crashes) == (1, 0)
    await worker.gone()
    assert loop.time() - start < 8

    workers.release()
    heir = workers.start()
    done = await ended(engine, task.id)
    assert (done.output, done.attempt, done.crashes) == (heir.pid, 1, 0)
    assert workers.notes("first") == [worker.pid]


async def test_a_worker_that_stops_lets_its_steps_finish_and_claims_nothing_more(engine, workers):
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    worker = workers.start(drain=60)
    await workers.noted("hold")
    await worker.stop()
    later = (await engine.enqueue("three-steps", None, actor="test")).execution
    await asyncio.sleep(1)  # five times as long as it naps between two claims
    workers.release()
    await worker.gone()
    assert (await engine.get(task.id)).output == worker.pid
    left = await engine.get(later.id)
    assert left.status == "enqueued"
    assert left.epoch <= 1  # a claim that was on its way when the signal came is handed back


async def test_sweeps_by_several_workers_at_once_recover_each_execution_once(engine, database, take, pass_time):
    for _ in range(40):
        await engine.enqueue("anything", None, actor="test")
    for _ in range(40):
        await take()
    await pass_time(31)

    recovered = sum(await asyncio.gather(*(sweep(database, lease=LEASE) for _ in range(8))))

    assert recovered == 40
    page = await engine.page(limit=100)
    assert {(e.status, e.crashes, e.attempt) for e in page} == {("enqueued", 1, 1)}


async def test_a_sweep_passes_by_what_another_is_about_to_recover(engine, database, take, pass_time):
    await engine.enqueue("anything", None, actor="test")
    await take()
    await pass_time(31)
    async with database.transaction() as first:
        assert len(await first.many("recover", LEASE.grace, LEASE.crash_limit, 10, "first", LEASE.restart)) == 1
        assert await sweep(database, lease=LEASE) == 0, "and it does not wait, either"
    assert [e.crashes for e in await engine.page()] == [1]


async def test_a_sweep_that_was_held_up_takes_nothing_from_the_heir(engine, database, psql, take, pass_time):
    """The second of two sweeps saw the same expired lease, and comes to write only after an heir has claimed."""
    task = (await engine.enqueue("anything", None, actor="test")).execution
    lost = await take("lost")
    await pass_time(31)
    async with psql.transaction(isolation="repeatable_read"):
        await psql.fetch("select * from suture.workflow_executions")  # its snapshot
        await sweep(database, lease=LEASE)
        heir = await take("heir")
        with pytest.raises(Exception, match="could not serialize"):
            await psql.execute("update suture.workflow_executions set status = 'enqueued', owner_id = null, lease_expires = null")
    assert await sweep(database, lease=LEASE) == 0
    found = await engine.get(task.id)
    assert (found.owner_id, found.epoch, found.crashes) == (heir.owner, lost.epoch + 1, 1)


async def test_a_holder_that_beats_is_not_swept(engine, database, take, pass_time):
    await engine.enqueue("anything", None, actor="test")
    claim = await take()
    for _ in range(5):
        await pass_time(20)
        assert (await beat(database, claim.owner, [claim], lease=LEASE)).lost == []
        assert await sweep(database, lease=LEASE) == 0


async def test_whoever_knows_that_a_worker_is_gone_ends_its_leases_at_once(engine, database, take, psql):
    task = (await engine.enqueue("anything", None, actor="test")).execution
    claim = await take("pod-7")
    await database.none("register", claim.owner, "pod-7", "1", ["default"])
    assert await engine.expire("another") == []
    assert await engine.expire("pod-7") == [task.id]
    assert await sweep(database, lease=LEASE) == 1


async def test_a_step_that_blocks_the_event_loop_keeps_its_lease(engine, workers):
    lease = 2.0
    task = (await engine.enqueue("blocker", 5.0, actor="test")).execution
    first = workers.start(name="first", lease=lease, heartbeat=lease / 3)
    await workers.noted("block")
    workers.start(name="other", lease=lease, heartbeat=lease / 3)
    done = await ended(engine, task.id)
    assert (done.output, done.crashes, done.epoch) == (first.pid, 0, 1)
    assert workers.notes("block") == [first.pid]
    assert "blocked the event loop" in first.log()


async def test_a_process_whose_loop_hangs_for_ever_loses_its_work_some_time(engine, workers):
    lease = {"lease": 0.6, "heartbeat": 0.2, "presence": False}
    await engine.enqueue("blocker", 30.0, actor="test")
    first = workers.start(name="first", blocked=0.4, **lease)
    await workers.noted("block")
    other = workers.start(name="other", **lease)
    assert await workers.noted("block", times=2) == [first.pid, other.pid]
    assert "the leases are left to run out" in first.log()


async def test_a_sweep_waits_for_nobody(engine, database, psql, take, pass_time):
    """A row that somebody is writing is not lost; the next sweep looks at it again."""
    for _ in range(2):
        await engine.enqueue("anything", None, actor="test")
    written, _ = await take(), await take()
    await pass_time(31)
    async with psql.transaction():
        await psql.execute("select from suture.workflow_executions where id = $1 for update", written.execution.id)
        assert await asyncio.wait_for(sweep(database, lease=LEASE), 30) == 1
    assert await sweep(database, lease=LEASE) == 1


async def test_a_worker_that_lives_without_its_listening_connection_is_judged_by_its_lease(
    engine, database_url, direct_url, psql, pass_time
):
    """It cannot listen again; it says so, and is not taken for dead."""

    @workflow("long")
    async def long(run: Run, _: None) -> None:
        await run.step("wait", asyncio.Event().wait)

    async with Database.connect(database_url, direct=direct_url) as own:
        task = (await engine.enqueue("long", None, actor="test")).execution
        async with running(own, long):
            await reached(engine, task.id, "running")
            await shown(engine, 1)
            own._direct = NOWHERE
            await psql.fetch("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and objsubid = 1")

            async def hidden() -> bool:
                return not any(worker["presence"] for worker in (await engine.health()).workers)

            await eventually(hidden)
            await sweep(own, lease=LEASE)
            await pass_time(5)
            assert await sweep(own, lease=LEASE) == 0
            assert (await engine.get(task.id)).status == "running"


async def test_renewals_come_three_to_a_lease_while_the_pool_is_busy(engine, database_url, psql):
    """E04: what counts is when the table changes, not when the client means to write."""
    inside = asyncio.Event()

    @workflow("long")
    async def long(run: Run, _: None) -> None:
        await run.step("wait", inside.wait)

    lease = Lease(timedelta(seconds=2.4), timedelta(seconds=0.8), timedelta(seconds=0.1), restart=timedelta(0))
    async with Database.connect(database_url, size=1) as single:
        task = (await Engine(single).enqueue("long", None, actor="test")).execution
        async with running(single, long, lease=lease):
            await reached(Engine(single), task.id, "running")
            seen = []
            async with single.session():  # the only connection of the pool is taken for three leases

                async def beaten() -> bool:
                    expires = await psql.fetchval("select lease_expires from suture.workflow_executions")
                    seen.extend([expires] if expires not in seen else [])
                    return len(seen) > 8

                await eventually(beaten)
            inside.set()
            await ended(Engine(single), task.id)
    gaps = [b - a for a, b in pairwise(seen)]
    assert max(gaps) < lease.duration * 2 / 3
    assert (await psql.fetchval("select crashes from suture.workflow_executions")) == 0


async def shown(engine, number):
    async def look() -> bool:
        return sum(w["presence"] for w in (await engine.health()).workers) >= number

    await eventually(look, what=f"the presence of {number} workers")


async def test_a_worker_holds_one_suspect_at_a_time(engine, database, psql):
    """Of two that may be what kills workers, the second waits until the first is over."""
    for _ in range(2):
        await engine.enqueue("anything", None, actor="test")
    await psql.execute("update suture.workflow_executions set crashes = 3")

    async def claimed(holds: bool) -> int:
        lease = timedelta(seconds=30)
        return len(await database.many("claim", uuid7(), ["default"], ["anything"], [1], 5, lease, "worker", 3, holds))

    assert await claimed(holds=True) == 0
    assert await claimed(holds=False) == 1
    assert await claimed(holds=False) == 1


async def test_a_blip_of_presence_shorter_than_the_grace_costs_nothing(engine, database, psql, take, pass_time):
    lease = Lease(grace=timedelta(seconds=5), restart=timedelta(0))
    await engine.enqueue("anything", None, actor="test")
    claim = await take()
    await database.none("register", claim.owner, "pod-7", "1", ["default"])
    await psql.execute("update suture.workers set presence = true")  # it showed itself once; nobody holds its lock now
    for _ in range(2):
        assert await sweep(database, lease=lease) == 0
    assert await psql.fetchval("select absent_since from suture.workers")
    await psql.execute("select pg_advisory_lock(hashtextextended($1::uuid::text, 1))", claim.owner)  # it is back
    await sweep(database, lease=lease)
    await pass_time(10)
    assert await sweep(database, lease=lease) == 0
    await psql.execute("select pg_advisory_unlock_all()")
    await sweep(database, lease=lease)
    await pass_time(10)
    assert await sweep(database, lease=lease) == 1


async def test_after_a_restart_of_postgres_leases_from_before_get_time_to_return(engine, database, take, pass_time):
    """As if Postgres had started a moment ago: the holder's last word is older than that."""
    await engine.enqueue("anything", None, actor="test")
    await take()
    await pass_time(86_400)
    assert await sweep(database, lease=Lease(restart=timedelta(days=365))) == 0
    assert await sweep(database, lease=LEASE) == 1


async def test_past_the_crash_limit_it_is_buried_with_its_reason(engine, database, take, pass_time):
    lease = Lease(crash_limit=1, restart=timedelta(0))
    task = (await engine.enqueue("anything", None, actor="test")).execution
    for status in ("enqueued", "error"):
        await take()
        await pass_time(31)
        await sweep(database, lease=lease)
        assert (await engine.get(task.id)).status == status
    (letter,) = await engine.dead_letters()
    assert (letter.execution_id, letter.reason, letter.crashes, letter.attempts) == (task.id, "CrashLoop", 2, 1)


async def test_the_row_of_a_worker_that_owns_something_is_kept(engine, database, psql, take, pass_time):
    """It is what proves that its work must be recovered."""
    await engine.enqueue("anything", None, actor="test")
    claim = await take()
    await database.none("register", claim.owner, "pod-7", "1", ["default"])
    await pass_time(2 * 86_400)
    ages = {"keep_ended": timedelta(hours=1), "keep_workers": timedelta(days=1)}
    await tidy(database, **ages)
    assert await psql.fetchval("select count(*) from suture.workers") == 1
    await sweep(database, lease=LEASE)
    await tidy(database, **ages)
    assert await psql.fetchval("select count(*) from suture.workers") == 0


async def test_steps_of_an_earlier_life_are_no_progress_in_a_crash_loop(engine, database, take, pass_time):
    """What a requeue copies was written by late epochs of the dead one: it must not begin the count of crashes anew."""
    lease = Lease(crash_limit=1, restart=timedelta(0))
    task = (await engine.enqueue("anything", None, actor="test")).execution
    for _ in range(6):
        claim = await take()
        await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")
    dead = await take()
    await dead.checkpoint("first", 1, kind="step", attempts=1, started_at=datetime.now(UTC))
    await dead.fail(Failure("Bad", "bad"))
    again = await engine.requeue(task.id, actor="anna")
    for status in ("enqueued", "error"):
        await take()
        await pass_time(31)
        await sweep(database, lease=lease)
        assert (await engine.get(again.id)).status == status
