"""I13: what a queue's limits forbid is never claimed, however many workers claim at once, from the moment the limits are set."""

import asyncio
import signal
from datetime import timedelta

import pytest

from suture.engine import Lease, Limits, Rate
from suture.engine.ids import uuid7
from suture.engine.lease import sweep
from suture.errors import InvalidRequest
from tests.postgres.engine.limits import claim, end, many, most_at_once, running_now, work_off
from tests.postgres.engine.stage import LEASE, eventually


async def test_thirty_workers_at_once_never_run_more_than_the_queue_may(engine, database, psql):
    await many(engine, 150)
    await engine.queues.limit("default", Limits(concurrency=4), actor="anna")
    await work_off(database, 150, workers=30)
    assert 1 < await most_at_once(psql) <= 4


async def test_all_that_may_run_is_claimed_and_no_more(engine, database, psql):
    await many(engine, 20)
    await engine.queues.limit("default", Limits(concurrency=7), actor="anna")
    assert len(await claim(database, 5)) == 5
    assert len(await claim(database, 5)) == 2
    assert await claim(database, 5) == []
    assert await running_now(psql) == 7


async def test_the_limit_is_the_whole_queues_and_not_anothers(engine, database, psql):
    for queue in ("a", "b", "c"):
        await many(engine, 10, queue=queue)
    await engine.queues.limit("a", Limits(concurrency=1), actor="anna")
    await engine.queues.limit("b", Limits(concurrency=2), actor="anna")
    rows = await claim(database, 30, queues=("a", "b", "c"))
    assert [await running_now(psql, queue) for queue in ("a", "b", "c")] == [1, 2, 10]
    await end(database, *(row for row in rows if row["queue"] == "a"))
    assert [row["queue"] for row in await claim(database, 30, queues=("a", "b", "c"))] == ["a"]


async def test_a_limit_below_what_runs_stops_nobody_and_lets_nobody_in_until_there_is_room(engine, database, psql):
    await many(engine, 20)
    rows = await claim(database, 6)
    await engine.queues.limit("default", Limits(concurrency=2), actor="anna")
    for row in rows[:4]:
        assert await claim(database, 5) == []
        await end(database, row)
    assert await claim(database, 5) == []
    await end(database, rows[4])
    assert len(await claim(database, 5)) == 1
    assert await running_now(psql) == 2


async def test_a_raised_limit_and_one_taken_away_hold_at_once(engine, database):
    await many(engine, 20)
    await engine.queues.limit("default", Limits(concurrency=2), actor="anna")
    assert len(await claim(database, 20)) == 2
    await engine.queues.limit("default", Limits(concurrency=5), actor="anna")
    assert len(await claim(database, 20)) == 3
    await engine.queues.limit("default", Limits(), actor="anna")
    assert len(await claim(database, 20)) == 15


async def test_what_waits_or_was_lost_or_tried_again_gives_its_place_back(engine, database, psql, pass_time):
    await many(engine, 5)
    await engine.queues.limit("default", Limits(concurrency=1), actor="anna")
    (waits,) = await claim(database)
    fence = waits["id"], waits["owner_id"], waits["epoch"]
    assert await database.maybe("suspend", *fence, "nap", "worker", "sleeps")
    (lost,) = await claim(database)
    assert await claim(database) == []
    await pass_time(31)
    await sweep(database, lease=LEASE)
    assert (await engine.get(lost["id"])).crashes == 1
    assert len(await claim(database)) == 1
    assert await running_now(psql) == 1


async def test_a_claim_under_way_is_waited_for_before_a_limit_holds(engine, database, psql):
    """The claim saw no limit: its rows count as soon as there is one."""
    await many(engine, 10)
    async with database.transaction() as session:
        owner = uuid7()
        taken = await session.many("claim", owner, ["default"], ["w"], [1], 4, timedelta(seconds=30), "worker", 99, False)
        setting = asyncio.create_task(engine.queues.limit("default", Limits(concurrency=5), actor="anna"))
        await eventually(lambda: _waits(psql))
        behind = asyncio.create_task(claim(database, 10))
        await eventually(lambda: _waits(psql, 2))
        assert not setting.done()
    await setting
    assert len(taken) == 4
    assert len(await behind) == 1
    assert await running_now(psql) == 5


async def test_no_claim_begins_after_a_pause_has_returned(engine, database, psql):
    await many(engine, 10)
    async with database.transaction() as session:
        await session.many("claim", uuid7(), ["default"], ["w"], [1], 1, timedelta(seconds=30), "worker", 99, False)
        pausing = asyncio.create_task(engine.queues.pause("default", actor="anna", reason="freeze"))
        await eventually(lambda: _waits(psql))
        late = asyncio.create_task(claim(database, 10))
        await eventually(lambda: _waits(psql, 2))
    await pausing
    assert await late == []
    await engine.queues.resume("default", actor="bert", reason="thaw")
    assert len(await claim(database, 10)) == 9


async def _waits(psql, count=1):
    return count <= await psql.fetchval("select count(*) from pg_locks where not granted and relation = 'suture.queues'::regclass")


