"""GitHub, Enterprise Server too: one branch with one commit, and one pull request, through the Git data API.

The only importer of githubkit. A commit's content decides its id (its date is its parent's), so a second try makes no second one; a
branch and a pull request are looked for before they are made, and again when GitHub says that they exist. It never retries: it says
how long to wait. Rules for names are in `repository`.
"""

import asyncio
import base64
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from json import JSONDecodeError
from typing import Any
from urllib.parse import quote

import httpx
from githubkit import GitHub as Kit
from githubkit import TokenAuthStrategy
from githubkit.exception import GitHubException, RateLimitExceeded, RequestFailed, RequestTimeout

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
    manifests,
    message,
    replaced,
    same_tree,
)
from suture.errors import AccessDenied, BaseMoved, Conflict, InvalidRequest, NotFound, RateLimited, ServiceUnavailable, SutureError

PACE = 1.0
"""Seconds between two changes. GitHub asks for one at least; quicker ones run into its secondary limit.
Source: docs.github.com, Best practices for using the REST API."""
TIMEOUT = 30.0  # seconds for one request; GitHub itself gives up after ten
READERS = 8
"""Files read at the same time; far below the 100 requests that GitHub allows."""
CACHED = 64 << 20
"""Bytes of file contents kept: they are named by their hash and never change."""
PATIENCE = timedelta(seconds=60)  # what GitHub asks to wait where its answer names no time


