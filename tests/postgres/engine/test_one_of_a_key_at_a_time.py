"""I13: of one concurrency key one execution lives at a time, from its first claim to its end; the others hold nobody up, and none is
forgotten."""

import asyncio
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suture.engine import Limits
from suture.engine.ids import uuid7
from suture.engine.lease import sweep
from suture.errors import InvalidRequest
from tests.postgres.engine.limits import claim, end, most_at_once, work_off
from tests.postgres.engine.stage import LEASE, ended, eventually


async def keyed(engine, key, **options):
    return (await engine.enqueue("w", None, actor="test", concurrency_key=key, **options)).execution.id


async def bulk_of_one(engine, key):
    return (await engine.enqueue_many("w", [None], actor="test", concurrency_keys=[key]))[0]


def ids(rows):
    return [row["id"] for row in rows]


async def test_one_of_a_key_runs_and_the_next_follows_its_end(engine, database):
    first, second, other = [await keyed(engine, key) for key in ("prod/shop/cart", "prod/shop/cart", "prod/shop/search")]
    rows = await claim(database)
    assert set(ids(rows)) == {first, other}
    assert await claim(database) == []
    await end(database, *rows)
    assert ids(await claim(database)) == [second]


async def test_a_key_is_its_queues_own(engine, database):
    there = [await keyed(engine, "k", queue=queue) for queue in ("a", "b")]
    assert set(ids(await claim(database, queues=("a", "b")))) == set(there)


async def test_twenty_workers_at_once_never_run_two_of_a_key(engine, database, psql):
    await engine.enqueue_many("w", [None] * 120, actor="test", concurrency_keys=[f"k{n % 5}" for n in range(120)])
    for n in range(30):
        await keyed(engine, f"k{n % 5}")
    await work_off(database, 150, workers=20)
    for n in range(5):
        assert await most_at_once(psql, of=f"e.concurrency_key = 'k{n}'", kind="begun") == 1


async def test_a_killed_workers_key_goes_on_with_its_execution_before_any_other(engine, workers):
    first = (await engine.enqueue("three-steps", None, actor="test", concurrency_key="k")).execution.id
    one, two = workers.start(name="one"), workers.start(name="two")
    killed = (await workers.noted("hold"))[0]
    second = (await engine.enqueue("three-steps", None, actor="test", concurrency_key="k", priority=50)).execution.id
    (one if one.pid == killed else two).kill()
    await workers.noted("hold", times=2)
    assert (await engine.get(first)).crashes == 1
    assert (await engine.get(second)).parked
    workers.release()
    ends = [await ended(engine, id_, within=60) for id_ in (first, second)]
    assert ends[0].finished_at <= ends[1].started_at
    assert workers.notes("first") == [killed, ends[1].output]


async def test_as_many_of_a_key_live_as_the_queue_says(engine, database, psql):
    await engine.queues.limit("default", Limits(per_key=3), actor="anna")
    await engine.enqueue_many("w", [None] * 60, actor="test", concurrency_keys=["a", "b"] * 30)
    await work_off(database, 60, workers=12, batch=4)
    for key in ("a", "b"):
        assert await most_at_once(psql, of=f"e.concurrency_key = '{key}'", kind="begun") == 3


async def test_keys_and_concurrency_hold_together(engine, database, psql):
    await engine.queues.limit("default", Limits(concurrency=3), actor="anna")
    await engine.enqueue_many("w", [None] * 80, actor="test", concurrency_keys=[f"k{n % 8}" if n % 2 else None for n in range(80)])
    await work_off(database, 80, workers=12, batch=4)
    assert await most_at_once(psql) == 3
    assert await most_at_once(psql, of="e.concurrency_key = 'k1'", kind="begun") == 1


