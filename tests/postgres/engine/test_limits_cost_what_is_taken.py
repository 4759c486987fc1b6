"""I13, I15: a claim reads what it takes and not the backlog, with limits too; nobody starves behind what is more urgent."""

from datetime import timedelta

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suture.engine import Database, Limits, Rate
from tests.postgres.engine.limits import claim, end, many, reads
from tests.postgres.engine.stage import PACKAGES, eventually

BACKLOG = 20_000


@pytest_asyncio.fixture
async def database(direct_url):
    """Past any pooler: what was read and planned is counted a session at a time."""
    async with Database.connect(direct_url, size=4, packages=PACKAGES) as database:
        yield database


@pytest.fixture
async def backlog(psql):
    """So many due executions of the queue `default`, and of `keyed`, where each of fifty keys has one to start; the statistics know."""
    await psql.execute(
        """insert into suture.workflow_executions (id, workflow, input, run_at, priority, changed_by)
           select gen_random_uuid(), 'w', 'null', now() - interval '1 hour', n % 5, 'test' from generate_series(1, $1) n""",
        BACKLOG,
    )
    await psql.execute("set session_replication_role = replica")
    await psql.execute(
        """insert into suture.workflow_executions (id, workflow, input, run_at, queue, concurrency_key, parked, changed_by)
           select gen_random_uuid(), 'w', 'null', now() - interval '1 hour', 'keyed', 'k' || n % 50, n > 50, 'test'
           from generate_series(1, $1) n""",
        BACKLOG,
    )
    await psql.execute("vacuum analyze suture.workflow_executions")


@pytest.mark.parametrize("queue", ["default", "keyed"])
@pytest.mark.parametrize("limits", [Limits(), Limits(concurrency=50), Limits(rate=Rate(50, timedelta(hours=1)))], ids=str)
async def test_a_claim_reads_what_it_takes(engine, database, psql, backlog, limits, queue):
    await engine.queues.limit(queue, limits, actor="anna")
    for _ in range(8):  # plans for any values, too
        await end(database, *await claim(database, 5, queues=[queue]))
    await psql.execute("vacuum suture.workflow_executions")
    rows, count = await reads(database, psql, lambda: claim(database, 10, queues=[queue]))
    assert len(rows) == 10
    assert count < 300


@pytest.mark.parametrize("limits", [Limits(concurrency=10), Limits(rate=Rate(10, timedelta(hours=1)))], ids=str)
async def test_a_claim_from_a_queue_that_is_full_reads_and_writes_next_to_nothing(engine, database, psql, backlog, limits):
    await engine.queues.limit("default", limits, actor="anna")
    await many(engine, 3, queue="other")
    assert len(await claim(database, 20)) == 10
    await psql.execute("vacuum suture.workflow_executions")
    rows, count = await reads(database, psql, lambda: claim(database, 20))
    assert rows == []
    assert count < 50
    async with database.transaction() as session:
        assert await claim(session, 20) == []
        assert await session.connection.fetchval("select pg_current_xact_id_if_assigned()") is None, "it wrote"
    assert len(await claim(database, 20, queues=("default", "other"))) == 3


async def test_what_goes_on_is_found_behind_a_backlog_that_has_no_tokens(engine, database, psql, backlog):
    await engine.queues.limit("default", Limits(rate=Rate(1, timedelta(hours=1), burst=1)), actor="anna")
    (row,) = await claim(database)
    assert await database.many("hand_back", row["owner_id"], [row["id"]], [row["epoch"]], "worker", "handed back")
    rows, count = await reads(database, psql, lambda: claim(database))
    assert [row["id"] for row in rows] == [row["id"]]
    assert count < 100


async def test_what_is_far_ahead_is_not_read(engine, database, psql):
    await psql.execute(
        """insert into suture.workflow_executions (id, workflow, input, run_at, priority, changed_by)
           select gen_random_uuid(), 'w', 'null', now() + interval '2 hours', -(n % 100), 'test' from generate_series(1, $1) n""",
        BACKLOG,
    )
    await psql.execute("vacuum analyze suture.workflow_executions")
    await many(engine, 3, priority=-200)
    rows, blocks = await blocks_read(database, psql, lambda: claim(database))
    assert len(rows) == 3
    assert blocks < 40