class GitHub:
    """Implements `Repository`."""

    def __init__(
        self,
        repository: str,
        *,
        branch: str = "main",
        token: str,
        api: str = "https://api.github.com",
        pace: float = PACE,
        timeout: float = TIMEOUT,
    ) -> None:
        owner, _, name = repository.partition("/")
        if not owner or not name or quote(name, safe="") != name or quote(owner, safe="") != owner:
            raise InvalidRequest(f"{repository.rpartition('@')[2]!r} is no GitHub repository: write owner/name.")
        check_branch(branch)
        self._repository, self._owner, self._branch = repository, owner, branch
        # The engine retries, with the database's clock: a client that waits by itself would hold a lease for nothing.
        # One TLS context: githubkit opens a client for every request, and each would read the certificates anew.
        self._kit = Kit(
            TokenAuthStrategy(token),
            base_url=api,
            timeout=timeout,
            auto_retry=False,
            http_cache=False,
            user_agent="suture",
            ssl_verify=httpx.create_ssl_context(),
        )
        self._pace, self._last, self._turn = pace, float("-inf"), asyncio.Lock()
        self._contents: OrderedDict[str, bytes] = OrderedDict()

    async def base(self) -> str:
        tip = await self._tip(self._branch)
        if tip is None:
            raise NotFound(f"{self._repository} has no branch {self._branch}, or the token may not see it.")
        return tip

    async def files(self, commit: str, *, limit: Limit = LIMIT) -> dict[str, bytes]:
        check_commit(commit)
        chosen = manifests(await self._tree(await self._commit(commit)), limit)
        room = asyncio.Semaphore(READERS)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {path: group.create_task(self._content(entry.sha, room)) for path, entry in chosen.items()}
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None
        return {path: task.result() for path, task in tasks.items()}

    async def find(self, branch: str) -> Opened | None:
        check_branch(branch)
        pulls = await self._pulls(branch)
        tip = await self._tip(branch) if pulls else None
        fit = [pull for pull in pulls if pull["state"] == "open"] or [pull for pull in pulls if tip and pull["head"]["sha"] == tip]
        return self._opened(branch, fit[0]) if fit else None

    async def open(self, *, branch: str, base: str, files: Sequence[Blob], title: str, body: str, author: Author = AUTHOR) -> Opened:
        check(branch, base, files)
        parent = await self._commit(base)
        before = await self._tree(parent)
        after = replaced(before, files)
        if wrong := differing(before, files):
            raise InvalidRequest(f"{wrong[0]} is not at {base[:12]} what the change was made from.")
        tip = await self._tip(branch)
        if tip is not None:
            await self._refuse_other(branch, tip, base=base, tree=after)
        commit = tip or await self._create_commit(parent, after, files=files, text=message(title, body), author=author)
        if earlier := await self._pull_of(branch, commit):
            return self._opened(branch, earlier)
        await self._refuse_moved(base, files, branch=branch if tip else None)
        if tip is None:
            await self._create_branch(branch, commit)
        return self._opened(branch, await self._create_pull(branch, commit, title=title, body=body))

    async def close(self, branch: str, comment: str) -> None:
        check_branch(branch)
        if branch == self._branch:
            raise InvalidRequest(f"{branch} is the deployed branch: it is not deleted.")
        for pull in await self._pulls(branch):
            if pull["state"] == "open":
                await self._say(pull["number"], comment)
                await self._call("PATCH", f"pulls/{pull['number']}", json={"state": "closed"})
        await self._delete_branch(branch)

    # What is there.

    async def _tip(self, branch: str) -> str | None:
        found = await self._maybe(f"git/ref/heads/{branch}")
        return str(found["object"]["sha"]) if found and found["ref"] == f"refs/heads/{branch}" else None

    async def _commit(self, sha: str) -> Mapping[str, Any]:
        found = await self._maybe(f"git/commits/{sha}")
        if found is None:
            raise BaseMoved(f"{self._repository} has no commit {sha[:12]} any more.")
        return found

    async def _tree(self, commit: Mapping[str, Any]) -> dict[str, Entry]:
        found = await self._call("GET", f"git/trees/{commit['tree']['sha']}", params={"recursive": "1"})
        if found["truncated"]:
            raise InvalidRequest(f"{self._repository} has more files than GitHub lists: point at a repository of manifests alone.")
        return {e["path"]: Entry(e["mode"], e["type"], e["sha"], e.get("size") or 0) for e in found["tree"] if e["type"] != "tree"}

    async def _content(self, sha: str, room: asyncio.Semaphore) -> bytes:
        if sha in self._contents:
            self._contents.move_to_end(sha)
            return self._contents[sha]
        async with room:
            found = await self._call("GET", f"git/blobs/{sha}")
        content = base64.b64decode(found["content"]) if found["encoding"] == "base64" else str(found["content"]).encode()
        self._contents[sha] = content
        while sum(map(len, self._contents.values())) > CACHED:
            self._contents.popitem(last=False)
        return content

    async def _pulls(self, branch: str) -> list[Mapping[str, Any]]:
        """The pull requests from this branch into the deployed one, newest first."""
        asked = {"state": "all", "head": f"{self._owner}:{branch}", "base": self._branch, "per_page": "100"}
        found = await self._call("GET", "pulls", params=asked)
        # GitHub ignores a `head` that it cannot read, and then lists all.
        return [pull for pull in found if pull["head"]["ref"] == branch]

    async def _pull_of(self, branch: str, commit: str) -> Mapping[str, Any] | None:
        fit = [pull for pull in await self._pulls(branch) if pull["head"]["sha"] == commit]
        return next((pull for pull in fit if pull["state"] == "open"), fit[0] if fit else None)

    def _opened(self, branch: str, pull: Mapping[str, Any]) -> Opened:
        return Opened(self._repository, branch, str(pull["head"]["sha"]), int(pull["number"]), str(pull["html_url"]))

    # What must hold.

    async def _refuse_other(self, branch: str, tip: str, *, base: str, tree: dict[str, Entry]) -> None:
        found = await self._commit(tip)
        ours = [parent["sha"] for parent in found["parents"]] == [base] and same_tree(await self._tree(found), tree)
        if not ours:
            raise Conflict(f"The branch {branch} of {self._repository} holds something else (commit {tip[:12]}): close that change first.")

    async def _refuse_moved(self, base: str, files: Sequence[Blob], *, branch: str | None) -> None:
        head = await self.base()
        if head == base or not (moved := differing(await self._tree(await self._commit(head)), files)):
            return
        if branch:  # ours, and without a pull request: it would stand in the way of the next proposal
            await self._delete_branch(branch)
        raise BaseMoved(f"{', '.join(moved)} changed on {self._branch} since {base[:12]}: the change must be proposed again.")

    # What is made, in this order; each step may be the last one before a crash.

    async def _create_commit(
        self, parent: Mapping[str, Any], tree: Mapping[str, Entry], *, files: Sequence[Blob], text: str, author: Author
    ) -> str:
        entries = []
        for file in files:
            content = {"content": base64.b64encode(file.after).decode(), "encoding": "base64"}
            made = await self._call("POST", "git/blobs", json=content)
            entries.append({"path": file.path, "mode": tree[file.path].mode, "type": "blob", "sha": made["sha"]})
        grown = await self._call("POST", "git/trees", json={"base_tree": parent["tree"]["sha"], "tree": entries})
        who = {"name": author.name, "email": author.email, "date": parent["committer"]["date"]}
        commit = {"message": text, "tree": grown["sha"], "parents": [parent["sha"]], "author": who, "committer": who}
        return str((await self._call("POST", "git/commits", json=commit))["sha"])

    async def _create_branch(self, branch: str, commit: str) -> None:
        try:
            await self._call("POST", "git/refs", json={"ref": f"refs/heads/{branch}", "sha": commit})
        except InvalidRequest:
            tip = await self._tip(branch)  # somebody was faster
            if tip is None:
                raise
            if tip != commit:
                raise Conflict(f"The branch {branch} of {self._repository} holds something else (commit {tip[:12]}).") from None

    async def _create_pull(self, branch: str, commit: str, *, title: str, body: str) -> Mapping[str, Any]:
        try:
            asked = {"title": title, "head": branch, "base": self._branch, "body": body, "maintainer_can_modify": True}
            return dict(await self._call("POST", "pulls", json=asked))
        except InvalidRequest:
            if found := await self._pull_of(branch, commit):
                return found
            raise

    async def _say(self, number: int, comment: str) -> None:
        path = f"issues/{number}/comments"
        said = await self._call("GET", path, params={"per_page": "100"})
        if not any(each.get("body") == comment for each in said):
            await self._call("POST", path, json={"body": comment})

    async def _delete_branch(self, branch: str) -> None:
        if await self._tip(branch) is None:
            return
        try:
            await self._call("DELETE", f"git/refs/heads/{branch}")
        except (InvalidRequest, NotFound):
            if await self._tip(branch) is not None:
                raise

    # One request.

    async def _maybe(self, path: str) -> Mapping[str, Any] | None:
        try:
            return dict(await self._call("GET", path))
        except NotFound:
            return None

    async def _call(self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Mapping[str, Any] | None = None) -> Any:
        try:
            if method == "GET":
                return await self._send(method, path, params=params)
            return await self._change(method, path, json=json)
        except (GitHubException, ValueError) as error:
            # From None: the chained request carries the token in its headers.
            raise self._translated(error, f"{method} {path}") from None

    async def _change(self, method: str, path: str, *, json: Mapping[str, Any] | None) -> Any:
        """Changes go one by one, and the pace counts from the end of the one before: so they arrive no closer than that."""
        async with self._turn:
            pause = self._last + self._pace - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            try:
                return await self._send(method, path, json=json)
            finally:
                self._last = time.monotonic()

    async def _send(self, method: str, path: str, *, params: Mapping[str, str] | None = None, json: Mapping[str, Any] | None = None) -> Any:
        response = await self._kit.arequest(method, f"/repos/{self._repository}/{path}", params=dict(params or {}), json=json)
        return None if response.status_code == 204 else response.json()

    def _translated(self, error: Exception, what: str) -> SutureError:
        if isinstance(error, RateLimitExceeded):
            return RateLimited(f"GitHub asks for patience ({what}).", delay=max(error.retry_after, timedelta(seconds=1)))
        if isinstance(error, RequestTimeout):
            return ServiceUnavailable(f"GitHub did not answer in time ({what}).")
        if isinstance(error, ValueError) and not isinstance(error, JSONDecodeError):
            return RateLimited(
                f"GitHub asks for patience ({what}).", delay=PATIENCE
            )  # and says until when in a way that githubkit cannot read
        if not isinstance(error, RequestFailed):
            cause = type(getattr(error, "exc", error)).__name__
            return ServiceUnavailable(f"GitHub can not be reached, or its answer not be read ({what}: {cause}).")
        return self._refused(error.response.status_code, _said(error), what)

    def _refused(self, status: int, said: str, what: str) -> SutureError:
        if status == 429 or (status == 403 and "rate limit" in said.lower()):
            return RateLimited(f"GitHub asks for patience ({what}).", delay=PATIENCE)
        if status >= 500:
            return ServiceUnavailable(f"GitHub fails ({what}: {status}).")
        where = self._repository
        known: dict[int, SutureError] = {
            401: AccessDenied("GitHub does not know the token: it expired, was revoked or is mistyped. Give a new one."),
            403: AccessDenied(f"The token may not do this in {where} ({what}): it needs contents and pull-request write. {said}"),
            404: NotFound(f"GitHub knows no {where}, or no {what.partition(' ')[2]} in it, or the token may not see it."),
            409: Conflict(f"GitHub refuses because of the state of {where} ({what}): {said}"),
        }
        return known.get(status) or InvalidRequest(f"GitHub refuses the request ({what}: {status}): {said}")


def _said(error: RequestFailed) -> str:
    """GitHub's own words, bounded."""
    try:
        answer = error.response.json()
    except ValueError:
        return ""
    if not isinstance(answer, dict):
        return ""
    more = [each.get("message") or each.get("code") or "" for each in answer.get("errors") or [] if isinstance(each, dict)]
    return "; ".join(str(each) for each in (answer.get("message"), *more) if each)[:400]
