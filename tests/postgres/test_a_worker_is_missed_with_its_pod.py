"""A worker whose pod goes is missed at once, and so is one whose pod went while the watch was broken."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest_asyncio
from kubernetes.aio import client

from suture.engine import Database, Engine
from suture.engine.ids import uuid7
from suture.operator.objects import Objects
from suture.operator.signs import Sign
from suture.operator.workers import Workers
from tests.fakes.web import Answer, web
from tests.postgres.engine.stage import eventually


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database.connect(database_url) as database:
        yield database


async def test_a_pod_that_is_not_listed_any_more_is_gone(database: Database):
    engine = Engine(database)
    lost, kept = await held(engine, "worker-a"), await held(engine, "worker-b")
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    never = Answer(headers={"Content-Length": "1000"}, head_only=True)

    with web() as server:
        answers = (listed("worker-a", "worker-b"), Answer(body=json.dumps(gone).encode() + b"\n"), listed("worker-b"), never)
        server.says("/api/v1/namespaces/suture/pods", *answers)
        async with watching(engine, server.url):
            await eventually(lambda: expired(database, lost), what="the end of the lease")

        assert not await expired(database, kept)
        selectors = {seen.path.partition("labelSelector=")[2].partition("&")[0] for seen in server.seen}
        assert selectors == {"app.kubernetes.io/name%3Dsuture,app.kubernetes.io/component%3Dworker"}


async def test_a_pod_that_goes_under_watch_is_gone_at_once(database: Database):
    engine = Engine(database)
    lost = await held(engine, "worker-a")
    deleted = {"type": "DELETED", "object": pod("worker-a")}

    with web() as server:
        body = json.dumps(deleted).encode() + b"\n"
        stream = Answer(headers={"Content-Length": str(len(body) * 2)}, body=body)  # and then no more
        server.says("/api/v1/namespaces/suture/pods", listed("worker-a"), stream)
        async with watching(engine, server.url):
            await eventually(lambda: expired(database, lost), what="the end of the lease")


async def test_a_bookmark_is_a_sign_of_the_watch(database: Database):
    """Where nothing changes for hours, a watch that lives is told from one that is dead all the same."""
    mark = {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "9"}}}
    sign = Sign(seen_at=0)

    with web() as server:
        body = json.dumps(mark).encode() + b"\n"
        the_list_was_seen = threading.Event()
        stream = Answer(headers={"Content-Length": str(len(body) * 2)}, body=body, hold=the_list_was_seen)  # and then no more
        server.says("/api/v1/namespaces/suture/pods", Answer(status=500), listed("worker-a"), stream)
        async with watching(Engine(database), server.url, sign):
            await eventually(lambda: later(sign, 0), what="the list")
            listed_at = sign.seen_at
            the_list_was_seen.set()
            await eventually(lambda: later(sign, listed_at), what="the bookmark")


async def later(sign: Sign, than: float) -> bool:
    return sign.seen_at > than


@asynccontextmanager
async def watching(engine: Engine, url: str, sign: Sign | None = None) -> AsyncIterator[None]:
    settings = client.Configuration()
    settings.host = url
    async with client.ApiClient(configuration=settings) as api:
        life = asyncio.create_task(Workers(engine, Objects(api), namespace="suture", sign=sign or Sign()).run())
        yield
        life.cancel()
        await asyncio.wait([life])


async def held(engine: Engine, worker: str) -> Any:
    """The id of an execution that a worker of this name holds for an hour."""
    owner, asked = uuid7(), await engine.enqueue("anything", {}, actor="test", queue=worker)
    await engine.database.none("register", owner, worker, "", [worker])
    claim = (owner, [worker], ["anything"], [99], 1, timedelta(hours=1), worker, 99, False)
    assert await engine.database.many("claim", *claim)
    return asked.execution.id


async def expired(database: Database, id_: Any) -> bool:
    async with database.session() as session:
        return bool(await session.connection.fetchval("select lease_expires < now() from suture.workflow_executions where id = $1", id_))


def listed(*names: str) -> Answer:
    page = {"metadata": {"resourceVersion": "7"}, "items": [pod(name) for name in names]}
    return Answer(headers={"Content-Type": "application/json"}, body=json.dumps(page).encode())


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "8"}, "status": {"phase": "Running"}}