async def test_the_key_is_held_while_its_execution_sleeps_waits_for_a_retry_or_is_recovered(engine, database, pass_time):
    first, second = await keyed(engine, "k"), await keyed(engine, "k")
    (row,) = await claim(database)
    assert await database.maybe("suspend", row["id"], row["owner_id"], row["epoch"], "approval", "worker", "waits for approval")
    assert await claim(database) == []
    await engine.emit(first, "approval", None, actor="bert")
    assert await claim(database) == []
    await engine.cancel(first, actor="bert")
    assert ids(await claim(database)) == [second]
    third = await keyed(engine, "k")
    await pass_time(31)
    await sweep(database, lease=LEASE)
    assert (await engine.get(second)).crashes == 1
    (again,) = await claim(database)
    assert again["id"] == second, "what is begun goes on, and nobody passes it"
    delay = timedelta(seconds=60)
    error = '{"reason": "Error", "message": ""}'
    assert await database.maybe("retry", second, again["owner_id"], again["epoch"], delay, "failed", None, error, 1, 2, "worker")
    assert await claim(database) == []
    await pass_time(61)
    (again,) = await claim(database)
    assert again["id"] == second
    await end(database, again)
    assert ids(await claim(database)) == [third]


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled before", "deadline", "crash loop", "by hand"])
async def test_every_end_gives_the_key_back(engine, database, psql, pass_time, how):
    now = (await database.one("ping"))["at"]
    first = await keyed(engine, "k", deadline_at=now + timedelta(seconds=100) if how == "deadline" else None)
    second = await keyed(engine, "k")
    (row,) = await claim(database) if how != "cancelled before" else (None,)
    match how:
        case "completed":
            await end(database, row)
        case "failed":
            error = '{"reason": "Error", "message": ""}'
            assert await database.maybe("fail", first, row["owner_id"], row["epoch"], error, "Error", None, "worker")
        case "cancelled before":
            await engine.cancel(first, actor="anna")
        case "deadline":
            await pass_time(101)
            await sweep(database, lease=LEASE)
        case "crash loop":
            await psql.execute("update suture.workflow_executions set crashes = 99 where id = $1", first)
            await pass_time(31)
            await sweep(database, lease=LEASE)
        case "by hand":
            await psql.execute(
                """update suture.workflow_executions
                   set status = 'cancelled', owner_id = null, lease_expires = null, finished_at = now() where id = $1""",
                first,
            )
    assert (await engine.get(first)).finished_at
    assert ids(await claim(database)) == [second]


async def test_an_end_of_one_that_stands_behind_changes_nothing(engine, database):
    first, second, third = [await keyed(engine, "k") for _ in range(3)]
    assert ids(await claim(database)) == [first]
    await engine.cancel(second, actor="anna")
    assert await claim(database) == []
    assert (await engine.get(third)).parked


async def test_the_most_urgent_goes_first_whenever_it_came(engine, database):
    await keyed(engine, "k")
    (row,) = await claim(database)
    late = [await keyed(engine, "k", priority=priority) for priority in (0, 5, 9)]
    await end(database, row)
    (row,) = await claim(database)
    assert row["id"] == late[2]
    await end(database, row)
    most = await keyed(engine, "k", priority=20)
    (row,) = await claim(database)
    assert row["id"] == most


async def test_one_that_is_delayed_keeps_nobody_back(engine, database, pass_time):
    now = (await database.one("ping"))["at"]
    later = await keyed(engine, "k", run_at=now + timedelta(minutes=10), priority=60)
    first, second = await keyed(engine, "k"), await keyed(engine, "k")
    for expected in (first, second):
        (row,) = await claim(database)
        assert row["id"] == expected
        await end(database, row)
    assert await claim(database) == []
    await pass_time(601)
    assert ids(await claim(database)) == [later]


async def test_one_that_is_delayed_keeps_back_none_of_the_parked(engine, database):
    now = (await database.one("ping"))["at"]
    await keyed(engine, "k", run_at=now + timedelta(minutes=10))
    await keyed(engine, "k")
    (row,) = await claim(database)
    parked = await keyed(engine, "k")
    await end(database, row)
    assert ids(await claim(database)) == [parked]


async def unparked(engine, key, count):
    """Handed in inside of a longer transaction: no look at the others of the key, the claim finds out."""
    async with engine.transaction() as session:
        return [await keyed(engine, key, session=session) for _ in range(count)]


async def test_of_two_of_a_key_in_one_batch_one_is_taken(engine, database):
    first, second = await unparked(engine, "k", 2)
    (row,) = await claim(database)
    assert row["id"] == first
    assert (await engine.get(second)).parked


@pytest.mark.parametrize("state", ["waiting", "enqueued"])
async def test_one_that_is_begun_and_does_not_run_holds_its_key_against_a_claim(engine, database, state):
    await keyed(engine, "k")
    (row,) = await claim(database)
    fence = row["id"], row["owner_id"], row["epoch"]
    if state == "waiting":
        assert await database.maybe("suspend", *fence, "nap", "worker", "sleeps")
    else:
        assert await database.maybe("retry", *fence, timedelta(hours=1), "failed", None, "null", 1, 2, "worker")
    await unparked(engine, "k", 2)
    assert await claim(database) == []


