"""The stage of `suture demo`: a real Postgres, a git repository, the gateway and the workers as processes, all of it in one private folder
that goes with the demo. Tells no story (see `demo`).
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import httpx

from suture.cli.cases import Case
from suture.cli.children import alive, start, stop
from suture.cli.migration import PACKAGES, bring_up
from suture.cli.postgres import EmbeddedPostgres
from suture.cli.room import room
from suture.engine import Database, Engine, Execution
from suture.errors import ServiceUnavailable, SutureError, ToolMissing
from suture.remediation.records import Records

PORT = 8080
_SLICE = 0.004  # seconds that a worker runs between two looks: far shorter than a step
_START = 30.0  # seconds until a process must answer

STEPS = ("freeze-evidence", "diagnose", "propose", "ask")
"""The steps before a person is asked, in their order."""


@dataclass(slots=True)
class Stage:
    case: Case
    folder: Path
    engine: Engine
    records: Records
    url: str
    """Of the gateway."""
    token: str
    _environ: Mapping[str, str]
    _secret: str
    _children: list[Process] = field(default_factory=list)

    @property
    def repository(self) -> Path:
        return self.folder / "gitops"

    @classmethod
    @asynccontextmanager
    async def built(cls, case: Case) -> AsyncIterator["Stage"]:
        """Everything up but the workers; taken down again at the end, whatever happened.

        Raises: SutureError.
        """
        if shutil.which("git") is None:
            raise ToolMissing(
                "git is not installed, and the demo makes a repository with it: install it (apt-get install git) and try again."
            )
        async with AsyncExitStack() as stack:
            private = stack.enter_context(room(Path(tempfile.gettempdir()), "suture-demo-"))
            _commit_all(case, private.path / "gitops")
            server = await stack.enter_async_context(EmbeddedPostgres.start())
            await bring_up(server.url)
            database = await stack.enter_async_context(Database.connect(server.url, packages=PACKAGES))
            stage = cls._new(case, private.path, database, server.url)
            stack.push_async_callback(stage._stop_all)
            await stage._open_gateway()
            yield stage

    @classmethod
    def _new(cls, case: Case, folder: Path, database: Database, database_url: str) -> "Stage":
        token, secret = secrets.token_urlsafe(18), secrets.token_urlsafe(24)
        environ = {
            "SUTURE_DATABASE_URL": database_url,
            "SUTURE_API_TOKENS": f"you:approver={token}",
            "SUTURE_API_PAGERDUTY_SECRET": secret,
            "SUTURE_REPOSITORY_URL": str(folder / "gitops"),
            "SUTURE_EVIDENCE_SOURCE": "recording",
            "SUTURE_EVIDENCE_RECORDING": str(case.recording),
            "SUTURE_WORKER_HEALTH_ADDRESS": "",
        }
        return cls(case, folder, Engine(database), Records(database), "", token, environ, secret)

    async def post_webhook(self) -> None:
        """Send the bundled webhook as PagerDuty would: signed over its bytes, with an id of its own."""
        signature = hmac.new(self._secret.encode(), self.case.webhook, hashlib.sha256).hexdigest()
        headers = {"Content-Type": "application/json", "X-Webhook-Id": secrets.token_hex(8), "X-PagerDuty-Signature": f"v1={signature}"}
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            answer = await client.post("/webhooks/pagerduty", content=self.case.webhook, headers=headers)
        if not answer.is_success:
            raise ServiceUnavailable(f"The gateway refused the webhook: {answer.status_code} {answer.text[:300]}")

    async def answer(self, task: UUID, *, approve: bool, digest: str) -> None:
        """Approve or reject through the gateway, as the page does. An answer that came from the page meanwhile counts."""
        body = {"digest": digest, "reason": "answered in the terminal"}
        async with self._client() as client:
            answer = await client.post(f"/tasks/{task}/{'approve' if approve else 'reject'}", json=body)
        if not answer.is_success and answer.status_code != httpx.codes.CONFLICT:
            raise ServiceUnavailable(f"The gateway refused the answer: {answer.status_code} {answer.text[:300]}")

    async def task(self) -> Execution:
        """The task that the webhook became."""
        found = await self.engine.page(limit=1)
        if not found:
            raise SutureError("The webhook was accepted and became no task: its workload was not found in it.")
        return found[0]

    async def start_worker(self, name: str) -> Process:
        process = await start("worker", environ={**self._environ, "POD_NAME": name}, log=self.folder / "worker.log")
        self._children.append(process)
        return process

    async def stop_in_mid_step(self, worker: Process, task: UUID) -> tuple[str, list[str]]:
        """Freeze the worker (SIGSTOP) in the middle of a step; returns the step, and what is checkpointed before it.

        Once it has claimed, the worker runs a few milliseconds at a time, and the rows are read while it stands still: no luck is needed.
        """
        await self.until(task, ("running",), worker)
        while True:
            self._check(worker)
            worker.send_signal(signal.SIGSTOP)
            execution, done = await self.engine.get(task), [c.step_id for c in await self.engine.checkpoints(task)]
            if execution.status == "running" and done:
                return next((step for step in STEPS if step not in done), "ask"), done
            if execution.status not in ("running", "enqueued"):
                raise SutureError(f"The task is {execution.status} already: the worker could not be stopped in the middle of a step.")
            worker.send_signal(signal.SIGCONT)
            await asyncio.sleep(_SLICE)

    async def kill(self, process: Process) -> None:
        """SIGKILL: no handler runs, nothing is handed back."""
        process.kill()
        await process.wait()

    async def until(self, task: UUID, reached: Sequence[str], worker: Process) -> Execution:
        """The task, as soon as its status is one of `reached`."""
        while (execution := await self.engine.get(task)).status not in reached:
            self._check(worker)
            await asyncio.sleep(0.005)
        return execution

    def _check(self, worker: Process) -> None:
        """Raises: SutureError when the worker has ended by itself."""
        alive(worker, what="The worker", log=self.folder / "worker.log")

    def branches(self) -> list[str]:
        """Branches of the repository beside the deployed one."""
        listed = _git(self.repository, "for-each-ref", "--format=%(refname:short)", "refs/heads").split()
        return [branch for branch in listed if branch != "main"]

    def diff(self, branch: str) -> str:
        return _git(self.repository, "diff", "--no-color", "--no-ext-diff", f"main...{branch}")

    def head(self) -> str:
        return _git(self.repository, "rev-parse", "--short", "main").strip()

    async def _open_gateway(self) -> None:
        """Start the gateway on 8080, or on another port where somebody else is quicker to take it."""
        try:
            await self._gateway_at(_free_port(PORT))
        except SutureError:
            await self._gateway_at(_free_port(0))

    async def _gateway_at(self, port: int) -> None:
        self.url, log = f"http://127.0.0.1:{port}", self.folder / "api.log"
        process = await start("api", environ={**self._environ, "SUTURE_API_ADDRESS": f"127.0.0.1:{port}"}, log=log)
        self._children.append(process)
        async with self._client() as client, asyncio.timeout(_START):
            while True:
                alive(process, what="The gateway", log=log)
                with contextlib.suppress(httpx.TransportError):
                    # Only ours knows the token: another server that holds the port is no answer.
                    if (await client.get("/tasks", params={"limit": 1})).is_success:
                        return
                await asyncio.sleep(0.05)

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, trust_env=False, headers={"Authorization": f"Bearer {self.token}"})

    async def _stop_all(self) -> None:
        await asyncio.gather(*(stop(process) for process in self._children))


def _free_port(wanted: int) -> int:
    """`wanted` where it is free, else one that the kernel picks."""
    for port in (wanted, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise ServiceUnavailable("No port on 127.0.0.1 is free.")


def _commit_all(case: Case, repository: Path) -> None:
    repository.mkdir()
    _git(repository, "init", "--quiet", "--initial-branch=main")
    for number, content in enumerate(case.commits, start=1):
        # copyfile: a kept time of change makes git take a new text of the same size for the old one
        shutil.copytree(content, repository, dirs_exist_ok=True, copy_function=shutil.copyfile)
        _git(repository, "add", "--all")
        subject = "Deploy" if number == 1 else "Update"
        _git(repository, "commit", "--quiet", "--message", f"{subject} {case.workload.name}")
    # The work tree goes: deliveries push to the repository, and nobody works in it.
    _git(repository, "config", "receive.denyCurrentBranch", "refuse")


def _git(repository: Path, *arguments: str) -> str:
    person = {"NAME": "Platform Team", "EMAIL": "platform@example.com"}
    identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in person.items()}
    alone = {"PATH": os.environ.get("PATH", ""), "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(repository), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**alone, **identity},
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise SutureError(f"git {arguments[0]} failed in {repository}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