async def blocks_read(database, psql, work):
    """Entries that an index finds not to fit are not counted as read, the blocks that hold them are."""

    async def count():
        async with database.session() as session:
            await session.connection.execute("select pg_stat_force_next_flush()")
        await psql.execute("select pg_stat_clear_snapshot()")
        return await psql.fetchval(
            """select sum(idx_blks_read + idx_blks_hit) from pg_statio_user_indexes
               where indexrelname in ('executions_due', 'executions_keyed')"""
        )

    before = await count()
    found = await work()
    return found, await count() - before


async def test_a_claim_is_planned_once(database, backlog):
    for _ in range(20):
        await claim(database, 1)
    async with database.session() as session:
        found = await session.connection.fetch(
            "select generic_plans, custom_plans from pg_prepared_statements where statement like '/* claim */%'"
        )
    assert found
    assert all(row["custom_plans"] <= 5 for row in found)


async def keyed(engine, key):
    return (await engine.enqueue("w", None, actor="test", concurrency_key=key)).execution.id


def ids(rows):
    return [row["id"] for row in rows]


# Nobody is held up ------------------------------------------------------------------------------------------------------------


async def test_ten_thousand_of_a_busy_key_in_front_hold_up_nobody(engine, database, psql):
    await keyed(engine, "busy")
    assert len(await claim(database)) == 1
    await engine.enqueue_many("w", [None] * 10_000, actor="test", priority=10, concurrency_keys=["busy"] * 10_000)
    other = await keyed(engine, "other")
    (found, count) = await reads(database, psql, lambda: claim(database))
    assert ids(found) == [other]
    assert count < 200


async def test_ten_thousand_that_were_not_parked_are_parked_by_the_first_claim(engine, database, psql):
    await keyed(engine, "busy")
    assert len(await claim(database)) == 1
    await many(engine, 10_000, priority=10)
    await psql.execute("update suture.workflow_executions set concurrency_key = 'busy' where concurrency_key is null")
    other = await keyed(engine, "other")
    assert ids(await claim(database)) == [other]

    async def is_quick():
        more = await keyed(engine, "more")
        rows, count = await reads(database, psql, lambda: claim(database))
        assert ids(rows) == [more]
        await end(database, *rows)
        return count < 200

    await eventually(is_quick, what="a claim that meets nothing that the first has left in the index")


# Nobody starves ---------------------------------------------------------------------------------------------------------------


async def test_whoever_has_waited_longer_than_a_priority_is_worth_goes_first(engine, database, pass_time):
    (old,) = await many(engine, 1)
    await pass_time(5 * 60 + 1)
    (five,) = await many(engine, 1, priority=5)
    (six,) = await many(engine, 1, priority=6)
    taken = [(await claim(database, 1))[0]["id"] for _ in range(3)]
    assert taken == [six, old, five]


@pytest.mark.parametrize("limits", [Limits(), Limits(concurrency=1)], ids=["free", "limited"])
async def test_a_stream_of_urgent_work_delays_the_rest_for_its_priority_and_no_longer(engine, database, pass_time, limits):
    await engine.queues.limit("default", limits, actor="anna")
    (lowly,) = await many(engine, 1, priority=-2)
    served = 0
    while served < 20:
        await many(engine, 2, priority=3)  # more than is served
        (row,) = await claim(database, 1)
        await end(database, row)
        if row["id"] == lowly:
            break
        served += 1
        await pass_time(60)
    assert served == 10, "those that came within five minutes of it"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given=st.lists(st.tuples(st.integers(0, 100_000), st.integers(-3000, 3000)), min_size=2, max_size=12))
async def test_the_order_is_waiting_time_and_a_minute_for_each_point_of_priority(psql, given):
    def urgency(seconds: int, priority: int) -> int:
        return seconds + 60 * min(max(priority, -60), 1440)

    rows = await psql.fetch(
        """select n from unnest($1::int[], $2::int[]) with ordinality as given (seconds, priority, n)
           order by suture.urgency(now() - make_interval(secs => seconds), priority), n""",
        [seconds for seconds, _ in given],
        [priority for _, priority in given],
    )
    assert [row["n"] - 1 for row in rows] == sorted(range(len(given)), key=lambda i: (-urgency(*given[i]), i))