async def test_two_that_claim_one_key_at_once_get_one(engine, database):
    both = set(await unparked(engine, "k", 2))
    async with database.transaction() as session:
        first = await session.many("claim", uuid7(), ["default"], ["w"], [1], 1, timedelta(seconds=30), "worker", 99, False)
        assert await claim(database) == [], "who has not committed yet cannot be seen, but its lock is met"
    assert {row["id"] for row in first} < both
    assert await claim(database) == []


async def test_of_delayed_ones_behind_each_other_each_comes_at_its_time(engine, database, pass_time):
    now = (await database.one("ping"))["at"]
    first = await keyed(engine, "k")
    (row,) = await claim(database)
    late = await keyed(engine, "k", run_at=now + timedelta(minutes=20), priority=60)
    soon = await keyed(engine, "k", run_at=now + timedelta(minutes=10))
    assert row["id"] == first
    await end(database, row)
    await pass_time(601)
    (row,) = await claim(database)
    assert row["id"] == soon
    await end(database, row)
    await pass_time(601)
    assert ids(await claim(database)) == [late]


async def test_more_room_for_keys_holds_at_once(engine, database):
    waiting = [await keyed(engine, "k") for _ in range(5)]
    assert len(await claim(database)) == 1
    await engine.queues.limit("default", Limits(per_key=3), actor="anna")
    assert set(ids(await claim(database))) == set(waiting[1:3])
    await engine.queues.limit("default", Limits(), actor="anna")
    assert await claim(database) == []


async def test_more_room_is_given_to_every_key_of_many(engine, database):
    keys = [f"k{n:04}" for n in range(1200)]
    await engine.enqueue_many("w", [None] * 2400, actor="test", concurrency_keys=keys * 2)
    assert len(await claim(database, 5000)) == 1200
    await engine.queues.limit("default", Limits(per_key=2), actor="anna")
    assert len(await claim(database, 5000)) == 1200


# Nobody is forgotten ----------------------------------------------------------------------------------------------------------


async def _waits(psql):
    return await _waiting(psql, 1)


async def _waiting(psql, count):
    return count == await psql.fetchval("select count(*) from pg_locks where not granted and locktype = 'advisory'")


@pytest.mark.parametrize("bulk", [False, True])
async def test_one_that_comes_while_its_key_is_being_released_is_not_forgotten(engine, database, psql, bulk):
    await keyed(engine, "k")
    (row,) = await claim(database)
    async with database.transaction() as session:
        assert (await session.one("complete", row["owner_id"], [row["id"]], [row["epoch"]], ["null"], "worker"))["held"] is None
        hand_in = bulk_of_one if bulk else keyed
        coming = asyncio.create_task(hand_in(engine, "k"))  # sees the key as held, and waits for what its end commits
        await eventually(lambda: _waits(psql))
    second = await coming
    assert ids(await claim(database)) == [second]


async def test_two_bulks_of_the_same_keys_do_not_wait_for_each_other(database, psql):
    async def bulk(keys: str) -> None:
        ids = sorted(uuid7() for _ in keys)  # so that they go in as they stand here
        rest = ("w", 1, "default", 0, "{}", None, "test", "requested")
        await database.none("enqueue_many_keyed", ids, ["null"] * len(keys), list(keys), *rest)

    async with psql.transaction():
        await psql.execute("select pg_advisory_xact_lock(suture.lock_of_key('default', 'a'))")  # behind which both line up
        first = asyncio.create_task(bulk("aabb"))
        await eventually(lambda: _waiting(psql, 1))
        second = asyncio.create_task(bulk("bbaa"))
        await eventually(lambda: _waiting(psql, 2))
    await asyncio.gather(first, second)
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 8


async def test_one_that_is_parked_while_its_key_is_being_released_is_not_forgotten(engine, database, psql):
    await keyed(engine, "k")
    (row,) = await claim(database)
    async with database.transaction() as session:
        what = (uuid7(), "w", 1, "default", 0, "null", None, None, "{}", None, None, None, "test", "", None, "k", True)
        coming = await session.one("enqueue_keyed", *what)
        ending = asyncio.create_task(end(database, row))
        await eventually(lambda: _waits(psql))
    await ending
    assert ids(await claim(database)) == [coming["id"]]


