"""What public reports tell of leases and stops that went wrong elsewhere, done to ours: E04, E10."""

import asyncio
import contextlib
import logging
import signal
from datetime import timedelta
from itertools import pairwise

import pytest

from suture.engine import Database, Engine, Lease, Run, workflow
from tests.postgres.engine.stage import ended, eventually, reached, running

LEASE = 2.4
"""Seconds; the report's experiment has 6 s and 300 ms of latency."""
LATENCY = LEASE / 20
PLACES = ("in a step", "in a transaction", "in a thread", "before the first step")


@pytest.fixture
async def slow_url(database_url, psql):
    """The same database behind a wire on which every answer takes LATENCY."""
    folder = (await psql.fetchval("show unix_socket_directories")).split(",")[0].strip()
    port = await psql.fetchval("show port")

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: float) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(pause)
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        await asyncio.gather(carry(reader, back, 0), carry(there, writer, LATENCY))

    name, user = await psql.fetchval("select current_database()"), await psql.fetchval("select current_user")
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"postgresql://{user}@127.0.0.1:{server.sockets[0].getsockname()[1]}/{name}?sslmode=disable"


async def test_e04_a_handler_of_five_leases_is_never_claimed_twice(slow_url, psql):
    """pgqueuer#430, #323, #674: two buffers before the write made one renewal a lease, and long jobs were picked a second time.

    What counts is when the table changes. The only connection of the pool is taken for a third of the lease, again and again.
    """
    runs, over = [], asyncio.Event()

    async def work() -> None:
        runs.append(1)
        await asyncio.sleep(5 * LEASE)

    @workflow("long")
    async def long(run: Run, _: None) -> None:
        await run.step("work", work)

    async def occupy(database: Database) -> None:
        while not over.is_set():
            async with database.session():
                await asyncio.sleep(LEASE / 3)
            await asyncio.sleep(LEASE / 3)

    lease = Lease(timedelta(seconds=LEASE), timedelta(seconds=LEASE / 4), timedelta(seconds=0.1), restart=timedelta(0))
    seen: list = []
    async with Database.connect(slow_url, size=1) as one, Database.connect(slow_url) as two:
        task = (await Engine(two).enqueue("long", None, actor="test")).execution
        async with running(one, long, lease=lease):
            await reached(Engine(two), task.id, "running")
            async with running(two, long, lease=lease, name="rival"):
                busy = asyncio.create_task(occupy(one))
                while await psql.fetchval("select status from suture.workflow_executions") == "running":
                    expires = await psql.fetchval("select lease_expires from suture.workflow_executions where status = 'running'")
                    seen.extend([expires] if expires and expires not in seen else [])
                    await asyncio.sleep(0.01)
                over.set()
                await busy
                done = await ended(Engine(two), task.id)
    assert (done.status, done.crashes, done.epoch, runs) == ("completed", 0, 1, [1])
    assert len(seen) >= 15  # five leases, three renewals and more in each
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(seen)]
    assert sorted(gaps)[len(gaps) // 2] <= LEASE / 3
    assert max(gaps) < LEASE * 2 / 3


async def test_e04_a_renewal_that_is_missed_is_in_the_log_before_the_lease_ends(engine, database, psql, caplog):
    caplog.set_level(logging.WARNING)
    leave = asyncio.Event()

    @workflow("long")
    async def long(run: Run, _: None) -> None:
        await run.step("work", leave.wait)

    task = (await engine.enqueue("long", None, actor="test")).execution
    lease = Lease(timedelta(seconds=30), timedelta(seconds=0.3), restart=timedelta(0))
    async with running(database, long, lease=lease):
        await reached(engine, task.id, "running")
        async with psql.transaction():
            await psql.execute("select from suture.workflow_executions where id = $1 for update", task.id)

            async def told() -> bool:
                return any("no heartbeat" in record.message for record in caplog.records)

            await eventually(told, what="a warning")
            assert await psql.fetchval("select lease_expires > clock_timestamp() from suture.workflow_executions")
        leave.set()
        done = await ended(engine, task.id)
    assert (done.status, done.epoch) == ("completed", 1)


@pytest.mark.parametrize("place", PLACES)
async def test_e10_a_stop_before_the_step_is_done_releases_at_once(engine, workers, psql, place):
    """pgqueuer#630, #475, procrastinate#307: CancelledError passed `except Exception` by, and the row stayed picked for ever."""
    task = (await engine.enqueue("busy", place, actor="test")).execution
    first = workers.start(drain=0)
    await workers.noted("hold")
    first.signal(signal.SIGTERM)
    released = await reached(engine, task.id, "enqueued", within=15)  # the lease has 30 s
    assert (released.attempt, released.crashes, released.owner_id) == (1, 0, None)
    open_ = """select count(*) from pg_stat_activity
               where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()"""

    async def closed() -> bool:
        return await psql.fetchval(open_) == 0

    await eventually(closed, what="the end of every transaction")
    assert await psql.fetchval("select to_regclass('halves')") is None
    workers.release()
    second = workers.start()
    await first.gone()
    done = await ended(engine, task.id)
    assert (done.status, done.output, done.attempt, done.crashes, done.epoch) == ("completed", second.pid, 1, 0, 2)
    if place == "in a transaction":
        assert await psql.fetchval("select count(*) from halves") == 1


@pytest.mark.parametrize("place", PLACES)
async def test_e10_a_stop_that_leaves_time_lets_it_finish(engine, workers, psql, place):
    task = (await engine.enqueue("busy", place, actor="test")).execution
    worker = workers.start(drain=60)
    await workers.noted("hold")
    worker.signal(signal.SIGTERM)
    workers.release()
    await worker.gone()
    done = await engine.get(task.id)
    assert (done.status, done.output, done.attempt, done.epoch) == ("completed", worker.pid, 1, 1)
