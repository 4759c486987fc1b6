"""A Postgres of one proof alone: on a small volume of its own where we may mount one, so that it can be crashed, started again, and
robbed of its disk. Knows nothing of the engine but how to prepare a database for it.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType

import asyncpg

from suture.cli.postgres import EmbeddedPostgres
from suture.errors import DatabaseUnavailable

_NAME = "suture-proof-"
VOLUME = 640 << 20  # bytes: a cluster with its log takes 200 MB
_START_PATIENCE = 60.0


class Server:
    """Stopped and started at the same address, as often as wished."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str]) -> None:
        self.folder, self._settings = folder, dict(settings)
        self.socket = folder / "socket" / ".s.PGSQL.5432"
        self.url = f"postgresql:///suture?host={folder / 'socket'}&port=5432&user=suture"
        self.volume = folder / "volume"
        self.mounted = False
        self._stack = AsyncExitStack()
        self._running: EmbeddedPostgres | None = None

    @property
    def pid(self) -> int:
        assert self._running
        return self._running.pid

    @property
    def is_up(self) -> bool:
        if self._running is None:
            return False
        with suppress(ChildProcessError, ProcessLookupError):
            return not _is_dead(self._running.pid)
        return False

    async def start(self) -> None:
        """Start it, trying again while it cannot: a disk may still be full, a port still be taken."""
        end = asyncio.get_running_loop().time() + _START_PATIENCE
        while True:
            try:
                settings = {"unix_socket_directories": str(self.folder / "socket"), **self._settings}
                self._running = await self._stack.enter_async_context(EmbeddedPostgres.start(self.volume / "data", settings=settings))
            except DatabaseUnavailable:
                if asyncio.get_running_loop().time() > end:
                    raise
                await asyncio.sleep(0.2)
            else:
                return

    async def crash(self) -> None:
        """As `pg_ctl stop -m immediate`: no checkpoint, no farewell; the next start recovers from the log."""
        if self._running is not None:
            with suppress(ProcessLookupError):
                os.kill(self._running.pid, signal.SIGQUIT)
        await self.stop()

    async def stop(self) -> None:
        self._running = None
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url, timeout=2)
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return False
        connection.terminate()
        return True

    def log(self) -> str:
        return (self.volume / "data" / "postgres.log").read_text(errors="replace")

    def fill(self) -> None:
        """Take all that is left of the volume."""
        with (self.volume / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(1 << 20))
        with (self.volume / "ballast-rest").open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(4096))

    def free(self) -> None:
        for name in ("ballast", "ballast-rest"):
            (self.volume / name).unlink(missing_ok=True)


@asynccontextmanager
async def server(*, settings: Mapping[str, str] = MappingProxyType({}), own_volume: bool = False) -> AsyncIterator[Server]:
    """A running server that goes with its folder at the end. `own_volume` mounts one for it, where we may (see `mounted`)."""
    root = Path("/dev/shm") if own_volume and Path("/dev/shm").is_dir() else Path(tempfile.gettempdir())
    _sweep(root)
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=root))
    folder.chmod(0o755)
    (folder / "socket").mkdir()
    (folder / "socket").chmod(0o777)
    (folder / "volume").mkdir()
    made = Server(folder, settings=settings)
    made.mounted = own_volume and _mount(made.volume)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()
        _remove(folder)


def _sweep(root: Path) -> None:
    """Remove what a proof that was killed has left: a folder is named after its process, and Postgres ends with that."""
    for folder in root.glob(f"{_NAME}[0-9]*-*"):
        if not Path("/proc", folder.name.removeprefix(_NAME).partition("-")[0]).exists():
            _remove(folder)


def _remove(folder: Path) -> None:
    if (folder / "volume").is_mount():
        subprocess.run(["umount", "--lazy", str(folder / "volume")], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _mount(place: Path) -> bool:
    if os.geteuid() != 0:
        return False
    options = f"size={VOLUME},mode=0755"
    return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "suture-proof", str(place)], check=False).returncode == 0


def _is_dead(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True
