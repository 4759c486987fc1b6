"""The embedded Postgres: a real server, of this process alone, for `suture demo`, `suture dev` and the tests.

Starts and ends it; the programs come from `installation`, the leash that ties them to us is `leash`, the private folder a `room`. Knows
nothing of our tables. It is reached through a socket in that folder; no port is open. Data is as safe as with any Postgres: fsync is on.
"""

import asyncio
import errno
import os
import pwd
import re
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, NamedTuple, Self
from urllib.parse import quote

from suture.cli import installation, leash
from suture.cli.installation import Account, Version
from suture.cli.room import room, seize
from suture.errors import ConfigError, DatabaseUnavailable, SutureError

NAME: Final = "suture"
"""Of the database, and of the role that owns it."""

_PORT = "5432"
_SOCKET_LIMIT = 100  # bytes of the socket's path: Linux takes 107
_START_LIMIT = 60.0  # seconds: a recovery replays all that was logged since the last checkpoint
_STOP_ORDER = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))  # fast, immediate, none; seconds for each
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}  # no PG… name of the caller reaches the server


class EmbeddedPostgres:
    """A running server, reached at `url`."""

    def __init__(self, url: str, process: Process) -> None:
        self.url = url
        self._process = process

    @property
    def pid(self) -> int:
        """Process id of the postmaster."""
        return self._process.pid

    @classmethod
    @asynccontextmanager
    async def start(
        cls, data: Path | None = None, version: Version = 18, settings: Mapping[str, str] = MappingProxyType({})
    ) -> AsyncIterator[Self]:
        """A server on the folder `data`, filled when it is empty; without it, on a temporary folder that goes with the server.

        `settings` are Postgres' own, by name. The server ends with this block, and with the thread that enters it, however either ends:
        enter it in a thread that lives as long as the process.
        Raises: ToolMissing, ConfigError, DatabaseUnavailable.
        """
        with ExitStack() as stack:
            with _explained(data):
                place = await _prepare(stack, data, version)
                process = await _launch(place, settings)
            try:
                await _until_ready(place, process)
                port = settings.get("port", _PORT)  # part of the socket's name; left out of the address, PGPORT would decide
                yield cls(f"postgresql:///{NAME}?host={quote(str(place.socket))}&port={port}&user={NAME}", process)
            finally:
                await _stop(process)


class _Place(NamedTuple):
    """Where one server lives."""

    home: Path
    socket: Path
    programs: Path
    account: Account
    locks: tuple[int, ...]
    """Inherited by the server: the folders count as used until its last process is gone, should we be killed before."""

    @property
    def cluster(self) -> Path:
        return self.home / "postgres"

    @property
    def log(self) -> Path:
        return self.home / "postgres.log"


async def _prepare(stack: ExitStack, data: Path | None, version: Version) -> _Place:
    account = Account.choose()
    programs = await asyncio.to_thread(installation.find, version)
    place = _settle(stack, data, account, programs)
    if not _filled(place):
        await _initialize(place, durable=data is not None)
    _check_cluster(place, version)
    return place


def _settle(stack: ExitStack, data: Path | None, account: Account, programs: Path) -> _Place:
    private = stack.enter_context(room(_root(account), f"{NAME}-postgres-"))
    if os.geteuid() == 0:
        private.path.chmod(0o711)  # for the server to pass; what it finds inside is its own and closed to all others
    _own_folder(private.path / "socket", account)
    if data is None:
        return _Place(private.path, private.path / "socket", programs, account, (private.lock,))
    home = data.absolute()  # the server stands elsewhere
    lock = stack.enter_context(_claimed(home, account))
    return _Place(home, private.path / "socket", programs, account, (private.lock, lock))


def _filled(place: _Place) -> bool:
    return place.cluster.exists()


def _root(account: Account) -> Path:
    """The first directory for temporary files that fits: TMPDIR may be too deep for a socket, or closed to the server's user."""
    for root in dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))):  # noqa: S108 (rooms are made by mkdtemp)
        socket = root / f"{NAME}-postgres-12345678" / "socket" / f".s.PGSQL.{_PORT}"
        if os.access(root, os.W_OK | os.X_OK) and len(os.fsencode(socket)) < _SOCKET_LIMIT and not account.stopped_at(root):
            return root
    raise ConfigError(f"No directory for temporary files can be used by {account.name}: set TMPDIR to one with a short path")


@contextmanager
def _claimed(home: Path, account: Account) -> Iterator[int]:
    """Hold the lock of a kept folder, made where it is missing."""
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    if closed := account.stopped_at(there):
        raise ConfigError(
            f"Postgres runs as {account.name}, who may not enter {closed}: choose a data folder outside of it, such as /var/lib/suture"
        )
    if there != home:
        home.mkdir(parents=True)
        home.chmod(0o711 if os.geteuid() == 0 else 0o700)
    if (lock := seize(home)) is None:
        raise ConfigError(f"{home} is in use by another running Suture: stop that one or choose another data folder")
    try:
        yield lock
    finally:
        os.close(lock)


def _own_folder(path: Path, account: Account) -> None:
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, account.uid, account.gid)


