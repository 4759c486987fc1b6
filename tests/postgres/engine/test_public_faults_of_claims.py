"""What public reports tell of claims that went wrong elsewhere, done to ours: E01, E02, E06, E07."""

import asyncio
import signal
from datetime import UTC, datetime, timedelta

import pytest

from suture.engine import Database, Run, workflow
from suture.engine.ids import uuid7
from suture.engine.lease import beat, sweep
from suture.errors import LeaseLost
from tests.postgres.engine.stage import LEASE, PACKAGES, ended, eventually, reached, running

HOLD = 4711
"""The advisory lock at which the second recoverer is held up."""


@pytest.fixture
async def held_up(direct_url, psql):
    """A recoverer whose every update of an execution waits for a lock, after it has chosen the row and before it writes."""
    await psql.execute(
        f"""create function suture.hold() returns trigger language plpgsql as $$
            begin
                if current_setting('suture.held', true) = 'yes' then perform pg_advisory_xact_lock({HOLD}); end if;
                return new;
            end $$;
            create trigger hold before update on suture.workflow_executions for each row execute function suture.hold()"""
    )
    async with Database.connect(f"{direct_url}{'&' if '?' in direct_url else '?'}suture.held=yes", packages=PACKAGES) as slow:
        yield slow


async def test_e01_a_recoverer_that_is_held_up_between_its_look_and_its_write_takes_over_once(
    engine, database, psql, take, pass_time, held_up
):
    """dbos-transact-py#742: the second recoverer's UPDATE changed no row, and it ran the workflow all the same."""
    task = (await engine.enqueue("w", None, actor="test")).execution
    await take("lost")
    await pass_time(31)
    await psql.execute(f"select pg_advisory_lock({HOLD})")
    second = asyncio.create_task(sweep(held_up, lease=LEASE))

    async def waits() -> bool:
        return await psql.fetchval("select exists (select from pg_locks where not granted and locktype = 'advisory')")

    await eventually(waits, what="the second recoverer between its look and its write")
    assert await sweep(database, lease=LEASE) == 0  # the first passes by: the row is in somebody's hands
    assert await database.many("claim", uuid7(), ["default"], ["w"], [1], 1, LEASE.duration, "worker", 99, False) == []
    await psql.execute(f"select pg_advisory_unlock({HOLD})")
    assert await second == 1
    third = await take("third")
    assert await sweep(database, lease=LEASE) == await sweep(held_up, lease=LEASE) == 0
    await third.complete("done")
    moves = [move.reason for move in await engine.timeline(task.id)]
    assert moves == ["requested", "claimed", "lease expired", "claimed", "finished"]
    found = await engine.get(task.id)
    assert (found.crashes, found.attempt, found.epoch) == (1, 1, 2)


async def test_e01_a_list_that_is_old_by_now_hands_back_nothing(engine, database, take, pass_time):
    """The same with a list that somebody read before: what is done by it names the epoch, and finds no row."""
    task = (await engine.enqueue("w", None, actor="test")).execution
    owner = (await take()).owner
    old = [(row["id"], row["epoch"]) for row in await database.many("strays", owner, [])]
    assert old == [(task.id, 1)]
    await pass_time(31)
    await sweep(database, lease=LEASE)
    heir = await take(owner=owner)
    ids, epochs = zip(*old, strict=True)
    assert await database.many("hand_back", owner, ids, epochs, "worker", "by an old list") == []
    await heir.complete("done")
    assert (await engine.get(task.id)).status == "completed"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["a drain", "a kill in mid-drain"])
