"""A real bare repository with a main branch of two commits, and how tests look at it.

Real git, and some thousand times: the folders are in memory, because git waits for the disk at each object and reference that it writes.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest

PERSON = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in (("NAME", "Ann"), ("EMAIL", "ann@example.com"))}


class Remote:
    """The repository, as its owners see it."""

    def __init__(self, folder: Path) -> None:
        self.path, self._work = folder / "remote.git", folder / "work"
        if self.path.exists():
            return
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.path), where=folder)
        self.git("init", "--quiet", "--initial-branch=main", str(self._work), where=folder)

    def commit(self, files: dict[str, bytes], *, when: int = 1_700_000_000, links: dict[str, str] | None = None) -> str:
        for name, data in files.items():
            (self._work / name).parent.mkdir(parents=True, exist_ok=True)
            (self._work / name).write_bytes(data)
        for name, target in (links or {}).items():
            (self._work / name).symlink_to(target)
        self.git("add", "--all", where=self._work)
        self.git("commit", "--quiet", "-m", "Work", where=self._work, GIT_AUTHOR_DATE=f"@{when} +0100", GIT_COMMITTER_DATE=f"@{when} +0100")
        self.git("push", "--quiet", str(self.path), "HEAD:main", where=self._work)
        return self.git("rev-parse", "HEAD", where=self._work)

    def branches(self) -> dict[str, str]:
        return dict(
            line.split() for line in self.git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads").splitlines()
        )

    def read(self, commit: str, path: str) -> bytes:
        return self._run("show", f"{commit}:{path}", where=self.path)

    def git(self, *arguments: str, where: Path | None = None, **extra: str) -> str:
        return self._run(*arguments, where=where or self.path, **extra).decode().strip()

    def _run(self, *arguments: str, where: Path, **extra: str) -> bytes:
        alone = {
            "PATH": os.environ["PATH"],
            "HOME": str(where),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TEMPLATE_DIR": "",  # no sample hooks: every test copies the repository
            **PERSON,
            **extra,
        }
        alone["GIT_CONFIG_PARAMETERS"] = "'core.autocrlf=false'"
        return subprocess.run(["git", *arguments], cwd=where, env=alone, capture_output=True, check=True, timeout=30).stdout


WEB = b"\xef\xbb\xbfkind: Deployment\r\nimage: web:1\r\n"


MEMORY = Path("/dev/shm")


def in_memory() -> str | None:
    """A folder whose files cost no disk, and from which a program can be started: a hook that should not run must be able to."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return str(MEMORY) if usable else None


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="suture-test-", dir=in_memory(), ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


@pytest.fixture(scope="session")
def one_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of one certificate: the fakes speak http, and each client would read all authorities of the world first."""
    file = tmp_path_factory.mktemp("authority") / "bundle.pem"
    end = "-----END CERTIFICATE-----\n"
    file.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    return file


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    made = Remote(folder)
    made.commit({"web.yaml": b"old", "README.md": b"# read me\n", "data/größe.json": b"{}"}, when=1_600_000_000)
    made.commit({"web.yaml": WEB, "other.yml": b"kind: Service\n"})
    return folder


@pytest.fixture
def remote(template: Path, tmp_path: Path) -> Remote:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Remote(tmp_path)