async def _initialize(place: _Place, *, durable: bool) -> None:
    """Fill a folder beside and rename it: a start that is killed half-way leaves nothing that looks like a database."""
    new = place.home / "postgres.new"
    if new.exists():
        await asyncio.to_thread(shutil.rmtree, new)
    _own_folder(new, place.account)
    # One locale on every machine, so that sorting and index order never depend on where the folder was made.
    setup = ("--pgdata", str(new), "--username", NAME, "--encoding", "UTF8", "--no-locale", "--auth-host", "scram-sha-256")
    await _run(place, "initdb", *setup, "--auth-local", "peer", *(() if durable else ("--no-sync",)))
    _admit(new, pwd.getpwuid(os.geteuid()).pw_name)
    alone = ("--single", *(() if durable else ("-F",)), "-D", str(new), "-c", "exit_on_error=on", "postgres")
    await _run(place, "postgres", *alone, statement=f"create database {NAME}\n")
    new.rename(place.cluster)


def _admit(cluster: Path, user: str) -> None:
    """Let one user of the system in, as any role: the server asks the kernel who calls, and there is no password to keep.

    The folder of the socket keeps strangers out already, but not, when we are root, the other programs that run as nobody.
    """
    (cluster / "pg_ident.conf").write_text(f'{NAME} "{user}" all\n')
    hosts = cluster / "pg_hba.conf"
    hosts.write_text(re.sub(r"^(local\s+all\s+all\s+peer)$", rf"\1 map={NAME}", hosts.read_text(), flags=re.MULTILINE))


def _check_cluster(place: _Place, version: Version) -> None:
    found = (place.cluster / "PG_VERSION").read_text().strip()
    if found != str(version):
        raise ConfigError(f"{place.home} holds a database of Postgres {found}, this is Postgres {version}: choose another data folder")
    if (owner := place.cluster.stat().st_uid) != place.account.uid:
        raise ConfigError(
            f"{place.cluster} belongs to user {owner}, the server would run as {place.account.name}: "
            "start as the user who made it or choose another data folder"
        )


async def _launch(place: _Place, settings: Mapping[str, str]) -> Process:
    own = {"listen_addresses": "", "unix_socket_directories": str(place.socket), "unix_socket_permissions": "0700", "port": _PORT}
    arguments = [part for name, value in (own | dict(settings)).items() for part in ("-c", f"{name}={value}")]
    with place.log.open("wb") as log:
        return await _spawn(place, "postgres", "-D", str(place.cluster), *arguments, stdin=DEVNULL, stdout=log, stderr=STDOUT)


async def _run(place: _Place, program: str, *arguments: str, statement: str = "") -> None:
    process = await _spawn(place, program, *arguments, stdin=PIPE, stdout=PIPE, stderr=STDOUT)
    try:
        output, _ = await process.communicate(statement.encode())
    finally:
        await _stop(process)
    if process.returncode != 0:
        raise _failure(program, output.decode(errors="replace"), place)


async def _spawn(place: _Place, program: str, *arguments: str, stdin: int, stdout: int | IO[bytes], stderr: int) -> Process:
    """Start one of the programs on the leash.

    In a session of its own: Ctrl-C goes to all of a terminal's foreground processes, and the server must outlive our last statements.
    From "/": the server's user may not be able to enter the folder that we stand in.
    """
    farewell = str(int(signal.SIGINT))  # Postgres' fast shutdown
    tied = (sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), farewell, str(place.account.uid), str(place.account.gid))
    return await asyncio.create_subprocess_exec(
        *tied, str(place.programs / "bin" / program), *arguments,
        stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=place.locks, start_new_session=True, env=_ENVIRONMENT, cwd="/",
    )  # fmt: skip


async def _until_ready(place: _Place, process: Process) -> None:
    """Postgres writes its state into the eighth line of its pid file, where pg_ctl looks for it too; no event tells of it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _START_LIMIT
    while not _ready(place.cluster / "postmaster.pid", process.pid):
        if process.returncode is not None:
            raise _failure("postgres", place.log.read_text(errors="replace"), place)
        if loop.time() > end:
            raise DatabaseUnavailable(f"Postgres was not ready after {_START_LIMIT:g} s, see {place.log}")
        await asyncio.sleep(0.01)


def _ready(pid_file: Path, pid: int) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"


async def _stop(process: Process) -> None:
    """End the program, harder each time; one that has ended already is left alone."""
    for order, patience in _STOP_ORDER:
        with suppress(ProcessLookupError):
            process.send_signal(order)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), patience)
            return


def _failure(program: str, output: str, place: _Place) -> SutureError:
    if "No space left on device" in output:
        return _disk_full(place.home)
    said = [line for line in output.splitlines() if re.search("FATAL|PANIC|ERROR|error:|could not|root", line)] or output.splitlines()[-3:]
    return DatabaseUnavailable(f"{program} did not start in {place.home}: {' / '.join(said[:3]) or 'it said nothing'}")


def _disk_full(home: Path | str) -> DatabaseUnavailable:
    return DatabaseUnavailable(f"The disk that holds {home} is full, Postgres needs 100 MB: free some or choose another data folder")


@contextmanager
def _explained(data: Path | None) -> Iterator[None]:
    """What the system refuses, in words that say what to do."""
    try:
        yield
    except OSError as error:
        place = error.filename or data or tempfile.gettempdir()
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(place) from None
        raise ConfigError(f"{place} cannot be used for Postgres: {error.strerror}. Choose another data folder") from None
