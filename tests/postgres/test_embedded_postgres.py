"""The embedded Postgres is a real one, is ours alone, and goes when we go, however we go."""

import asyncio
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psutil
import pytest

from suture.cli.postgres import EmbeddedPostgres
from suture.errors import ConfigError, DatabaseUnavailable

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs Postgres as somebody else")

OWNER = """
import asyncio, json, sys
from pathlib import Path
from suture.cli.postgres import EmbeddedPostgres

async def main():
    async with EmbeddedPostgres.start(Path(sys.argv[1]) if sys.argv[1:] else None) as server:
        print(json.dumps({"url": server.url, "pid": server.pid}), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_it_serves_sql_durably_and_through_a_private_socket_only():
    async with EmbeddedPostgres.start() as server:
        socket = folder_of_socket(server.url)
        assert await ask(server.url, "select current_database() || ' ' || current_user") == "suture suture"
        assert await ask(server.url, "show fsync") == "on"
        assert await ask(server.url, "show synchronous_commit") == "on"
        assert await ask(server.url, "show server_encoding") == "UTF8"
        assert await ask(server.url, "show server_version_num") >= "180000"
        assert socket.stat().st_mode & 0o777 == 0o700
        assert len(os.fsencode(socket / ".s.PGSQL.5432")) < 100
        assert not [c for c in psutil.Process(server.pid).net_connections("inet") if c.status == psutil.CONN_LISTEN]
    assert not psutil.pid_exists(server.pid)
    assert not socket.parent.exists()


async def test_postgres_16_is_there_on_request():
    async with EmbeddedPostgres.start(version=16) as server:
        assert (await ask(server.url, "show server_version_num")).startswith("16")


async def test_two_run_at_once_and_do_not_see_each_other():
    async with EmbeddedPostgres.start() as one, EmbeddedPostgres.start() as other:
        await ask(one.url, "create table mark (i int)")
        assert await ask(other.url, "select to_regclass('mark')") is None


async def test_settings_reach_the_server_and_a_wrong_one_is_named():
    async with EmbeddedPostgres.start(settings={"max_connections": "17"}) as server:
        assert await ask(server.url, "show max_connections") == "17"
    with pytest.raises(DatabaseUnavailable, match=r"unrecognized configuration parameter .*colour"):
        async with EmbeddedPostgres.start(settings={"colour": "blue"}):
            pass


@pytest.mark.parametrize("order", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
async def test_no_process_outlives_its_owner_and_the_next_run_removes_the_folder(order: signal.Signals):
    owner, server = started()
    processes = [psutil.Process(server["pid"]), *psutil.Process(server["pid"]).children()]
    room = folder_of_socket(server["url"]).parent
    assert len(processes) > 3
    assert room.is_dir()

    owner.send_signal(order)
    owner.wait(60)

    until(lambda: not any(alive(process) for process in processes))
    async with EmbeddedPostgres.start():
        assert not room.exists()


def test_an_owner_killed_while_it_starts_leaves_no_process(folder: Path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(folder / "data")], stdout=subprocess.DEVNULL)
    until(lambda: bool(running_on(folder) - {owner.pid}))
    owner.kill()
    owner.wait(60)
    until(lambda: not running_on(folder))


async def test_a_start_that_was_killed_half_way_is_begun_anew(folder: Path):
    (folder / "data" / "postgres.new" / "base").mkdir(parents=True)
    (folder / "data" / "postgres.new" / "PG_VERSION").write_text("18\n")
    async with EmbeddedPostgres.start(folder / "data") as server:
        assert await ask(server.url, "select 1") == 1


async def test_a_kept_folder_keeps_its_rows_even_when_its_owner_is_killed(folder: Path):
    owner, server = started(folder / "data")
    postmaster = psutil.Process(server["pid"])
    await ask(server["url"], "create table kept as select 7 as value")
    owner.kill()
    owner.wait(60)
    until(lambda: not alive(postmaster))

    async with EmbeddedPostgres.start(folder / "data") as again:
        assert await ask(again.url, "select value from kept") == 7


async def test_a_kept_folder_has_one_owner_at_a_time(folder: Path):
    async with EmbeddedPostgres.start(folder / "data") as server:
        with pytest.raises(ConfigError, match="in use by another"):
            async with EmbeddedPostgres.start(folder / "data"):
                pass
        assert await ask(server.url, "select 1") == 1


async def test_another_version_leaves_a_kept_folder_alone(folder: Path):
    async with EmbeddedPostgres.start(folder / "data", 16):
        pass
    with pytest.raises(ConfigError, match="of Postgres 16, this is Postgres 18"):
        async with EmbeddedPostgres.start(folder / "data", 18):
            pass
    async with EmbeddedPostgres.start(folder / "data", 16) as server:
        assert await ask(server.url, "select 1") == 1


async def test_ctrl_c_in_the_terminal_reaches_us_and_not_the_server():
    async with EmbeddedPostgres.start() as server:
        assert os.getpgid(server.pid) != os.getpgid(0)
        assert os.getsid(server.pid) != os.getsid(0)


async def test_modes_of_home_checkout_and_packages_stay_as_they_are():
    deep = [Path.home(), Path.cwd(), Path(sys.prefix), *map(Path, site.getsitepackages()), Path(tempfile.gettempdir())]
    folders = {ancestor for path in deep for ancestor in (path, *path.parents) if ancestor.exists()}
    before = {path: path.stat().st_mode for path in folders}
    async with EmbeddedPostgres.start():
        pass
    assert {path: path.stat().st_mode for path in folders} == before


@root_only
async def test_root_is_told_which_folder_keeps_the_servers_user_out(folder: Path):
    closed = folder / "home"
    closed.mkdir(mode=0o700)
    with pytest.raises(ConfigError, match=f"may not enter {closed}"):
        async with EmbeddedPostgres.start(closed / "data"):
            pass
    assert list(closed.iterdir()) == []
    assert closed.stat().st_mode & 0o777 == 0o700


@root_only
async def test_root_runs_it_as_nobody_and_other_programs_of_nobody_are_turned_away():
    async with EmbeddedPostgres.start() as server:
        assert psutil.Process(server.pid).username() == "nobody"
        os.seteuid(psutil.Process(server.pid).uids().real)
        try:
            with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="Peer authentication failed"):
                await asyncpg.connect(server.url, timeout=10)
        finally:
            os.seteuid(0)


async def test_a_cancelled_owner_stops_the_server_first():
    running: list[EmbeddedPostgres] = []
    ready = asyncio.Event()

    async def own() -> None:
        async with EmbeddedPostgres.start() as server:
            running.append(server)
            ready.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(own())
        await asyncio.wait_for(ready.wait(), 60)
        task.cancel()
    assert task.cancelled()
    assert not psutil.pid_exists(running[0].pid)
    assert not folder_of_socket(running[0].url).parent.exists()


async def ask(url: str, statement: str):
    connection = await asyncpg.connect(url, timeout=30)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def started(*arguments: Path) -> tuple[subprocess.Popen[str], dict]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    with owner.stdout:
        return owner, json.loads(owner.stdout.readline())


def folder_of_socket(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def running_on(folder: Path) -> set[int]:
    found = psutil.process_iter(["cmdline", "status"])
    return {p.pid for p in found if str(folder) in " ".join(p.info["cmdline"] or ()) and p.info["status"] != psutil.STATUS_ZOMBIE}


def alive(process: psutil.Process) -> bool:
    """Orphans that have ended may stay as zombies where process 1 of a container does not collect them."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "this never came true"
        time.sleep(0.02)
