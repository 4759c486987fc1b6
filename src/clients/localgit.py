"""Any repository that git reaches (a path, file://, git://, http(s)://): a branch with one commit, and that branch is the pull request.

Works on a temporary bare clone, with plumbing: no work tree, no hook, no prompt, none of the user's configuration. The commit's date
is its parent's, so every try makes the same commit; the push is the only effect. Rules for names are in `repository`.
"""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from suture.clients.repository import (
    AUTHOR,
    LIMIT,
    Author,
    Blob,
    Entry,
    Limit,
    Opened,
    check,
    check_branch,
    check_commit,
    differing,
    is_safe,
    manifests,
    message,
    replaced,
)
from suture.errors import AccessDenied, BaseMoved, Conflict, InvalidRequest, NotFound, ServiceUnavailable, SutureError, ToolMissing

TIMEOUT = 120.0  # seconds for one git command: a large repository over a slow line
SCHEMES = ("file", "git", "http", "https")
_PASSED = ("PATH", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO")
"""What git may know of our environment: where programs are, and how to get out."""


class LocalGit:
    """Implements `Repository`."""

    def __init__(self, url: str, *, branch: str = "main", timeout: float = TIMEOUT) -> None:
        check_branch(branch)
        self._address = _address(url)
        self._branch = branch
        self._timeout = timeout

    async def base(self) -> str:
        async with self._workshop() as git:
            return await self._head(git)

    async def files(self, commit: str, *, limit: Limit = LIMIT) -> dict[str, bytes]:
        check_commit(commit)
        async with self._fetched() as git:
            await self._known(git, commit)
            return await git.contents(manifests(await git.tree(commit), limit))

    async def find(self, branch: str) -> Opened | None:
        check_branch(branch)
        async with self._workshop() as git:
            tip = await git.tip(branch)
            return self._opened(branch, tip) if tip else None

    async def open(self, *, branch: str, base: str, files: Sequence[Blob], title: str, body: str, author: Author = AUTHOR) -> Opened:
        check(branch, base, files)
        async with self._fetched() as git:
            await self._known(git, base)
            commit = await self._commit(git, base, files=files, text=message(title, body), author=author)
            tip = await git.tip(branch)
            if tip is None:
                await self._refuse_moved(git, base, files)
                tip = await git.push(branch, commit)
            if tip != commit:
                raise Conflict(f"The branch {branch} of {self._name} holds something else (commit {tip[:12]}): close that change first.")
            return self._opened(branch, commit)

    async def close(self, branch: str, comment: str) -> None:
        # Nobody reads a comment here: the record of the change is ours, and so is the reason.
        check_branch(branch)
        if branch == self._branch:
            raise InvalidRequest(f"{branch} is the deployed branch: it is not deleted.")
        async with self._workshop() as git:
            tip = await git.tip(branch)
            if tip:
                await git.delete(branch, tip)

    async def _head(self, git: "_Git") -> str:
        tip = await git.tip(self._branch)
        if tip is None:
            raise NotFound(f"{self._name} has no branch {self._branch}: name the deployed one.")
        return tip

    async def _known(self, git: "_Git", commit: str) -> None:
        if not await git.holds(commit):
            raise BaseMoved(f"The commit {commit[:12]} is no part of {self._branch} of {self._name} any more.")

    async def _commit(self, git: "_Git", base: str, *, files: Sequence[Blob], text: str, author: Author) -> str:
        tree = await git.tree(base)
        replaced(tree, files)  # refuses what is no regular file
        if wrong := differing(tree, files):
            raise InvalidRequest(f"{wrong[0]} is not at {base[:12]} what the change was made from.")
        return await git.commit(base, tree=await git.write(base, tree, files), text=text, author=author)

    async def _refuse_moved(self, git: "_Git", base: str, files: Sequence[Blob]) -> None:
        head = await git.parse(_FETCHED)
        if head != base and (moved := differing(await git.tree(head), files)):
            raise BaseMoved(f"{', '.join(moved)} changed on {self._branch} since {base[:12]}: the change must be proposed again.")

    def _opened(self, branch: str, commit: str) -> Opened:
        return Opened(self._name, branch, commit)

    @property
    def _name(self) -> str:
        return mask(self._address)

    @asynccontextmanager
    async def _workshop(self) -> AsyncIterator["_Git"]:
        """An empty bare repository that knows the address; gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="suture-git-", ignore_cleanup_errors=True) as folder:
            git = _Git(Path(folder), self._address, self._timeout)
            await git.prepare()
            yield git

    @asynccontextmanager
    async def _fetched(self) -> AsyncIterator["_Git"]:
        async with self._workshop() as git:
            await self._head(git)
            await git.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "origin", f"+refs/heads/{self._branch}:{_FETCHED}")
            yield git


_FETCHED = "refs/suture/base"


@dataclass(frozen=True, slots=True)
class _Result:
    code: int
    out: bytes
    err: str


class _Git:
    """The plumbing, in one temporary bare repository."""

    def __init__(self, folder: Path, address: str, timeout: float) -> None:
        self._folder, self._address, self._timeout = folder, address, timeout
        self._environment = {
            **{name: value for name in _PASSED if (value := os.environ.get(name))},
            "HOME": str(folder),
            "LC_ALL": "C",
            "GIT_DIR": str(folder / "bare"),
            "GIT_INDEX_FILE": str(folder / "index"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": str(folder / "config"),
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES),
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }

    async def prepare(self) -> None:
        # In a file and not on the command line: an address may carry a password, and every user reads `ps`.
        trusted = [self._address.removeprefix("file://"), f"{self._address.removeprefix('file://')}/.git"] if self._is_local else []
        lines = ["[core]", "hooksPath = /dev/null", "[gc]", "auto = 0", "[credential]", "helper =", "[safe]"]
        lines += [f"directory = {_escaped(path)}" for path in trusted]
        config = self._folder / "config"
        config.touch(mode=0o600)
        config.write_text("\n".join([*lines, '[remote "origin"]', f"url = {_escaped(self._address)}"]) + "\n")
        await self.run("init", "--quiet", "--bare", str(self._folder / "bare"))

    @property
    def _is_local(self) -> bool:
        return self._address.startswith(("/", "file://"))

    async def tip(self, branch: str) -> str | None:
        out = await self.run("ls-remote", "--quiet", "origin", f"refs/heads/{branch}")
        for line in out.decode(errors="replace").splitlines():
            sha, _, name = line.partition("\t")
            if name == f"refs/heads/{branch}":  # the argument is a pattern: it fits a/refs/heads/x too
                return sha
        return None

    async def holds(self, commit: str) -> bool:
        return (await self._execute("merge-base", "--is-ancestor", commit, _FETCHED)).code == 0

    async def parse(self, name: str) -> str:
        return (await self.run("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")).decode().strip()

    async def tree(self, commit: str) -> dict[str, Entry]:
        listing = await self.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit)
        found = {}
        for record in filter(None, listing.split(b"\0")):
            about, _, name = record.partition(b"\t")
            mode, kind, sha, size = about.decode().split()
            path = name.decode(errors="replace")
            if is_safe(path) and path.encode() == name:  # a name that is no UTF-8 cannot be proposed
                found[path] = Entry(mode, kind, sha, int(size) if size.isdigit() else 0)
        return found

    async def contents(self, entries: Mapping[str, Entry]) -> dict[str, bytes]:
        if not entries:
            return {}
        asked = "".join(f"{entry.sha}\n" for entry in entries.values()).encode()
        out, at, found = await self.run("cat-file", "--batch", given=asked), 0, {}
        for path in entries:
            end = out.index(b"\n", at)
            size = int(out[at:end].split()[2])
            found[path] = out[end + 1 : end + 1 + size]
            at = end + 1 + size + 1
        return found

    async def write(self, base: str, tree: Mapping[str, Entry], files: Sequence[Blob]) -> str:
        await self.run("read-tree", base)
        for file in files:
            sha = (await self.run("hash-object", "-w", "--stdin", given=file.after)).decode().strip()
            await self.run("update-index", "--cacheinfo", f"{tree[file.path].mode},{sha},{file.path}")
        return (await self.run("write-tree")).decode().strip()

    async def commit(self, base: str, *, tree: str, text: str, author: Author) -> str:
        date = (await self.run("show", "-s", "--format=%ct", base)).decode().strip()
        identity = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", author.name), ("EMAIL", author.email))
        }
        identity |= {"GIT_AUTHOR_DATE": f"@{date} +0000", "GIT_COMMITTER_DATE": f"@{date} +0000"}
        return (await self.run("commit-tree", tree, "-p", base, given=text.encode(), extra=identity)).decode().strip()

    async def push(self, branch: str, commit: str) -> str:
        """The branch's commit afterwards: ours, or that of whoever was faster."""
        # The empty expectation is "does not exist": of two tries at once, one creates it.
        done = await self._push(f"--force-with-lease=refs/heads/{branch}:", f"{commit}:refs/heads/{branch}")
        tip = await self.tip(branch)
        if tip is None:
            raise self._failure("push", done)
        return tip

    async def delete(self, branch: str, tip: str) -> None:
        done = await self._push(f"--force-with-lease=refs/heads/{branch}:{tip}", f":refs/heads/{branch}")
        if done.code and await self.tip(branch) == tip:
            raise self._failure("push", done)

    async def _push(self, lease: str, change: str) -> _Result:
        # A repository on this machine is served by our own process: its hooks would run as us.
        quiet = ["--receive-pack=git -c core.hooksPath=/dev/null receive-pack"] if self._is_local else []
        return await self._execute("push", "--porcelain", "--no-verify", *quiet, lease, "origin", change)

    async def run(self, *arguments: str, given: bytes = b"", extra: Mapping[str, str] | None = None) -> bytes:
        done = await self._execute(*arguments, given=given, extra=extra)
        if done.code != 0:
            raise self._failure(arguments[0], done)
        return done.out

    async def _execute(self, *arguments: str, given: bytes = b"", extra: Mapping[str, str] | None = None) -> _Result:
        try:
            process = await asyncio.create_subprocess_exec(
                "git",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._environment, **(extra or {})},
                cwd=self._folder,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ToolMissing("git is not installed, or not in the PATH: install it (`apt-get install git`, `apk add git`).") from None
        try:
            async with asyncio.timeout(self._timeout):
                out, err = await process.communicate(given)
        except TimeoutError:
            raise ServiceUnavailable(f"git {arguments[0]} took longer than {self._timeout:g} s with {mask(self._address)}.") from None
        finally:
            await _end(process)
        return _Result(process.returncode or 0, out, err.decode(errors="replace"))

    def _failure(self, command: str, done: _Result) -> SutureError:
        said = mask(" ".join(done.err.split())).replace(str(self._folder), "")[-400:] or f"exit code {done.code}"
        where = mask(self._address)
        lower = said.lower()
        if any(
            sign in lower
            for sign in ("authentication failed", "could not read username", "could not read password", "permission denied", "403")
        ):
            return AccessDenied(f"{where} refuses the access: give credentials that may read it and push branches. git {command}: {said}")
        if any(
            sign in lower
            for sign in ("not appear to be a git repository", "repository not found", "not a git repository", "error: 404", "not exported")
        ):
            return InvalidRequest(f"{where} is no git repository: name one by a path, file://, git:// or https://. git {command}: {said}")
        if "not allowed" in lower and "transport" in lower:
            return InvalidRequest(
                f"{where} is reached by a protocol that is not allowed: use a path, {', '.join(s + '://' for s in SCHEMES)}."
            )
        return ServiceUnavailable(f"{where} does not answer as it should. git {command}: {said}")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Git starts others (ssh, http): the whole group goes, also when we are cancelled."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


def _address(url: str) -> str:
    """The address as git is to take it; never an option, never a remote helper.

    Raises: InvalidRequest.
    """
    if not url or url.startswith("-") or re.search(r"[\x00-\x1f\x7f]", url):
        raise InvalidRequest(f"{mask(url)!r} is no address of a repository: name a path, file://, git:// or https://.")
    if "://" in url:
        if urlsplit(url).scheme not in SCHEMES:
            raise InvalidRequest(
                f"{mask(url)} is reached by a protocol that is not allowed: use a path, {', '.join(s + '://' for s in SCHEMES)}."
            )
        return url
    if re.match(r"[A-Za-z0-9+.-]+::|[^/]+@[^/]+:", url):
        raise InvalidRequest(f"{mask(url)} is reached by a protocol that is not allowed: write it as https://… or as a path.")
    return str(Path(url).expanduser().absolute())


def mask(text: str) -> str:
    """The text without the credentials of the addresses in it.

    >>> mask("fatal: https://me:secret@example.com/x.git")
    'fatal: https://***@example.com/x.git'
    """
    return re.sub(r"(://)[^/\s]*@", r"\1***@", text)


def _escaped(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
