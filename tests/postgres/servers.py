"""The servers that the tier runs on: Postgres 18 and 16 of the wheel, Debian's 15, and 18 behind Debian's PgBouncer in transaction mode.

Sync to disk is off here and only here: no test pulls the plug of the machine. Everything is reached through sockets in a private folder,
and ends with us however we end.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import pytest

from suture.cli import leash
from suture.cli.installation import Account
from suture.cli.postgres import EmbeddedPostgres
from suture.cli.room import room

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
EMBEDDED: dict[str, Literal[16, 18]] = {"16": 16, "18": 18}
KINDS = ("15", "16", "18", "pgbouncer")

DEBIAN = Path("/usr/lib/postgresql/15/bin")
BOUNCER = Path("/usr/sbin/pgbouncer")


class Server(NamedTuple):
    direct: str
    """The address of a database from which others may be created, and through which sessions are one's own."""
    pooled: str
    """The address that the engine is given: through PgBouncer where there is one, or else the same."""


@asynccontextmanager
async def serve(kind: str) -> AsyncIterator[Server]:
    """One of `KINDS`, or the address of another server, which is taken as it is."""
    if kind not in KINDS:
        yield Server(kind, kind)
        return
    with room(memory(), "suture-tests-") as private:
        private.path.chmod(0o711)  # as root the server runs as nobody, who has to pass
        if kind == "15":
            async with _debian(private.path) as url:
                yield Server(url, url)
        elif kind == "pgbouncer":
            async with _embedded(private.path, "18", _trusting(private.path)) as url, bouncer(private.path, url) as pooled:
                yield Server(url, pooled)
        else:
            async with _embedded(private.path, kind, {}) as url:
                yield Server(url, url)


@asynccontextmanager
async def bouncer(folder: Path, url: str, *, pool: int = 20) -> AsyncIterator[str]:
    """PgBouncer in transaction mode before the server of `url`, with its own defaults but for what is a matter of this machine."""
    if not BOUNCER.exists():
        pytest.skip(f"{BOUNCER} is missing: apt-get install pgbouncer")
    home = _own(folder / "bouncer")
    options = dict(part.split("=") for part in urlsplit(url).query.split("&"))
    settings = home / "pgbouncer.ini"
    settings.write_text(
        f"""[databases]
* = host={options["host"].replace("%2F", "/")} port={options["port"]} user={options["user"]}
[pgbouncer]
unix_socket_dir = {home}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 1000
server_login_retry = 0.1
logfile = {home}/log
"""
    )
    process = await _spawn(str(BOUNCER), "--quiet", str(settings))
    pooled = url.replace(f"host={options['host']}", f"host={home}").replace(f"port={options['port']}", "port=6432")
    try:
        await _until_answers(pooled, process, home / "log")
        yield pooled
    finally:
        await _end(process)


def renamed(url: str, name: str) -> str:
    """The address of another database of the same server."""
    # By hand: urlunsplit drops the empty host of postgresql:///suture?host=/a/folder, and what is left is no address of a database.
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    query = urlsplit(url).query
    return f"{scheme}://{host}/{name}{'?' if query else ''}{query}"


def memory() -> Path:
    """In memory where there is room: to copy a template's 300 files takes 10 ms there and 100 ms on a disk."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() and shutil.disk_usage(shared).free > 4 << 30 else Path(tempfile.gettempdir())


@asynccontextmanager
async def _embedded(folder: Path, kind: str, settings: dict[str, str]) -> AsyncIterator[str]:
    async with EmbeddedPostgres.start(folder / "data", EMBEDDED[kind], FAST | settings) as server:
        yield server.url


def _trusting(folder: Path) -> dict[str, str]:
    """PgBouncer runs as nobody, and the embedded server asks the kernel for our own user: here whoever reaches the socket is let in."""
    rules = folder / "hba.conf"
    rules.write_text("local all all trust\n")
    rules.chmod(0o644)
    return {"hba_file": str(rules)}


@asynccontextmanager
async def _debian(folder: Path) -> AsyncIterator[str]:
    if not DEBIAN.exists():
        pytest.skip(f"{DEBIAN} is missing: apt-get install postgresql-15")
    home = _own(folder / "debian")
    made = await _spawn(
        *(str(DEBIAN / "initdb"), "--pgdata", f"{home}/data", "--username", "suture", "--encoding", "UTF8"),
        *("--no-locale", "--no-sync", "--auth", "trust"),
    )
    assert await made.wait() == 0, "initdb of Postgres 15 failed"
    own = {"listen_addresses": "", "unix_socket_directories": str(home), "logging_collector": "on", "log_directory": str(home)}
    arguments = [part for name, value in (FAST | own).items() for part in ("-c", f"{name}={value}")]
    process = await _spawn(str(DEBIAN / "postgres"), "-D", f"{home}/data", *arguments)
    url = f"postgresql:///postgres?host={home}&port=5432&user=suture"
    try:
        await _until_answers(url, process, home)
        yield url
    finally:
        await _end(process)


def _own(folder: Path) -> Path:
    """A folder of the account that servers run as."""
    folder.mkdir(mode=0o700)
    account = Account.choose()
    os.chown(folder, account.uid, account.gid)
    return folder


async def _spawn(program: str, *arguments: str) -> Process:
    account = Account.choose()
    tied = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), str(int(signal.SIGINT)), str(account.uid), str(account.gid))
    return await asyncio.create_subprocess_exec(
        *tied, program, *arguments, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True, env={"LC_ALL": "C"}, cwd="/"
    )


async def _until_answers(url: str, process: Process, log: Path) -> None:
    end = asyncio.get_running_loop().time() + 30
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=5, statement_cache_size=0)
        except (OSError, asyncpg.PostgresError) as error:
            if process.returncode is not None or asyncio.get_running_loop().time() > end:
                pytest.fail(f"{url} does not answer ({error}), see {log}")
            await asyncio.sleep(0.02)
        else:
            await connection.close()
            return


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()
