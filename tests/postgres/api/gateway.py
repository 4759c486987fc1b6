"""A gateway under test: the real application on a real socket, the rows behind it, people with tokens, PagerDuty's envelopes."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
from pydantic import BaseModel

from suture.api.app import create_app
from suture.api.authentication import Tokens
from suture.api.main import listen, run
from suture.api.signatures import read_secrets
from suture.engine import NEVER, Database, Engine, Execution, Run, Runner, Workflows, workflow
from suture.remediation.incident import Change, Citation, Decision, Diagnosis, FileChange, Finding, Incident, Proposal, answer_event
from suture.remediation.records import Records

PACKAGES = ("suture.engine", "suture.remediation")
ENVELOPES = Path(__file__).resolve().parents[2] / "cases" / "webhooks"
SECRET = "pd-test-signing-secret-not-real"
PEOPLE = {"vera": "viewer", "otto": "operator", "anna": "approver", "abel": "approver"}
TOKENS = ",".join(f"{name}:{role}=token-of-{name}-0123456789" for name, role in PEOPLE.items())


class Order(BaseModel):
    number: int
    note: str = ""


@workflow("order")
async def order(run: Run, asked: Order) -> str:
    return f"{run.id}: {asked.number}"


@workflow("break", retry=NEVER)
async def broken(run: Run, asked: Order) -> str:
    raise ValueError("not today")


@workflow("remediate")
async def remediate(run: Run, incident: Incident) -> dict[str, Any]:
    """The contract of the real workflow towards people: a diagnosis, a question, a wait for the answer to it."""
    records: Records = run.resources
    await run.step("diagnose", diagnosed)
    await run.step("ask", ask, records, run.id)
    decision = await run.wait("approval", Decision, event=answer_event(PROPOSAL.digest), timeout=timedelta(days=1))
    return {"state": decision.verdict if decision else "expired", "sentence": "It is decided.", "cause": PROPOSAL.cause.code}


async def diagnosed() -> Diagnosis:
    return Diagnosis(findings=(PROPOSAL.cause,), ruled_out=("The node was healthy.",))


async def ask(records: Records, task_id: UUID) -> None:
    await records.ask(task_id, PROPOSAL, timeout=timedelta(days=1))


PROPOSAL = Proposal(
    cause=Finding(
        code="ImageNotFound",
        object="Deployment/shop/web",
        container="app",
        sentence="The image registry.example/web:1.2.4 does not exist; 1.2.3 did until 14:02.",
        confidence=0.97,
        citations=(
            Citation(
                object="log/shop/web-7d9c-x2x/app/previous",
                path="bytes 0-40",
                value="\x1b[31mfatal\x1b[0m <script>alert(1)</script>",
                why="The kubelet says that the tag is not there.",
            ),
        ),
        changes=(Change(object="Deployment/shop/web", operation="set", path="spec.template", value="x"),),
    ),
    base="4f1d8a7c0b6e4f1d8a7c0b6e4f1d8a7c0b6e4f1d",
    files=(FileChange(path="apps/web.yaml", before=b"image: web:1.2.4\n", after=b"image: web:1.2.3\n"),),
    diff="--- a/apps/web.yaml\n+++ b/apps/web.yaml\n@@ -1 +1 @@\n-image: web:1.2.4\n+image: web:1.2.3\n",
    digest="a" * 64,
    branch="suture/3f2a9c1b7d04",
    title="Set the image of Deployment/shop/web back to 1.2.3",
    body="…",
)


@dataclass
class Gateway:
    url: str
    database: Database
    engine: Engine
    records: Records
    workflows: Workflows
    clients: dict[str | None, httpx.AsyncClient] = field(default_factory=dict)

    def by(self, name: str | None) -> httpx.AsyncClient:
        """A client with the token of a person, or of nobody."""
        if name not in self.clients:
            headers = {"Authorization": f"Bearer token-of-{name}-0123456789"} if name else {}
            self.clients[name] = httpx.AsyncClient(base_url=self.url, headers=headers, trust_env=False, timeout=30, verify=False)
        return self.clients[name]

    @asynccontextmanager
    async def worker(self, *queues: str) -> AsyncIterator[Runner]:
        pause = timedelta(milliseconds=50)
        runner = Runner(self.database, self.workflows, name="w1", queues=queues or ("default",), poll=pause, resources=self.records)
        running = asyncio.create_task(runner.run())
        try:
            yield runner
        finally:
            runner.stop()
            await running

    async def asking(self, **labels: str) -> Execution:
        """A task that waits for a person."""
        incident = Incident.model_validate({"workload": {"kind": "Deployment", "namespace": "shop", "name": f"web-{uuid4().hex[:6]}"}})
        labels = {"workload": str(incident.workload), **labels}
        enqueued = await self.engine.enqueue("remediate", incident.model_dump(mode="json"), actor="test", labels=labels)
        async with self.worker():
            return await self.until(enqueued.execution.id, "waiting")

    async def until(self, task: UUID, *statuses: str) -> Execution:
        return await eventually(lambda: self.engine.get(task), lambda found: found.status in statuses)


@asynccontextmanager
async def running(url: str, *, tokens: str | None = TOKENS, secret: str | None = SECRET, limit: int = 1 << 16) -> AsyncIterator[Gateway]:
    """The gateway on a free port; it drains when the block ends."""
    workflows = Workflows()
    for function in (order, broken, remediate):
        workflows.add(function)
    async with Database.connect(url, packages=PACKAGES) as database:
        engine, records = Engine(database), Records(database)
        app = create_app(engine, records, workflows, tokens=Tokens.read(tokens), pagerduty_secrets=read_secrets(secret), body_limit=limit)
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with listen("127.0.0.1:0") as listener:
            serving = asyncio.create_task(run(app, listener, started=address.set_result))
            gateway = Gateway(await address, database, engine, records, workflows)
            try:
                yield gateway
            finally:
                for client in gateway.clients.values():
                    await client.aclose()
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving


async def eventually(look: Callable[[], Awaitable[Any]], holds: Callable[[Any], bool], *, within: float = 60.0) -> Any:
    """What `look` gives, as soon as it holds."""
    async with asyncio.timeout(within):
        while not holds(found := await look()):
            await asyncio.sleep(0.02)
        return found


@dataclass(frozen=True)
class Envelope:
    headers: dict[str, str]
    body: bytes

    @classmethod
    def read(cls, name: str) -> "Envelope":
        found = json.loads((ENVELOPES / f"{name}.json").read_text())
        return cls(found["headers"], found["raw_body"].encode())


def triggered(title: str = "", *, incident: str = "PINC777", details: Any = None, secret: str = SECRET, **data: Any) -> Envelope:
    """A signed incident.triggered of our own."""
    return signed(
        {"event_type": "incident.triggered", "data": {"id": incident, "title": title, "body": {"details": details}, **data}}, secret=secret
    )


def signed(event: dict[str, Any], *, secret: str = SECRET) -> Envelope:
    return sealed(json.dumps({"event": {"id": f"01{uuid4().hex[:20]}", **event}}).encode(), secret=secret)


def sealed(body: bytes, *, secret: str = SECRET) -> Envelope:
    signature = "v1=" + hmac.new(secret.encode(), body, sha256).hexdigest()
    return Envelope({"X-Webhook-Id": str(uuid4()), "X-PagerDuty-Signature": signature, "Content-Type": "application/json"}, body)


async def post(client: httpx.AsyncClient, envelope: Envelope, **headers: str) -> httpx.Response:
    return await client.post("/webhooks/pagerduty", content=envelope.body, headers=envelope.headers | headers)


def is_problem(answer: httpx.Response, status: int, reason: str) -> dict[str, Any]:
    """Assert the whole form of a problem, and give it."""
    found: dict[str, Any] = answer.json()
    assert (answer.status_code, found.get("reason")) == (status, reason), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert set(found) == {"type", "title", "status", "detail", "reason"}
    assert (found["type"], found["status"]) == (f"urn:suture:problem:{reason}", status)
    assert found["title"]
    assert found["detail"]
    assert "Traceback" not in answer.text
    assert "token-of-" not in answer.text
    return found
