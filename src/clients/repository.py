"""The repository that holds the manifests: what any of them must be able to do, in plain data.

Two implementations stand beside it: `github`, a real pull request, and `localgit`, any repository that git reaches, where the branch
is the pull request. It knows no manifest and no incident; `remediation.delivery` converts. What is shared by both, the rules for
names and the identity of a commit, is here.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from suture.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class Blob:
    """One file, before and after."""

    path: str
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """A change, where its reviewers see it."""

    repository: str
    """Never with credentials."""
    branch: str
    commit: str
    number: int | None = None
    url: str = ""


class Author(NamedTuple):
    """Who a commit is by; the same for every try, or a second try would be a second commit."""

    name: str = "Suture"
    email: str = "noreply@suture.dev"


class Limit(NamedTuple):
    """How much of a repository is read."""

    files: int = 5_000
    size: int = 1 << 20  # bytes of one file; a larger one is left out: nobody edits it
    total: int = 64 << 20  # bytes of all


AUTHOR = Author()
LIMIT = Limit()


class Repository(Protocol):
    """Raises, everywhere: ServiceUnavailable, RateLimited, AccessDenied, NotFound, InvalidRequest."""

    async def base(self) -> str:
        """Commit id of the deployed branch, now."""
        ...

    async def files(self, commit: str, *, limit: Limit = LIMIT) -> dict[str, bytes]:
        """Every YAML and JSON file of the commit, by path; no symlink, no submodule.

        Raises: InvalidRequest where they exceed the limit.
        """
        ...

    async def find(self, branch: str) -> Opened | None:
        """The change that an earlier `open` with this branch left complete."""
        ...

    async def open(self, *, branch: str, base: str, files: Sequence[Blob], title: str, body: str, author: Author = AUTHOR) -> Opened:
        """One branch with one commit on `base`, and one pull request; what an earlier try left is taken over.

        Idempotent: by all of its arguments. Raises: BaseMoved when a touched file is another one on the deployed branch by now;
        Conflict when the branch holds something else.
        """
        ...

    async def close(self, branch: str, comment: str) -> None:
        """Withdraw the change and delete its branch; nothing happens where there is none."""
        ...


class Entry(NamedTuple):
    """One file of a tree, as git lists it."""

    mode: str
    kind: str
    sha: str
    size: int = 0


_MANIFEST = re.compile(r"(?:.*/)?(?:[^/]*\.(?:ya?ml|json)|Kustomization)")
_REGULAR = {"100644", "100755"}
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def manifests(tree: dict[str, Entry], limit: Limit) -> dict[str, Entry]:
    """What of a tree `files` reads. Raises: InvalidRequest."""
    chosen = {path: entry for path, entry in tree.items() if _is_manifest(path, entry) and entry.size <= limit.size}
    size = sum(entry.size for entry in chosen.values())
    if len(chosen) > limit.files or size > limit.total:
        raise InvalidRequest(
            f"The repository has {len(chosen):,} YAML and JSON files of {size:,} bytes; the limit is {limit.files:,} files and "
            f"{limit.total:,} bytes. Point at a repository that holds the deployed manifests alone."
        )
    return chosen


def _is_manifest(path: str, entry: Entry) -> bool:
    return entry.mode in _REGULAR and _MANIFEST.fullmatch(path) is not None and is_safe(path)


def is_safe(path: str) -> bool:
    """Whether the path stays inside the repository, and out of git's own folder."""
    parts = path.split("/")
    return bool(path) and not re.search(r"[\x00-\x1f\x7f\\]", path) and not any(p in ("", ".", "..") or p.lower() == ".git" for p in parts)


def check(branch: str, base: str, files: Sequence[Blob]) -> None:
    """Refuse names that git would take for something else. Raises: InvalidRequest."""
    check_branch(branch)
    check_commit(base)
    odd = [file.path for file in files if not is_safe(file.path)]
    twice = len({file.path for file in files}) != len(files)
    if odd or twice or not files:
        problem = f"{odd[0]!r} is no path in a repository" if odd else "a file is named twice" if twice else "no file is changed"
        raise InvalidRequest(f"The change cannot be committed: {problem}.")


def check_branch(branch: str) -> None:
    """Raises: InvalidRequest."""
    parts = branch.split("/")
    odd = ".." in branch or any(not part or part.startswith(".") or part.endswith((".", ".lock")) for part in parts)
    if odd or not _BRANCH.fullmatch(branch):
        raise InvalidRequest(f"{branch!r} is no branch name: use letters, digits, '.', '_', '-' and '/', and begin with a letter or digit.")


def check_commit(commit: str) -> None:
    """Raises: InvalidRequest."""
    if not _COMMIT.fullmatch(commit):
        raise InvalidRequest(f"{commit!r} is no commit id: 40 or 64 hexadecimal digits are.")


def message(title: str, body: str) -> str:
    """The commit's message: what git's own clean-up would leave of it."""
    lines = [line.rstrip() for line in f"{' '.join(title.split())}\n\n{body}".splitlines()]
    return "\n".join(lines).rstrip() + "\n"


def blob_sha(data: bytes) -> str:
    """The id that git gives to the content of a file (in a SHA-1 repository)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def replaced(tree: dict[str, Entry], files: Iterable[Blob]) -> dict[str, Entry]:
    """The tree with the files' new content. Raises: InvalidRequest where a file is not a regular one of the tree."""
    after = dict(tree)
    for file in files:
        entry = tree.get(file.path)
        if entry is None or entry.mode not in _REGULAR:
            raise InvalidRequest(f"{file.path} is no regular file of the base commit: only files that are there are changed.")
        after[file.path] = Entry(entry.mode, entry.kind, blob_sha(file.after))
    return after


def differing(tree: dict[str, Entry], files: Iterable[Blob]) -> list[str]:
    """The touched files that are not in `tree` what they were when the change was made."""
    return [file.path for file in files if file.path not in tree or tree[file.path].sha != blob_sha(file.before)]


def same_tree(one: dict[str, Entry], other: dict[str, Entry]) -> bool:
    """Equal in paths, modes and contents."""
    return {path: entry[:3] for path, entry in one.items()} == {path: entry[:3] for path, entry in other.items()}


def stamp(moment: datetime) -> str:
    """A time as GitHub writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
