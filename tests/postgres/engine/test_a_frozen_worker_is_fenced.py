"""I2, I3: a claim raises the epoch; whoever holds an older one can change nothing. An owner is one life of one process."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta

import pytest

from suture.engine import Lease, Run, workflow
from suture.engine.claim import Claim
from suture.engine.ids import uuid7
from suture.engine.lease import beat, sweep
from suture.engine.records import Failure
from suture.errors import LeaseLost
from tests.postgres.engine.stage import LEASE, QUICK, ended, running

NOW = datetime.now(UTC)


async def checkpoint_in_a_transaction(claim):
    async with claim.database.transaction() as session:
        await claim.checkpoint_in(session, "late", 1, kind="transaction", attempts=1, started_at=NOW)


WRITES = {
    "checkpoint": lambda c: c.checkpoint("late", 1, kind="step", attempts=1, started_at=NOW),
    "checkpoint_in": checkpoint_in_a_transaction,
    "recorded": lambda c: c.recorded("late"),  # asked after a commit whose answer was lost: only whoever holds it may hear
    "complete": lambda c: c.complete("late"),
    "fail": lambda c: c.fail(Failure("Late", "late")),
    "retry": lambda c: c.retry(Failure("Late", "late", "late"), delay=timedelta(0), step_attempts=1, attempt=2),
    "finish_cancel": lambda c: c.finish_cancel(),
    "wait": lambda c: c.wait("late", event="never", timeout=timedelta(days=1)),
    "intend": lambda c: c.intend("late", kind="late", key="late"),
    "confirm": lambda c: c.confirm("kept", "late", kind="kept", key="kept", attempts=1, started_at=NOW),
}
READS = {"checkpoints", "failures", "hold", "held", "encode", "persist"}
TABLES = (
    "workflow_executions",
    "operation_outputs",
    "operation_failures",
    "workflow_waits",
    "events",
    "effects",
    "timeline",
    "dead_letters",
)


async def everything(psql):
    return {table: await psql.fetch(f"select * from suture.{table} order by 1, 2") for table in TABLES}


def test_the_writes_below_are_all_that_a_claim_has():
    public = {name for name, value in vars(Claim).items() if not name.startswith("_") and callable(value)}
    assert public == set(WRITES) | READS


@pytest.mark.parametrize("heir", [True, False], ids=["while an heir runs it", "while it waits for an heir"])
@pytest.mark.parametrize("write", WRITES)
async def test_a_worker_that_wakes_after_its_lease_can_change_nothing(engine, database, psql, take, pass_time, write, heir):
    task = (await engine.enqueue("anything", None, actor="test")).execution
    frozen = await take("frozen")
    assert await frozen.intend("kept", kind="kept", key="kept") == ("ours", None)
    await engine.cancel(task.id, actor="anna") if write == "finish_cancel" else None
    await pass_time(31)  # the lease was 30 s
    if write == "finish_cancel":
        await psql.execute("update suture.workflow_executions set cancel_requested_by = null")  # or recovery would cancel it
    assert await sweep(database, lease=LEASE) == 1
    if heir:
        assert (await take("heir")).epoch == frozen.epoch + 1
        await psql.execute("update suture.workflow_executions set cancel_requested_by = 'anna'")
    before = await everything(psql)

    with pytest.raises(LeaseLost):
        await WRITES[write](frozen)

    assert await everything(psql) == before


async def test_an_owner_is_not_enough_the_epoch_counts(engine, database, take, pass_time):
    """The same process loses an execution and claims it again: its older claim is fenced all the same."""
    await engine.enqueue("anything", None, actor="test")
    owner = uuid7()
    old = await take(owner=owner)
    await pass_time(31)
    await sweep(database, lease=LEASE)
    new = await take(owner=owner)

    with pytest.raises(LeaseLost):
        await old.checkpoint("late", 1, kind="step", attempts=1, started_at=NOW)

    expires = (await engine.get(new.execution.id)).lease_expires
    assert (await beat(database, owner, [old], lease=LEASE)).lost == [old]
    assert (await engine.get(new.execution.id)).lease_expires == expires
    found = await beat(database, owner, [old, new], lease=LEASE)
    assert found.lost == [old]
    await new.complete("in time")


async def test_a_heartbeat_renews_for_the_holder_alone(engine, database, take, pass_time, psql):
    await engine.enqueue("anything", None, actor="test")
    frozen = await take()
    await pass_time(31)
    await sweep(database, lease=LEASE)
    heir = await take()
    expires = await psql.fetchval("select lease_expires from suture.workflow_executions")

    assert (await beat(database, frozen.owner, [frozen], lease=LEASE)).lost == [frozen]
    assert await psql.fetchval("select lease_expires from suture.workflow_executions") == expires
    assert (await beat(database, heir.owner, [heir], lease=LEASE)).lost == []
    assert await psql.fetchval("select lease_expires from suture.workflow_executions") > expires


async def test_handing_back_with_an_old_epoch_takes_nothing_from_the_heir(engine, database, take, pass_time):
    task = (await engine.enqueue("anything", None, actor="test")).execution
    owner = uuid7()
    old = await take(owner=owner)
    await pass_time(31)
    await sweep(database, lease=LEASE)
    await take(owner=owner)
    assert await database.many("hand_back", owner, [task.id], [old.epoch], "worker", "late") == []
    assert (await engine.get(task.id)).status == "running"


async def test_a_process_that_is_stopped_past_its_lease_and_continued_changes_nothing(engine, workers, psql):
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    frozen = workers.start(name="frozen", lease=2, heartbeat=0.5)
    await workers.noted("hold")
    frozen.signal(signal.SIGSTOP)
    heir = workers.start(name="heir", lease=2, heartbeat=0.5)
    await workers.noted("hold", times=2)
    workers.release()
    done = await ended(engine, task.id)
    before = await everything(psql)

    frozen.signal(signal.SIGCONT)
    frozen.signal(signal.SIGTERM)
    await frozen.gone()

    assert done.status == "completed"
    assert done.output == heir.pid
    assert workers.notes("last") == [heir.pid]
    assert await everything(psql) == before


async def test_an_owner_is_another_in_every_life_of_a_process(engine, workers, psql):
    """A restarted pod keeps its name and is somebody else."""
    for _ in range(3):
        worker = workers.start(name="pod-0")
        while len(await psql.fetch("select from suture.workers where stopped_at is null")) == 0:
            pass
        worker.signal(signal.SIGTERM)
        await worker.gone()
    rows = await psql.fetch("select id, name from suture.workers")
    assert len({row["id"] for row in rows}) == 3
    assert {row["name"] for row in rows} == {"pod-0"}


@pytest.mark.parametrize("write", WRITES)
async def test_an_older_epoch_of_the_same_owner_can_change_nothing(engine, database, psql, take, pass_time, write):
    """The same process lost the execution and claimed it again: only the epoch tells its two claims apart."""
    await engine.enqueue("anything", None, actor="test")
    owner = uuid7()
    old = await take(owner=owner)
    await old.intend("kept", kind="kept", key="kept")
    await pass_time(31)
    await sweep(database, lease=LEASE)
    await take(owner=owner)
    await refused(psql, old, write)


@pytest.mark.parametrize("write", WRITES)
async def test_another_owner_of_the_same_epoch_can_change_nothing(engine, database, psql, take, write):
    """An epoch is no secret: whoever knows it does not hold the execution."""
    await engine.enqueue("anything", None, actor="test")
    holder = await take()
    await holder.intend("kept", kind="kept", key="kept")
    await refused(psql, Claim(database, holder.execution, uuid7(), "worker stranger"), write)


async def refused(psql, claim, write):
    await psql.execute("update suture.workflow_executions set cancel_requested_by = 'anna'")
    # A wait that finds its event would be settled by its first statements alone.
    event = "insert into suture.events (execution_id, name, payload, emitted_by) values ($1, 'never', '1', 'anna')"
    await psql.execute(event, claim.execution.id)
    before = await everything(psql)
    with pytest.raises(LeaseLost):
        await WRITES[write](claim)
    assert await everything(psql) == before


async def test_handing_back_or_beating_in_another_s_name_changes_nothing(engine, database, psql, take):
    await engine.enqueue("anything", None, actor="test")
    holder = await take()
    stranger = Claim(database, holder.execution, uuid7(), "worker stranger")
    before = await everything(psql)
    assert (await beat(database, stranger.owner, [stranger], lease=LEASE)).lost == [stranger]
    assert await database.many("hand_back", stranger.owner, [holder.execution.id], [holder.epoch], "worker", "late") == []
    assert await everything(psql) == before


async def test_a_run_whose_claim_is_lost_is_stopped_in_its_step(engine, database, psql):
    inside, stopped = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @workflow("long")
    async def w(run: Run, _: None) -> None:
        await run.step("long", long)

    await engine.enqueue("long", None, actor="test")
    # Long enough that it is not given up for want of heartbeats meanwhile.
    lease = Lease(timedelta(minutes=5), timedelta(seconds=0.1), restart=timedelta(0))
    async with running(database, w, lease=lease, concurrency=1):
        await asyncio.wait_for(inside.wait(), 30)
        await psql.execute("update suture.workflow_executions set owner_id = $1, epoch = epoch + 1", uuid7())  # as an heir does
        await asyncio.wait_for(stopped.wait(), 30)


async def test_a_worker_that_wakes_after_its_lease_begins_nothing(engine, take):
    """Found by the fault campaign: the answer to its last write lay in the socket while it was frozen, and it went on to the next step."""
    await engine.enqueue("anything", None, actor="test")
    frozen, done = await take("frozen"), []
    run = Run(frozen, done={}, failures={}, retry=QUICK)

    async def act() -> str:
        done.append("acted")
        return "acted"

    async def find() -> str | None:
        done.append("looked")
        frozen.renewed -= 31  # frozen for 31 s while the answer was on its way; the lease was 30 s
        return None

    with pytest.raises(LeaseLost):
        await run.effect("announce", key="a", find=find, act=act, returns=str)
    with pytest.raises(LeaseLost):
        await run.step("next", act)
    assert done == ["looked"]