async def test_a_long_transaction_that_hands_one_in_keeps_no_other_from_ending(engine, database):
    await keyed(engine, "k")
    (row,) = await claim(database)
    async with engine.transaction() as session:
        second = await keyed(engine, "k", session=session)
        async with asyncio.timeout(30):
            await end(database, row)
            third = await keyed(engine, "k")
            (row,) = await claim(database)
        assert row["id"] == third
    assert await claim(database) == []
    assert (await engine.get(second)).parked, "the claim has parked it"
    await end(database, row)
    assert ids(await claim(database)) == [second]


MOVES = ["enqueue", "enqueue inside", "urgent", "delayed", "claim", "complete", "retry", "suspend", "wake", "cancel", "wider", "narrower"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 30)), min_size=5, max_size=40))
async def test_whatever_happens_a_key_is_neither_overrun_nor_left_idle(engine, database, psql, moves):
    queue, held, limit, changed = f"q{uuid7()}", [], 1, False
    now = (await database.one("ping"))["at"]
    mine = "from suture.workflow_executions where queue = $1 and status in ('enqueued', 'running', 'waiting')"
    for move, n in moves:
        key = f"k{n % 2}"
        match move:
            case "enqueue" | "urgent":
                await keyed(engine, key, queue=queue, priority=n if move == "urgent" else 0)
            case "enqueue inside":
                async with engine.transaction() as session:
                    await keyed(engine, key, queue=queue, session=session)
            case "delayed":
                await keyed(engine, key, queue=queue, run_at=now + timedelta(hours=1), priority=n)
            case "claim":
                held += await claim(database, 1 + n % 3, queues=[queue])
            case "complete" if held:
                await end(database, held.pop(n % len(held)))
            case "retry" if held:
                row = held.pop(n % len(held))
                fence, error = (row["id"], row["owner_id"], row["epoch"]), '{"reason": "Error", "message": ""}'
                assert await database.maybe("retry", *fence, timedelta(0), "failed", None, error, 1, 2, "worker")
            case "suspend" if held:
                row = held.pop(n % len(held))
                assert await database.maybe("suspend", row["id"], row["owner_id"], row["epoch"], "nap", "worker", "sleeps")
            case "wake":
                await psql.execute(
                    "update suture.workflow_executions set status = 'enqueued', run_at = now() where queue = $1 and status = 'waiting'",
                    queue,
                )
            case "cancel":
                found = await psql.fetch(f"select id {mine} and status <> 'running' order by id", queue)
                if found:
                    await engine.cancel(found[n % len(found)]["id"], actor="anna")
            case "wider" | "narrower":
                limit, changed = (1 + n % 3 if move == "wider" else 1), True
                await engine.queues.limit(queue, Limits(per_key=limit), actor="anna")
        begun = await psql.fetch(f"select concurrency_key as key, count(*) {mine} and started_at is not null group by 1", queue)
        before = {row["key"]: row["count"] for row in begun}
        assert changed or all(count == 1 for count in before.values())
    taken = await claim(database, 100, queues=[queue])
    begun = await psql.fetch(f"select concurrency_key as key, count(*) {mine} and started_at is not null group by 1", queue)
    after = {row["key"]: row["count"] for row in begun}
    assert all(count <= max(limit, before.get(key, 0)) for key, count in after.items()), "overrun"
    idle = await psql.fetch(f"select concurrency_key as key {mine} and started_at is null and run_at <= now()", queue)
    assert all(after.get(row["key"], 0) >= limit for row in idle), ("left idle", after, idle, taken)


async def test_keys_are_given_one_for_each_input(engine):
    with pytest.raises(InvalidRequest, match="There are 1 concurrency keys for 2 inputs"):
        await engine.enqueue_many("w", [1, 2], actor="test", concurrency_keys=["k"])


async def test_names_that_are_too_long_for_an_index_together_are_refused_with_what_postgres_says(engine):
    long = "".join(map(chr, range(0x20000, 0x20200)))  # 512 characters of four bytes, which nothing makes shorter
    with pytest.raises(InvalidRequest, match="Postgres cannot keep a value of this request: index row size"):
        await keyed(engine, long, queue=long[::-1])
