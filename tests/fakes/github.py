"""A small GitHub: the Git data and pull-request routes over HTTP, its objects in a real bare git repository.

It can cut the connection before or after the effect of a request, and ask for patience. What it answers has the shape of GitHub's
published description; a test holds it against githubkit's models.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "ghs_fakeSecretToken0123456789"
REASONS = {200: "OK", 201: "Created", 204: "No Content"}


@dataclass
class Fault:
    """What happens to the next request that fits: once."""

    fits: Callable[[str, str], bool]
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    after: bool = False


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class FakeGitHub:
    def __init__(self, git: Path, name: str = "acme/manifests") -> None:
        self.git, self.name = git, name
        self.url = ""
        self.requests: list[tuple[str, str]] = []
        self.times: list[float] = []
        self.pulls: list[dict[str, Any]] = []
        self.comments: dict[int, list[str]] = {}
        self.faults: list[Fault] = []
        self.truncated = False

    # What a test does to it.

    def cut(self, number: int, *, after: bool) -> None:
        """Cut the connection of the change with this number (from 0), before or after its effect."""
        seen = iter(range(1_000_000))
        self.faults.append(Fault(lambda method, _: method != "GET" and next(seen) == number, after=after))

    def answer(self, status: int, *, body: Any = None, on: str = "", **headers: str) -> None:
        fits = lambda method, path: bool(re.search(on, f"{method} {path}"))  # noqa: E731
        self.faults.append(Fault(fits, status, {k.replace("_", "-"): v for k, v in headers.items()}, body))

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.requests if method != "GET"]

    def branches(self) -> dict[str, str]:
        listed = self._git("for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads").splitlines()
        return dict(line.split() for line in listed)

    def _git(self, *arguments: str, given: bytes = b"", **extra: str) -> str:
        alone = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.git), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **extra}
        done = subprocess.run(["git", *arguments], input=given, env=alone, capture_output=True, check=False, timeout=30)
        if done.returncode:
            raise Refused(422, done.stderr.decode())
        return done.stdout.decode().strip()

    # The server.

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["FakeGitHub"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, answer, more = self._handle(method, target, headers, body)
            if status is None:
                writer.transport.abort()
                return
            content = b"" if answer is None else json.dumps(answer).encode()
            lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", f"Content-Length: {len(content)}", "Connection: close"]
            lines += ["Content-Type: application/json; charset=utf-8", *(f"{k}: {v}" for k, v in more.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + content)
            await writer.drain()
        writer.close()

    def _handle(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int | None, Any, dict[str, str]]:
        url = urlsplit(target)
        path = unquote(url.path)
        self.requests.append((method, path.removeprefix(f"/repos/{self.name}/")))
        self.times.append(asyncio.get_running_loop().time())
        fault = next((fault for fault in self.faults if fault.fits(*self.requests[-1])), None)
        if fault:
            self.faults.remove(fault)
            if not fault.after:
                return fault.status, fault.body, fault.headers
        status, answer = self._route(method, path, headers, parse_qs(url.query), json.loads(body or b"{}"))
        return (None, None, {}) if fault else (status, answer, {})

    def _route(self, method: str, path: str, headers: dict[str, str], query: dict[str, list[str]], given: Any) -> tuple[int, Any]:
        if headers.get("authorization", "").split(" ")[-1] != TOKEN:
            return 401, {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest", "status": "401"}
        if not path.startswith(f"/repos/{self.name}/"):
            return 404, {"message": "Not Found", "documentation_url": "https://docs.github.com/rest", "status": "404"}
        rest = path.removeprefix(f"/repos/{self.name}/")
        try:
            for pattern, verb, work in self._routes():
                found = re.fullmatch(pattern, rest)
                if found and verb == method:
                    return work(*found.groups(), query, given)
            raise Refused(404, "Not Found")
        except Refused as refusal:
            return refusal.status, {
                "message": str(refusal),
                "documentation_url": "https://docs.github.com/rest",
                "status": str(refusal.status),
            }

    def _routes(self) -> list[tuple[str, str, Callable[..., tuple[int, Any]]]]:
        return [
            (r"git/ref/heads/(.+)", "GET", self._get_ref),
            (r"git/commits/(\w+)", "GET", self._get_commit),
            (r"git/trees/(\w+)", "GET", self._get_tree),
            (r"git/blobs/(\w+)", "GET", self._get_blob),
            (r"git/blobs", "POST", self._post_blob),
            (r"git/trees", "POST", self._post_tree),
            (r"git/commits", "POST", self._post_commit),
            (r"git/refs", "POST", self._post_ref),
            (r"git/refs/heads/(.+)", "DELETE", self._delete_ref),
            (r"pulls", "GET", self._get_pulls),
            (r"pulls/(\d+)", "GET", self._get_pull),
            (r"pulls", "POST", self._post_pull),
            (r"pulls/(\d+)", "PATCH", self._patch_pull),
            (r"issues/(\d+)/comments", "GET", self._get_comments),
            (r"issues/(\d+)/comments", "POST", self._post_comment),
        ]

    # Git data.

    def _get_ref(self, branch: str, _query: Any, _given: Any) -> tuple[int, Any]:
        sha = self.branches().get(branch)
        if sha is None:
            raise Refused(404, "Not Found")
        return 200, self._ref(branch, sha)

    def _ref(self, branch: str, sha: str) -> dict[str, Any]:
        target = {"type": "commit", "sha": sha, "url": self._api(f"git/commits/{sha}")}
        return {"ref": f"refs/heads/{branch}", "node_id": "REF_1", "url": self._api(f"git/refs/heads/{branch}"), "object": target}

    def _get_commit(self, sha: str, _query: Any, _given: Any) -> tuple[int, Any]:
        self._exists(sha, "commit")
        return 200, self._commit(sha)

    def _commit(self, sha: str) -> dict[str, Any]:
        form = "%T%x00%P%x00%an%x00%ae%x00%ad%x00%cn%x00%ce%x00%cd%x00%B"
        shown = self._git("show", "-s", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", f"--format={form}", sha, TZ="UTC").split("\0")
        tree, parents, *who, text = shown
        people = [dict(zip(("name", "email", "date"), who[at : at + 3], strict=True)) for at in (0, 3)]
        return {
            "sha": sha,
            "node_id": "C_1",
            "url": self._api(f"git/commits/{sha}"),
            "html_url": self._web(f"commit/{sha}"),
            "author": people[0],
            "committer": people[1],
            "message": text.rstrip("\n"),
            "tree": {"sha": tree, "url": self._api(f"git/trees/{tree}")},
            "parents": [{"sha": p, "url": self._api(f"git/commits/{p}"), "html_url": self._web(f"commit/{p}")} for p in parents.split()],
            "verification": {"verified": False, "reason": "unsigned", "signature": None, "payload": None, "verified_at": None},
        }

    def _get_tree(self, sha: str, query: dict[str, list[str]], _given: Any) -> tuple[int, Any]:
        self._exists(sha, "tree")
        return 200, self._tree(sha, *(["-r", "-t"] if query.get("recursive") else []))

    def _tree(self, sha: str, *options: str) -> dict[str, Any]:
        entries = []
        for record in filter(None, self._git("ls-tree", "-z", "-l", *options, sha).split("\0")):
            about, path = record.split("\t", 1)
            mode, kind, each, size = about.split()
            entry = {"path": path, "mode": mode, "type": kind, "sha": each, "url": self._api(f"git/{kind}s/{each}")}
            entries.append(entry | ({"size": int(size)} if size.isdigit() else {}))
        return {"sha": sha, "url": self._api(f"git/trees/{sha}"), "tree": entries, "truncated": self.truncated}

    def _get_blob(self, sha: str, _query: Any, _given: Any) -> tuple[int, Any]:
        self._exists(sha, "blob")
        alone = {"PATH": os.environ["PATH"], "GIT_DIR": str(self.git)}
        data = subprocess.run(["git", "cat-file", "blob", sha], env=alone, capture_output=True, check=True, timeout=30).stdout
        content = base64.encodebytes(data).decode()  # in lines of 76, as GitHub's are broken
        return 200, {
            "sha": sha,
            "node_id": "B_1",
            "size": len(data),
            "url": self._api(f"git/blobs/{sha}"),
            "content": content,
            "encoding": "base64",
        }

    def _post_blob(self, _query: Any, given: Any) -> tuple[int, Any]:
        data = base64.b64decode(given["content"]) if given.get("encoding") == "base64" else given["content"].encode()
        sha = self._git("hash-object", "-w", "--stdin", given=data)
        return 201, {"url": self._api(f"git/blobs/{sha}"), "sha": sha}

    def _post_tree(self, _query: Any, given: Any) -> tuple[int, Any]:
        index = {"GIT_INDEX_FILE": str(self.git / "fake-index")}
        self._git("read-tree", given["base_tree"], **index)
        for entry in given["tree"]:
            self._exists(entry["sha"], "blob")
            self._git("update-index", "--add", "--cacheinfo", f"{entry['mode']},{entry['sha']},{entry['path']}", **index)
        return 201, self._tree(self._git("write-tree", **index))

    def _post_commit(self, _query: Any, given: Any) -> tuple[int, Any]:
        roles = {"AUTHOR": given["author"], "COMMITTER": given["committer"]}
        who = {f"GIT_{role}_{key.upper()}": person[key] for role, person in roles.items() for key in ("name", "email", "date")}
        parents = [option for parent in given["parents"] for option in ("-p", parent)]
        return 201, self._commit(self._git("commit-tree", given["tree"], *parents, given=given["message"].encode(), **who))

    def _post_ref(self, _query: Any, given: Any) -> tuple[int, Any]:
        branch = given["ref"].removeprefix("refs/heads/")
        self._exists(given["sha"], "commit", status=422)
        if branch in self.branches():
            raise Refused(422, "Reference already exists")
        self._git("update-ref", given["ref"], given["sha"], "0" * 40)
        return 201, self._ref(branch, given["sha"])

    def _delete_ref(self, branch: str, _query: Any, _given: Any) -> tuple[int, Any]:
        if branch not in self.branches():
            raise Refused(422, "Reference does not exist")
        self._git("update-ref", "-d", f"refs/heads/{branch}")
        return 204, None

    def _exists(self, sha: str, kind: str, *, status: int = 404) -> None:
        try:
            fits = self._git("cat-file", "-t", sha) == kind
        except Refused:
            fits = False
        if not fits:
            raise Refused(status, "Not Found" if status == 404 else "Object does not exist")

    # Pull requests.

    def _get_pulls(self, query: dict[str, list[str]], _given: Any) -> tuple[int, Any]:
        state, head, base = (query.get(key, [""])[0] for key in ("state", "head", "base"))
        chosen = [
            pull
            for pull in reversed(self.pulls)
            if (state == "all" or pull["state"] == (state or "open"))
            and head in ("", pull["head"]["label"])
            and base in ("", pull["base"]["ref"])
        ]
        return 200, [self._shown(pull, whole=False) for pull in chosen]

    def _get_pull(self, number: str, _query: Any, _given: Any) -> tuple[int, Any]:
        return 200, self._shown(self._pull(number), whole=True)

    def _post_pull(self, _query: Any, given: Any) -> tuple[int, Any]:
        branches = self.branches()
        if given["head"] not in branches or given["base"] not in branches:
            raise Refused(422, "Validation Failed")
        if any(p["state"] == "open" and (p["head"]["ref"], p["base"]["ref"]) == (given["head"], given["base"]) for p in self.pulls):
            raise Refused(422, f"A pull request already exists for {self.name.split('/')[0]}:{given['head']}.")
        number = len(self.pulls) + 1
        self.pulls.append(
            {
                "number": number,
                "state": "open",
                "title": given["title"],
                "body": given.get("body"),
                "merged_at": None,
                "head": self._side(given["head"], branches),
                "base": self._side(given["base"], branches),
            }
        )
        self.comments[number] = []
        return 201, self._shown(self.pulls[-1], whole=True)

    def _patch_pull(self, number: str, _query: Any, given: Any) -> tuple[int, Any]:
        pull = self._pull(number)
        pull.update({key: given[key] for key in ("state", "title", "body") if key in given})
        return 200, self._shown(pull, whole=True)

    def _get_comments(self, number: str, _query: Any, _given: Any) -> tuple[int, Any]:
        return 200, [self._comment(int(number), at) for at in range(len(self.comments[int(number)]))]

    def _post_comment(self, number: str, _query: Any, given: Any) -> tuple[int, Any]:
        self.comments[int(number)].append(given["body"])
        return 201, self._comment(int(number), len(self.comments[int(number)]) - 1)

    def _pull(self, number: str) -> dict[str, Any]:
        if not 0 < int(number) <= len(self.pulls):
            raise Refused(404, "Not Found")
        return self.pulls[int(number) - 1]

    # Shapes.

    def _api(self, path: str) -> str:
        return f"{self.url}/repos/{self.name}/{path}"

    def _web(self, path: str) -> str:
        return f"https://github.example/{self.name}/{path}"

    def _side(self, branch: str, branches: dict[str, str]) -> dict[str, Any]:
        return {"label": f"{self.name.split('/')[0]}:{branch}", "ref": branch, "sha": branches[branch]}

    def _user(self) -> dict[str, Any]:
        links = ("followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events", "received_events")
        urls = {f"{link}_url": f"{self.url}/users/suture/{link}" for link in links}
        about = {
            "login": "suture[bot]",
            "id": 7,
            "node_id": "BOT_7",
            "avatar_url": "",
            "gravatar_id": "",
            "type": "Bot",
            "site_admin": False,
        }
        return {**about, **urls, "url": f"{self.url}/users/suture", "html_url": "https://github.example/apps/suture"}

    def _repository(self) -> dict[str, Any]:
        owner, name = self.name.split("/")
        links = [
            "archive",
            "assignees",
            "blobs",
            "branches",
            "collaborators",
            "comments",
            "commits",
            "compare",
            "contents",
            "contributors",
            "deployments",
            "downloads",
            "events",
            "forks",
            "git_commits",
            "git_refs",
            "git_tags",
            "issue_comment",
            "issue_events",
            "issues",
            "keys",
            "labels",
            "languages",
            "merges",
            "milestones",
            "notifications",
            "pulls",
            "releases",
            "stargazers",
            "statuses",
            "subscribers",
            "subscription",
            "tags",
            "teams",
            "trees",
            "hooks",
        ]
        about = {
            "id": 1,
            "node_id": "R_1",
            "name": name,
            "full_name": self.name,
            "license": None,
            "forks": 0,
            "owner": {**self._user(), "login": owner},
            "private": True,
            "html_url": self._web(""),
            "description": None,
            "fork": False,
            "url": self._api(""),
            "git_url": "git://x",
            "ssh_url": "x",
            "clone_url": "https://x",
            "mirror_url": None,
            "svn_url": "https://x",
            "homepage": None,
            "language": None,
            "forks_count": 0,
            "stargazers_count": 0,
            "watchers_count": 0,
            "size": 1,
            "default_branch": "main",
            "open_issues_count": 0,
            "has_issues": True,
            "has_projects": False,
            "has_wiki": False,
            "has_pages": False,
            "has_downloads": False,
            "archived": False,
            "disabled": False,
            "pushed_at": MOMENT,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "open_issues": 0,
            "watchers": 0,
        }
        return {**about, **{f"{link}_url": self._api(link) for link in links}}

    def _shown(self, pull: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        number = pull["number"]
        sides = {side: {**pull[side], "user": self._user(), "repo": self._repository()} for side in ("head", "base")}
        links = ("comments", "commits", "statuses", "html", "issue", "review_comments", "review_comment", "self")
        about = {
            **pull,
            **sides,
            "id": number,
            "node_id": f"PR_{number}",
            "url": self._api(f"pulls/{number}"),
            "html_url": self._web(f"pull/{number}"),
            "diff_url": self._web(f"pull/{number}.diff"),
            "patch_url": self._web(f"pull/{number}.patch"),
            "issue_url": self._api(f"issues/{number}"),
            **{
                f"{link}_url": self._api(f"pulls/{number}/{link}")
                for link in ("commits", "review_comments", "review_comment", "comments", "statuses")
            },
            "locked": False,
            "user": self._user(),
            "labels": [],
            "milestone": None,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "closed_at": None if pull["state"] == "open" else MOMENT,
            "author_association": "CONTRIBUTOR",
            "auto_merge": None,
            "draft": False,
            "_links": {link: {"href": self._api(f"pulls/{number}")} for link in links},
        }
        counts = dict.fromkeys(("comments", "review_comments", "commits", "additions", "deletions", "changed_files"), 1)
        more = {"merged": False, "mergeable": True, "mergeable_state": "clean", "merged_by": None, "maintainer_can_modify": True, **counts}
        return {**about, **more} if whole else about

    def _comment(self, number: int, at: int) -> dict[str, Any]:
        urls = {
            "url": self._api(f"issues/comments/{at}"),
            "html_url": self._web(f"pull/{number}#c{at}"),
            "issue_url": self._api(f"issues/{number}"),
        }
        about = {
            "id": at,
            "node_id": f"IC_{at}",
            "body": self.comments[number][at],
            "user": self._user(),
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
        return {**about, **urls, "author_association": "CONTRIBUTOR"}


MOMENT = "2026-01-02T03:04:05Z"
