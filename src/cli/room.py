"""A room: a private folder in the temporary directory that no death of its owner leaves behind for long.

A lock file says whether it is in use: the kernel releases a flock with the last process that holds it, kill -9 or not. Whoever opens the
next room of the same name removes the dead ones. Knows nothing of what is kept inside.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

LOCK = "lock"


class Room(NamedTuple):
    path: Path
    lock: int
    """Descriptor of the lock; a child process that inherits it keeps the room in use after we are gone."""


@contextmanager
def room(root: Path, name: str) -> Iterator[Room]:
    """A new folder `root`/`name`…, ours alone, removed at the end; dead rooms of the same name are removed first."""
    sweep(root, name)
    new = _occupy(root, name)
    try:
        yield new
    finally:
        _remove(new.path)
        os.close(new.lock)


def sweep(root: Path, name: str) -> None:
    """Remove the rooms of killed processes. Only ours: in a directory that everybody writes, another user's folder is no business of us."""
    for path in root.glob(f"{name}*"):
        with suppress(OSError):
            if _owned(path) and (descriptor := seize(path)) is not None:
                _remove(path)
                os.close(descriptor)


def seize(folder: Path) -> int | None:
    """The descriptor of the folder's lock, taken; None when another process holds it."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _occupy(root: Path, name: str) -> Room:
    while True:
        path = Path(tempfile.mkdtemp(prefix=name, dir=root))
        # A sweeper that comes between these two lines takes the empty folder for a dead one. Then there is nothing to keep: once more.
        with suppress(FileNotFoundError):
            if (descriptor := seize(path)) is not None:
                if _same(path / LOCK, descriptor):
                    return Room(path, descriptor)
                os.close(descriptor)


def _same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _owned(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _remove(path: Path) -> None:
    """The lock goes last: a removal that is cut short stays a dead room. What cannot be removed now is the next sweep's work."""
    for entry in [entry for entry in path.iterdir() if entry.name != LOCK]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)
