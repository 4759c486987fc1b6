"""I15: retention drops partitions; what belongs to an execution that is kept is never lost, whatever it takes; nobody waits for a drop."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

from suture.engine import Database, Run, workflow
from suture.engine.lease import tidy
from suture.engine.retention import Retention
from suture.errors import IllegalTransition
from tests.postgres.engine.stage import PACKAGES, ended, eventually, reached, running

KEEP = timedelta(days=90)
NOW = datetime.now(UTC)
TABLES = ("operation_outputs", "operation_failures", "workflow_waits", "events", "moves")
RELATED = dict.fromkeys((*TABLES, "effects", "dead_letters"), "execution_id")


def month(ago):
    """The first of the month, so many months ago."""
    year, month_ = divmod(NOW.year * 12 + NOW.month - 1 - ago, 12)
    return datetime(year, month_ + 1, 1, tzinfo=UTC)


@pytest.fixture
def age(psql):
    """Turn an execution into one that was created, and ended, so many months ago, in all that belongs to it. Returns its new id."""

    async def age_(id_, *, created, finished=None):
        moment = month(created) + timedelta(days=3)
        async with psql.transaction():
            for ago in {created, finished} - {None}:
                await psql.execute("select suture.add_month(name, key, by_id, $1) from suture.partitioned_tables()", month(ago).date())
            await psql.execute("set local session_replication_role = replica")
            new = await psql.fetchval("select (left(suture.id_at($1)::text, 14) || right($2::uuid::text, 22))::uuid", moment, id_)
            for table, key in RELATED.items():
                await psql.execute(f"update suture.{table} set {key} = $2 where {key} = $1", id_, new)
            await psql.execute("update suture.workflow_executions set id = $2 where id = $1", id_, new)
            await psql.execute("update suture.workflow_history set id = $2 where id = $1", id_, new)
            if finished is not None:
                end = month(finished) + timedelta(days=5)
                await psql.execute("update suture.workflow_executions set finished_at = $2 where id = $1", new, end)
                await psql.execute("update suture.dead_letters set dead_at = $2 where execution_id = $1", new, end)
        return new

    return age_


@pytest.fixture
def retention(database):
    return Retention(database, keep=KEEP)


@workflow("story")
async def story(run: Run, _: None) -> str:
    async def find() -> None:
        return None

    async def act() -> str:
        return "done"

    await run.step("write", act)
    await run.effect("tell", key=str(run.id), find=find, act=act, returns=str)
    await run.wait("answer", str)
    return "told"


async def rows_of(psql, id_):
    return {table: await psql.fetchval(f"select count(*) from suture.{table} where {key} = $1", id_) for table, key in RELATED.items()}


async def partitions(psql, table):
    return [
        row[0].removeprefix(f"{table}_")
        for row in await psql.fetch(
            "select inhrelid::regclass::text from pg_inherits where inhparent = $1::text::regclass order by 1", table
        )
    ]


async def told(engine, database):
    """An execution that has ended and left something everywhere."""
    async with running(database, story):
        task = (await engine.enqueue("story", None, actor="test")).execution
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "answer", "yes", actor="test")
        await ended(engine, task.id)
    return task.id


async def test_the_coming_months_are_made_ahead_and_only_once(psql, database):
    await psql.execute("set search_path = suture")
    expected = [f"{month(-n):%Y%m}" for n in range(3)] + ["default"]
    for table in (*TABLES, "workflow_history"):
        assert await partitions(psql, table) == expected
    assert (await asyncio.gather(*(database.one("add_partitions") for _ in range(4))))[0]["added"] == 0


async def test_what_ended_before_the_retention_goes_with_its_partitions_and_a_ledger_entry_with_it(engine, database, psql, age, retention):
    young, old = await told(engine, database), await told(engine, database)
    old = await age(old, created=6, finished=5)
    before = await rows_of(psql, old)
    assert {name for name, count in before.items() if count} >= {"operation_outputs", "events", "moves", "effects", "workflow_waits"}
    assert await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1)) == 2
    kept = await rows_of(psql, young)

    dropped = await retention.turn()

    assert {f"{table}_{month(6):%Y%m}" for table in TABLES} < set(dropped)
    assert f"workflow_history_{month(5):%Y%m}" in dropped
    assert sum((await rows_of(psql, old)).values()) == 0
    assert await psql.fetchval("select count(*) from suture.executions where id = $1", old) == 0
    assert await rows_of(psql, young) == kept
    assert (await engine.get(young)).output == "told"
    assert await retention.turn() == []


async def test_a_dead_letter_goes_with_its_execution_and_the_ends_of_children_stay_twice_as_long(engine, database, psql, age, retention):
    async def dead_since(months):
        task = (await engine.enqueue("story", None, actor="test")).execution
        await psql.execute("update suture.workflow_executions set deadline_at = now() - interval '1 s' where id = $1", task.id)
        await database.many("expire_overdue", 10, "test")
        old = await age(task.id, created=months + 1, finished=months)
        await psql.execute("insert into suture.child_results (parent_id, step_id, child_id, status) values ($1, 's', $1, 'completed')", old)
        return old

    async def left(table, key):
        return {row[0] for row in await psql.fetch(f"select {key} from suture.{table}")}

    older, old, young = await dead_since(9), await dead_since(4), await dead_since(1)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    assert await left("dead_letters", "execution_id") == {older, old, young}
    await retention.turn()
    assert await left("dead_letters", "execution_id") == {young}
    assert await left("child_results", "parent_id") == {old, young}


async def test_an_execution_that_lives_loses_nothing_however_old_and_goes_on(engine, database, psql, age, retention):
    async with running(database, story):
        task = (await engine.enqueue("story", None, actor="test")).execution
        await reached(engine, task.id, "waiting")
    old = await age(task.id, created=9)
    before, timeline = await rows_of(psql, old), await engine.timeline(old)

    dropped = await retention.turn()

    assert f"moves_{month(9):%Y%m}" in dropped, "a few are moved, the month goes"
    assert await rows_of(psql, old) == before
    assert await engine.timeline(old) == timeline
    async with running(database, story):
        await engine.emit(old, "answer", "yes", actor="test")
        assert (await ended(engine, old)).output == "told"
    assert [c.step_id for c in await engine.checkpoints(old)] == ["write", "tell", "answer"]

    # and when it has ended long ago, what was moved goes row by row
    await psql.execute("set session_replication_role = replica")
    await psql.execute("update suture.workflow_executions set finished_at = now() - interval '200 days' where id = $1", old)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    await psql.execute("set session_replication_role = origin")
    await retention.turn()
    assert sum((await rows_of(psql, old)).values()) == 0


async def test_many_that_live_hold_their_month_back_which_is_said_once(engine, psql, age, retention, caplog):
    ids = await engine.enqueue_many("story", [None] * 101, actor="test")
    for id_ in ids:
        old = await age(id_, created=8)
        await psql.execute("insert into suture.events (execution_id, name, payload, emitted_by) values ($1, 'e', 'null', 'test')", old)
    for _ in range(2):
        assert [name for name in await retention.turn() if name.startswith("events")] == []
    said = [record.partition for record in caplog.records if "held by executions" in record.message]
    assert sorted(said) == sorted(f"{table}_{month(8):%Y%m}" for table in TABLES)

    await psql.execute("set session_replication_role = replica")
    await psql.execute("delete from suture.workflow_executions where id in (select id from suture.workflow_executions limit 1)")
    assert f"events_{month(8):%Y%m}" in await retention.turn()
    assert await psql.fetchval("select count(*) from suture.events") == 100, "one of them was forgotten"


async def test_what_is_kept_in_the_history_keeps_its_steps_and_timeline(engine, database, psql, age, retention):
    """It was created long ago and ended lately."""
    old = await age(await told(engine, database), created=9, finished=1)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    before = await rows_of(psql, old)
    await retention.turn()
    assert await rows_of(psql, old) == before
    assert (await engine.get(old)).output == "told"


async def test_a_reader_that_takes_long_is_not_waited_for_and_blocks_nobody(engine, database, database_url, psql, age, retention):
    old = await age(await told(engine, database), created=6, finished=5)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    reader = await asyncpg.connect(database_url)
    try:
        transaction = reader.transaction(isolation="repeatable_read")
        await transaction.start()
        assert await reader.fetchval("select count(*) from suture.moves") > 0

        began = asyncio.get_running_loop().time()
        dropped = await retention.turn()
        await engine.enqueue("story", None, actor="test")
        took = asyncio.get_running_loop().time() - began

        assert [name for name in dropped if name.startswith("moves")] == []
        assert f"events_{month(6):%Y%m}" in dropped, "the others go meanwhile"
        assert took < 5, "a lock that is not there at once is given up"
        await transaction.rollback()
    finally:
        await reader.close()
    assert f"moves_{month(6):%Y%m}" in await retention.turn()
    assert (await rows_of(psql, old))["moves"] == 0


async def test_many_workers_at_once_drop_each_partition_once(engine, database, psql, age):
    await age(await told(engine, database), created=6, finished=5)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))

    async def look():
        names = await asyncio.gather(*(Retention(database, keep=KEEP).turn() for _ in range(6)))
        return sorted(name for some in names for name in some)

    dropped = await look()
    while again := await look():
        dropped += again
    assert len(dropped) == len(set(dropped))
    assert {f"{table}_{month(6):%Y%m}" for table in TABLES} < set(dropped)


async def test_writers_go_on_while_partitions_are_dropped(engine, database, psql, age, retention):
    for created in (5, 6, 7, 8):
        await age(await told(engine, database), created=created, finished=created - 1)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    async with running(database, story):
        ids = await engine.enqueue_many("story", [None] * 40, actor="test")
        while await retention.turn():
            pass
        for id_ in ids:
            await reached(engine, id_, "waiting")
            await engine.emit(id_, "answer", "yes", actor="test")
        for id_ in ids:
            assert (await ended(engine, id_)).attempt == 1


async def test_an_id_of_another_time_is_refused_nowhere_and_forgotten_with_its_execution(engine, database, psql, retention):
    for id_ in ("f0000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"):
        await psql.execute("insert into suture.workflow_executions (id, workflow, input, changed_by) values ($1, 'w', 'null', 'hand')", id_)
        await retention.turn()
        assert len(await engine.timeline(id_)) == 1
        await engine.cancel(id_, actor="test")
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    assert await psql.fetchval("select count(*) from suture.moves_default") == 2

    await psql.execute("delete from suture.workflow_history where id::text like 'f%'")
    await retention.turn()
    assert await psql.fetchval("select count(*) from suture.moves_default") == 1
    assert len(await engine.timeline("00000000-0000-4000-8000-000000000002")) == 2


async def test_a_month_that_has_begun_in_the_default_stays_there(engine, database, psql, retention):
    await psql.execute(f"drop table suture.moves_{month(0):%Y%m}")
    task = (await engine.enqueue("story", None, actor="test")).execution
    await engine.cancel(task.id, actor="test")
    await retention.turn()
    assert await psql.fetchval("select to_regclass($1)", f"suture.moves_{month(0):%Y%m}") is None
    assert await psql.fetchval("select count(*) from suture.moves_default") == 1
    assert len(await engine.timeline(task.id)) == 2


async def test_the_timeline_is_append_only_in_each_of_its_partitions(engine, psql):
    task = (await engine.enqueue("story", None, actor="test")).execution
    await engine.cancel(task.id, actor="test")
    history = ("workflow_history", f"workflow_history_{month(0):%Y%m}", "workflow_history_default")
    for table in ("moves", f"moves_{month(0):%Y%m}", "moves_default", *history):
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await psql.execute(f"truncate suture.{table}")
    for table in ("moves", f"moves_{month(0):%Y%m}"):
        for change in (f"update suture.{table} set actor = 'nobody'", f"delete from suture.{table}"):
            with pytest.raises(asyncpg.PostgresError, match="append-only"):
                await psql.execute(change)
    assert len(await engine.timeline(task.id)) == 2


@pytest.fixture
async def stranger(psql):
    """A role that may write every row and owns no table."""
    role = f"suture_stranger_{uuid4().hex[:8]}"
    await psql.execute(
        f"create role {role}; grant usage, create on schema suture to {role}; grant all on all tables in schema suture to {role}"
    )
    yield role
    await psql.execute(f"drop owned by {role}; drop role {role}")


async def test_only_the_owner_drops_and_a_worker_that_is_not_says_so(engine, database, database_url, psql, age, stranger, caplog):
    old = await age(await told(engine, database), created=6, finished=5)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))

    async with Database.connect(database_url, size=2, packages=PACKAGES) as other:
        async with other.session() as session:
            await session.connection.execute(f"set role {stranger}")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await session.connection.fetchval("select suture.drop_month('moves', 'execution_id', true, $1)", month(6).date())
        retention = Retention(other, keep=KEEP)
        assert await retention.turn() == []
        assert await retention.turn() == []

    assert (await rows_of(psql, old))["moves"] > 0
    assert len([record for record in caplog.records if "does not own" in record.message]) == 1


async def test_a_runner_keeps_its_promise(engine, database, psql, age):
    old = await age(await told(engine, database), created=6, finished=5)
    await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))

    async def gone() -> bool:
        return sum((await rows_of(psql, old)).values()) == 0

    async with running(database, story, retention=KEEP):
        await eventually(gone)
    with pytest.raises(IllegalTransition):
        await engine.emit(await told(engine, database), "answer", "late", actor="test")


@pytest.mark.parametrize("name", ["load_checkpoints", "load_failures", "timeline", "find_event"])
async def test_a_look_by_execution_reads_one_partition(psql, database, name):
    """The others are cut off when the statement begins, although its plan is the one for any execution."""
    text = database.statements[name].text
    await psql.execute("set plan_cache_mode = force_generic_plan")
    id_ = await psql.fetchval("select suture.id_at(now())")
    await psql.execute(f"prepare explained as {text}")
    more = ", 'e'" if name == "find_event" else ""
    rows = await psql.fetch(f"explain (analyze, costs off, timing off, summary off) execute explained('{id_}'{more})")
    plan = "\n".join(row[0] for row in rows)
    assert "Subplans Removed: 3" in plan
    found = plan.replace("workflow_history", "") if name == "timeline" else plan  # where an execution lies when it has ended, nobody knows
    assert found.count(f"_{month(0):%Y%m}") >= 1
    assert "moves_default" not in plan if name == "timeline" else "default" not in plan
