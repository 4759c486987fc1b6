"""I16: behind PgBouncer in transaction mode, with no other address, everything is correct; only hints and presence are missing."""

import asyncio
import logging
from datetime import timedelta

import asyncpg
import pytest
import pytest_asyncio

from suture.engine import Database, Engine, Lease, Run, migrate, workflow
from suture.engine.ids import uuid7
from suture.errors import DatabaseUnavailable, NoSession
from tests.postgres.conftest import create_database
from tests.postgres.engine.stage import PACKAGES, QUICK, Workers, ended, eventually, reached, running
from tests.postgres.servers import renamed, serve


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bouncer(postgres):
    """PgBouncer before a server of its own; the tier's, when it has one."""
    if postgres.direct != postgres.pooled:
        yield postgres
        return
    async with serve("pgbouncer") as server:
        await migrate(server.direct)
        yield server


@pytest_asyncio.fixture
async def addresses(bouncer):
    """This test's own database: past the pooler, and through it."""
    async with create_database(bouncer.direct) as direct:
        await migrate(renamed(bouncer.pooled, name := direct.partition("?")[0].rpartition("/")[2]))
        yield direct, renamed(bouncer.pooled, name)


@pytest_asyncio.fixture
async def pooled(addresses):
    async with Database.connect(addresses[1], packages=PACKAGES) as database:
        yield database


async def prepared(addresses) -> list[str]:
    """The names that clients left in the sessions of the pooler: each of its idle ones is asked."""
    found = []
    for _ in range(20):
        connection = await asyncpg.connect(addresses[1], statement_cache_size=0)
        found += [row[0] for row in await connection.fetch("select name from pg_prepared_statements where name <> ''")]
        await connection.close()
    return found


async def test_two_processes_never_run_each_others_statements(addresses):
    """The driver numbers its statements from one in each process: by name, a session would run whatever another process called so."""
    async with Database.connect(addresses[1]) as one, Database.connect(addresses[1]) as two:
        for database in (one, two):
            await database.one("ping")
        await asyncio.gather(*(d.none("hint", ["q"]) if n % 2 else d.one("ping") for n in range(50) for d in (one, two)))
    assert await prepared(addresses) == []


async def test_a_direct_connection_keeps_its_statements_prepared(addresses):
    async with Database.connect(addresses[0]) as database, database.session() as session:
        await session.one("ping")
        names = await session.connection.fetch("select name from pg_prepared_statements where name <> ''")
    assert names


@pytest.mark.parametrize(("address", "mode"), [(0, "force_generic_plan"), (1, "auto")], ids=["direct", "pooled"])
async def test_how_statements_are_planned_is_set_in_no_session_of_a_pooler(addresses, address: int, mode: str):
    """It would stay there, for whoever is lent the session next."""
    async with Database.connect(addresses[address], plan_once=True) as database, database.session() as session:
        assert await session.connection.fetchval("show plan_cache_mode") == mode


async def test_a_pooler_that_comes_or_goes_is_seen_by_the_next_connection(addresses):
    """An address may be moved to a pooler, and away, while we run."""
    async with Database.connect(addresses[0]) as database:
        await database.one("ping")
        assert not database._pooled
        await database._pool.expire_connections()
        database._pool.set_connect_args(addresses[1])
        await database.one("ping")
        assert database._pooled
        assert await prepared(addresses) == []
        await database._pool.expire_connections()
        database._pool.set_connect_args(addresses[0])
        await database.one("ping")
        assert not database._pooled


async def test_a_session_that_only_reads_is_not_lent_again(addresses, pooled):
    """As after a failover: the pooler would keep sessions on the old primary for as long as it lives."""
    psql, engine = await asyncpg.connect(addresses[0]), Engine(pooled)
    name = await psql.fetchval("select current_database()")
    await psql.execute(f"alter database {name} set default_transaction_read_only = on")
    await psql.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    )

    async def refused() -> bool:
        try:
            await engine.enqueue("w", None, actor="test")
        except DatabaseUnavailable as error:
            return "read-only" in str(error)  # not of a session that the pooler does not know to be gone
        return False

    await eventually(refused)
    await psql.execute(f"set default_transaction_read_only = off; alter database {name} reset default_transaction_read_only")
    await psql.close()
    await eventually(lambda: engine.enqueue("w", None, actor="test"))  # each that is refused was the last one of its session


