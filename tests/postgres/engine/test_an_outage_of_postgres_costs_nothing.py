"""I4, I16: Postgres goes away and comes back; no task is lost, none is punished, and no worker has to be started again."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from suture.cli.postgres import EmbeddedPostgres
from suture.engine import Database, Engine, Lease, Run, migrate, workflow
from tests.nursery import Nursery
from tests.postgres.engine.stage import Workers, ended, eventually, reached, running


class Server:
    """A Postgres of this test alone that can be stopped and started at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"postgresql:///suture?host={folder / 'socket'}&port=5432&user=suture"

    @asynccontextmanager
    async def up(self) -> AsyncIterator[EmbeddedPostgres]:
        settings = {"unix_socket_directories": str(self.folder / "socket"), "fsync": "off", "max_connections": "100"}
        async with EmbeddedPostgres.start(self.folder / "data", settings=settings) as server:
            yield server


@pytest.fixture
def server():
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="suture-outage-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o755)
    (folder / "socket").mkdir()
    (folder / "socket").chmod(0o777)
    yield Server(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fleet(nursery: Nursery, server: Server, tmp_path: Path):
    workers = Workers(nursery, server.url, tmp_path)
    yield workers
    for worker in workers.started:
        if worker.alive:
            worker.kill()


async def test_seconds_without_postgres_cost_no_task_and_no_worker(server, fleet):
    """Its workers start before it does, and are in mid-step when it goes."""
    worker = fleet.start(name="early", restart=5)
    async with server.up():
        await migrate(server.url)
        async with Database.connect(server.url) as database:
            engine = Engine(database)
            ids = [(await engine.enqueue("three-steps", None, actor="test")).execution.id for _ in range(5)]
            await fleet.noted("hold", times=5, within=60)
    fleet.release()  # the steps end while Postgres is away: their results must wait for it
    await asyncio.sleep(1.5)
    async with server.up(), Database.connect(server.url) as database:
        engine = Engine(database)
        ends = [await ended(engine, id_, within=60) for id_ in ids]
        assert {(e.status, e.output, e.crashes, e.attempt, e.epoch) for e in ends} == {("completed", worker.pid, 0, 1, 1)}
        assert fleet.notes("hold") == [worker.pid] * 5
        later = (await engine.enqueue("three-steps", None, actor="test")).execution
        assert (await ended(engine, later.id)).output == worker.pid
        worker.signal(signal.SIGTERM)
        await worker.gone()


async def test_an_outage_longer_than_the_lease_costs_a_run_and_no_crash(server, fleet):
    async with server.up():
        await migrate(server.url)
        worker = fleet.start(name="w", lease=2, heartbeat=0.5, restart=5)
        async with Database.connect(server.url) as database:
            task = (await Engine(database).enqueue("three-steps", None, actor="test")).execution
            await fleet.noted("hold", within=60)
    await eventually(lambda: logged(worker, "no heartbeat for a whole lease"))
    async with server.up(), Database.connect(server.url) as database:
        await fleet.noted("hold", times=2, within=60)
        fleet.release()
        done = await ended(Engine(database), task.id)
        assert (done.status, done.crashes, done.attempt) == ("completed", 0, 1)
        assert fleet.notes("first") == [worker.pid]


async def test_postgres_that_crashes_during_recovery_strands_nothing(server, fleet):
    async with server.up():
        await migrate(server.url)
        async with Database.connect(server.url) as database:
            engine = Engine(database)
            ids = [(await engine.enqueue("three-steps", None, actor="test")).execution.id for _ in range(40)]
            lost = [fleet.start(name=f"lost {n}", lease=1.5, heartbeat=0.5) for n in range(2)]
            await fleet.noted("hold", times=32, within=60)
            for worker in lost:
                worker.kill()
            heirs = [fleet.start(name=f"heir {n}", lease=1.5, heartbeat=0.5, concurrency=40) for n in range(2)]
            fleet.release()
            for _ in range(2):
                await fleet.noted("hold", times=34)
                await crash(server)
            ends = [await ended(engine, id_, within=60) for id_ in ids]
            assert {e.status for e in ends} == {"completed"}
            assert all(worker.alive for worker in heirs)


async def crash(server: Server) -> None:
    """Kill a backend with SIGKILL: Postgres drops every connection, and recovers from its log."""
    while True:
        try:
            connection = await asyncpg.connect(server.url)
            break
        except (asyncpg.OperatorInterventionError, asyncpg.PostgresConnectionError, OSError):
            await asyncio.sleep(0.01)  # still in the recovery from the last one
    os.kill(connection.get_server_pid(), signal.SIGKILL)
    connection.terminate()
    await asyncio.sleep(0.05)


async def logged(worker, text: str) -> bool:
    return text in worker.log()


async def test_connections_that_are_cut_cost_no_run(engine, database, psql):
    """All of a worker's connections, the listening one among them."""
    leave, runs = asyncio.Event(), []

    @workflow("w")
    async def w(run: Run, _: None) -> str:
        async def step() -> str:
            runs.append(1)
            await leave.wait()
            return "done"

        return await run.step("step", step)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w, lease=Lease(restart=timedelta(0))):
        await reached(engine, task.id, "running")
        for _ in range(5):
            await eventually(lambda: present(psql))
            await psql.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            )
        await eventually(lambda: present(psql))
        leave.set()
        done = await ended(engine, task.id)
    assert (done.output, done.crashes, len(runs)) == ("done", 0, 1)


async def present(psql) -> bool:
    return await psql.fetchval("select exists (select from pg_locks where locktype = 'advisory' and objsubid = 1 and granted)")


async def test_a_server_that_is_read_only_for_a_while_is_left_for_a_new_connection(engine, database, psql, database_url):
    """E11: as after a failover, connections to the old primary would stay read-only for ever."""
    name = await psql.fetchval("select current_database()")
    await psql.execute(f"alter database {name} set default_transaction_read_only = on")

    @workflow("w")
    async def w(run: Run, _: None) -> str:
        return "done"

    async with Database.connect(database_url) as fresh, running(fresh, w) as runner:
        await asyncio.sleep(0.3)
        assert not runner.ready
        await psql.execute(f"alter database {name} reset default_transaction_read_only")
        async with Database.connect(database_url) as writer:
            task = (await Engine(writer).enqueue("w", None, actor="test")).execution
            assert (await ended(Engine(writer), task.id)).output == "done"


async def test_a_claim_whose_answer_is_lost_does_not_idle_until_its_lease_ends(engine, database, psql):
    @workflow("w")
    async def w(run: Run, _: None) -> str:
        return "done"

    lease = Lease(timedelta(seconds=30), timedelta(seconds=0.2), restart=timedelta(0))
    async with running(database, w, lease=lease) as runner:
        await eventually(lambda: ready(runner))
        task = (await engine.enqueue("other", None, actor="test")).execution
        # as if the claim had been committed, and the connection lost before its answer
        await database.many("claim", runner.owner, ["default"], ["other"], [1], 1, timedelta(seconds=30), "worker here", 99, False)
        found = await reached(engine, task.id, "enqueued")
    assert (found.crashes, found.attempt) == (0, 1)


async def ready(runner) -> bool:
    return runner.ready