async def test_e02_a_worker_that_drains_never_claims_and_its_namesake_finishes(engine, workers, psql, end):
    """dbos-transact-py#804: old and new process shared an id; the old one took back what the new had just re-queued, and left."""
    task = (await engine.enqueue("three-steps", None, actor="test")).execution
    old = workers.start(name="pod-0", drain=5 if end is signal.SIGTERM else 60, poll=0.05)
    await workers.noted("hold")
    await old.stop()
    later = [(await engine.enqueue("three-steps", None, actor="test")).execution.id for _ in range(3)]
    new = workers.start(name="pod-0", poll=0.05)
    await workers.noted("hold", times=4)  # the later ones begin while the old one still drains
    assert workers.notes("hold")[1:] == [new.pid] * 3
    if end is signal.SIGKILL:
        old.kill()
    await old.gone()
    await workers.noted("hold", times=5, within=15)
    workers.release()
    ends = [await ended(engine, id_) for id_ in (task.id, *later)]
    assert {e.output for e in ends} == {new.pid}
    assert workers.notes("first") == [old.pid, *[new.pid] * 3]
    assert (ends[0].attempt, ends[0].crashes) == (1, int(end is signal.SIGKILL))
    assert await psql.fetchval("select count(distinct id) from suture.workers where name = 'pod-0'") == 2


async def _renew(claim, database):
    if (await beat(database, claim.owner, [claim], lease=LEASE)).lost:
        raise LeaseLost


async def _release(claim, database):
    if not await database.many("hand_back", claim.owner, [claim.execution.id], [claim.epoch], "worker", "late"):
        raise LeaseLost


LATE = {
    "checkpoint": lambda claim, database: claim.checkpoint("n+1", "late", kind="step", attempts=1, started_at=datetime.now(UTC)),
    "renew": _renew,
    "complete": lambda claim, database: claim.complete("late"),
    "release": _release,
}


@pytest.mark.parametrize("write", LATE)
async def test_e06_each_write_after_the_lease_changes_nothing(engine, database, psql, take, pass_time, write):
    """tensorzero/durable#68: fenced at claim and end only, so that a late checkpoint was written beside the heir's.

    The lock order under load has its own test: test_writers_never_lock_each_other_out.
    """
    task = (await engine.enqueue("w", None, actor="test")).execution
    late = await take("late")
    await late.checkpoint("n", "by the first", kind="step", attempts=1, started_at=datetime.now(UTC))
    await pass_time(31)
    await sweep(database, lease=LEASE)
    heir = await take("heir")
    await heir.checkpoint("n+1", "by the heir", kind="step", attempts=1, started_at=datetime.now(UTC))
    expires = await psql.fetchval("select lease_expires from suture.workflow_executions")
    with pytest.raises(LeaseLost):
        await LATE[write](late, database)
    found = await engine.get(task.id)
    assert (found.status, found.owner_id, found.lease_expires) == ("running", heir.owner, expires)
    assert [c.output for c in await engine.checkpoints(task.id)] == ["by the first", "by the heir"]


async def test_e07_a_bad_row_in_a_batch_stops_no_other(engine, database):
    """dbos-transact-py#546: one row of a batch raised, and the rest stayed claimed and were never started.

    The payload that does not fit is a dead letter at once. What no worker here knows is not even claimed (a newer worker may know it):
    it stays in the queue, where it is seen and alerted.
    """
    ran = []

    @workflow("known")
    async def known(run: Run, number: int) -> int:
        ran.append(number)
        return number

    order = [("known", 1), ("unknown", 2), ("known", "three"), ("known", 4), ("known", 5)]
    ids = [(await engine.enqueue(name, value, actor="test")).execution.id for name, value in order]
    async with running(database, known, concurrency=5):
        assert [(await ended(engine, ids[n])).output for n in (0, 3, 4)] == [1, 4, 5]
        bad = await ended(engine, ids[2])
        assert (bad.status, bad.error.reason, bad.attempt) == ("error", "InvalidRequest", 1)
        await reached(engine, ids[1], "enqueued")
    assert [letter.execution_id for letter in await engine.dead_letters()] == [ids[2]]
    assert (await engine.get(ids[1])).epoch == 0
    shown = (await engine.health(overdue=timedelta(0))).unclaimable
    assert ("unknown", 1) in [(row["workflow"], row["count"]) for row in shown]
    assert sorted(ran) == [1, 4, 5]