async def test_presence_is_never_shown_through_a_pooler(addresses, pooled, caplog):
    """The lock would stay with a session that is lent to others: a worker that died would seem to live, and its work would be lost."""
    engine = Engine(pooled)

    @workflow("w")
    async def w(run: Run, _: None) -> str:
        return await run.step("s", asyncio.sleep, 0, "done")

    with caplog.at_level(logging.WARNING):
        async with running(pooled, w):
            task = (await engine.enqueue("w", None, actor="test")).execution
            assert (await ended(engine, task.id)).output == "done"
            assert [worker["presence"] for worker in (await engine.health()).workers] == [False]
    psql = await asyncpg.connect(addresses[0])
    assert await psql.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
    await psql.close()
    assert [r.message for r in caplog.records if "SUTURE_DATABASE_DIRECT" in r.message]


async def test_who_would_listen_through_a_pooler_is_told_once(pooled, caplog):
    for _ in range(3):
        with pytest.raises(NoSession, match="SUTURE_DATABASE_DIRECT"):
            await pooled.listen(["suture_due"], print, greet=lambda _: asyncio.sleep(0), every=timedelta(seconds=1))
    assert sum("SUTURE_DATABASE_DIRECT" in record.message for record in caplog.records) == 1


async def test_hints_and_presence_go_past_the_pooler_when_there_is_a_way(addresses):
    async with Database.connect(addresses[1], direct=addresses[0]) as database:
        engine, begun = Engine(database), asyncio.Event()

        @workflow("w")
        async def w(run: Run, _: None) -> None:
            begun.set()

        async with running(database, w, poll=timedelta(minutes=1)):

            async def present() -> bool:
                return any(worker["presence"] for worker in (await engine.health()).workers)

            await eventually(present)
            await engine.enqueue("w", None, actor="test")
            await asyncio.wait_for(begun.wait(), 30)


async def test_a_killed_worker_is_missed_by_its_lease(addresses, pooled, nursery, tmp_path):
    workers = Workers(nursery, addresses[1], tmp_path)
    engine = Engine(pooled)
    try:
        first = workers.start(name="first", lease=4, heartbeat=1)
        task = (await engine.enqueue("three-steps", None, actor="test")).execution
        assert await workers.noted("hold") == [first.pid]
        first.kill()
        workers.release()
        second = workers.start(name="second", lease=4, heartbeat=1)
        done = await ended(engine, task.id)
        assert (done.status, done.output, done.crashes) == ("completed", second.pid, 1)
        assert workers.notes("first") == [first.pid]  # a finished step is not run again
    finally:
        for worker in workers.started:
            if worker.alive:
                worker.kill()


async def test_a_claim_that_was_taken_over_writes_nothing(pooled):
    engine, again = Engine(pooled), asyncio.Event()

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> bool:
        return await run.step("s", again.wait)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(pooled, w, lease=Lease(timedelta(seconds=30), timedelta(seconds=0.2), restart=timedelta(0))):
        held = await reached(engine, task.id, "running")
        written = await pooled.one("checkpoint", uuid7(), [task.id], [held.epoch], ["s"], ["step"], ["1"], [1], [held.created_at])
        assert written["held"] == []
        again.set()
        assert (await ended(engine, task.id)).output is True


async def test_migrations_that_start_at_once_through_it_collide_with_nobody(bouncer):
    async with create_database(bouncer.direct) as direct:
        name = direct.partition("?")[0].rpartition("/")[2]
        applied = await asyncio.gather(*(migrate(renamed(bouncer.pooled, name)) for _ in range(4)))
        assert len({m for one in applied for m in one}) == sum(map(len, applied)) > 0
        psql = await asyncpg.connect(direct)
        assert await psql.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
        await psql.close()