async def test_a_paused_queue_with_limits_gives_out_nothing(engine, database):
    await many(engine, 5)
    await engine.queues.limit("default", Limits(concurrency=2), actor="anna")
    await engine.queues.pause("default", actor="anna")
    assert await claim(database) == []
    await engine.queues.limit("default", Limits(concurrency=3), actor="anna")
    assert await claim(database) == [], "a new limit is no resume"


async def test_a_batch_is_the_most_urgent_of_limited_and_unlimited_queues_together(engine, database):
    ids = {}
    for queue, priority in (("free", 0), ("tight", 5), ("free", 9), ("tight", 7), ("free", 4), ("tight", 1)):
        ids[queue, priority] = (await many(engine, 1, queue=queue, priority=priority))[0]
    await engine.queues.limit("tight", Limits(concurrency=5), actor="anna")
    rows = await claim(database, 3, queues=("free", "tight"))
    assert {row["id"] for row in rows} == {ids["free", 9], ids["tight", 7], ids["tight", 5]}


async def test_of_suspects_a_worker_takes_one_from_limited_queues_too(engine, database, psql):
    await many(engine, 3)
    await many(engine, 2, queue="free")
    await engine.queues.limit("default", Limits(concurrency=5), actor="anna")
    await psql.execute("update suture.workflow_executions set crashes = 3")
    rows = await claim(database, 5, queues=("default", "free"), suspect=3)
    assert len(rows) == 1
    assert await claim(database, 5, queues=("default", "free"), suspect=3, holds=True) == []


async def test_limits_that_change_under_load_lock_nobody_out_and_are_never_exceeded(engine, database, psql):
    for queue in ("a", "b"):
        keys = [None, "k1", "k2", None] * 60
        await engine.enqueue_many("w", [None] * 240, actor="test", queue=queue, concurrency_keys=keys)

    async def change() -> None:
        for n in range(40):
            rate = Rate(1000, timedelta(seconds=1), 50) if n % 3 else None
            await engine.queues.limit("ab"[n % 2], Limits(concurrency=1 + n % 5, per_key=1 + n % 2, rate=rate), actor="anna")
            await (engine.queues.pause if n % 4 == 0 else engine.queues.resume)("ab"[n % 2], actor="anna")
        for queue in ("a", "b"):
            await engine.queues.limit(queue, Limits(concurrency=5), actor="anna")
            await engine.queues.resume(queue, actor="anna")

    await engine.queues.limit("a", Limits(concurrency=1), actor="anna")
    await engine.queues.limit("b", Limits(concurrency=1), actor="anna")
    await asyncio.gather(change(), work_off(database, 480, workers=12, batch=4, queues=("a", "b")))
    for queue in ("a", "b"):
        assert await most_at_once(psql, of=f"e.queue = '{queue}'") <= 5
        assert await most_at_once(psql, of=f"e.queue = '{queue}' and e.concurrency_key = 'k1'", kind="begun") <= 2
    assert await psql.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"concurrency": 0}, "The concurrency is 0"),
        ({"per_key": -1}, "The per_key is -1"),
        ({"concurrency": 1 << 31}, "use 1 to 1,000,000"),
    ],
)
async def test_a_limit_that_is_none_is_refused_with_its_value(engine, limits, words):
    with pytest.raises(InvalidRequest, match=words):
        await engine.queues.limit("default", Limits(**limits), actor="anna")


async def test_a_killed_workers_places_come_back_by_recovery(engine, workers, psql):
    await engine.queues.limit("default", Limits(concurrency=2), actor="anna")
    for _ in range(4):
        await engine.enqueue("three-steps", None, actor="test")
    first = workers.start(name="one")
    await workers.noted("hold", times=2)
    second = workers.start(name="two")
    assert await running_now(psql) == 2
    first.kill()
    await workers.noted("hold", times=4)
    assert set(workers.notes("hold")[2:]) == {second.pid}
    assert await running_now(psql) == 2
    workers.release()

    async def all_done():
        return await psql.fetchval("select count(*) from suture.workflow_executions where status = 'completed'") == 4

    await eventually(all_done)
    assert await most_at_once(psql) == 2
    assert Lease().duration > timedelta(seconds=20), "so it was presence that told"


async def test_a_place_that_nobody_gives_back_is_taken_by_a_fleet_at_rest(engine, database, workers, psql):
    """The execution of a frozen worker is over its time and ends: nobody is there who would look for the next one of the queue."""
    await engine.queues.limit("default", Limits(concurrency=1), actor="anna")
    now = (await database.one("ping"))["at"]
    await engine.enqueue("three-steps", None, actor="test", deadline_at=now + timedelta(minutes=5))
    one = workers.start(name="one")
    await workers.noted("hold", times=1)
    other = workers.start(name="two", poll=30.0)
    await engine.enqueue("three-steps", None, actor="test")
    await eventually(lambda: psql.fetchval("select count(*) = 2 from suture.workers where presence"))
    one.signal(signal.SIGSTOP)
    await psql.execute("update suture.workflow_executions set deadline_at = clock_timestamp() where status = 'running'")
    assert (await workers.noted("hold", times=2, within=25))[1] == other.pid
