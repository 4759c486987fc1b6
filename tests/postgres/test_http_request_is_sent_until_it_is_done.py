"""`http-request`: however often it has to be sent, the server can tell that it is the same call, and its answer is kept once."""

import json
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from suture.engine import Database, Engine
from suture.errands.http_request import http_request
from tests.fakes.web import Answer, Web, web
from tests.postgres.engine.stage import ended, eventually, reached, running
from tests.postgres.errands import resources, worker

SOON = {"attempts": 4, "initialSeconds": 0.01}


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as server:
        yield server


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database.connect(database_url) as database:
        yield database


@pytest.fixture
def engine(database: Database) -> Engine:
    return Engine(database)


async def run(database: Database, engine: Engine, **fields: Any) -> Any:
    """The execution, once it has ended."""
    async with running(database, http_request, resources=resources()):
        asked = await engine.enqueue("http-request", {"retry": SOON} | fields, actor="test")
        return await ended(engine, asked.execution.id)


async def test_an_answer_is_kept(database: Database, engine: Engine, server: Web):
    url = server.says_json("/orders", {"id": 7})

    done = await run(database, engine, method="POST", url=url, json={"item": "Schraube ⌀3"}, headers={"X-Trace": "a1"})

    assert done.status == "completed"
    assert (done.output["status"], done.output["form"], done.output["body"]) == (200, "json", {"id": 7})
    assert done.output["headers"] == {"content-type": "application/json"}
    (seen,) = server.seen
    assert (seen.method, json.loads(seen.body)) == ("POST", {"item": "Schraube ⌀3"})
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-trace"] == "a1"
    assert seen.headers["idempotency-key"] == f"{done.id}-call"


async def test_lost_connections_busy_servers_and_faults_are_tried_again_with_the_same_key(database: Database, engine: Engine, server: Web):
    url = server.says("/pay", Answer(cut=True), Answer(502), Answer(429), Answer(201, body=b"paid"))

    done = await run(database, engine, method="POST", url=url, body="amount=7", idempotencyHeader="X-Once")

    assert (done.status, done.output["body"]) == ("completed", "paid")
    assert len(server.seen) == 4
    assert {seen.headers["x-once"] for seen in server.seen} == {f"{done.id}-call"}
    assert {seen.body for seen in server.seen} == {b"amount=7"}


async def test_a_refusal_is_final_and_says_what_the_server_said(database: Database, engine: Engine, server: Web):
    url = server.says("/pay", Answer(422, body=b"the amount is wrong"))

    failed = await run(database, engine, url=url)

    assert failed.status == "error"
    assert failed.error.reason == "UnexpectedAnswer"
    assert "422" in failed.error.message
    assert "the amount is wrong" in failed.error.message
    assert len(server.seen) == 1


async def test_tries_end_where_the_policy_says(database: Database, engine: Engine, server: Web):
    url = server.says("/busy", Answer(503))

    failed = await run(database, engine, url=url)

    assert (failed.status, failed.error.reason, len(server.seen)) == ("error", "ServiceUnavailable", 4)


async def test_the_pause_that_the_server_asks_for_is_a_row_and_no_worker_waits(database: Database, engine: Engine, server: Web):
    url = server.says("/later", Answer(503, headers={"Retry-After": "120"}), Answer(200, body=b"at last"))

    async with running(database, http_request, resources=resources()) as runner:
        asked = await engine.enqueue("http-request", {"url": url}, actor="test")
        await eventually(lambda: _seen(server, 1), what="the first try")
        row = await reached(engine, asked.execution.id, "enqueued")
        assert timedelta(seconds=110) < row.run_at - datetime.now(UTC) <= timedelta(seconds=121)
        await eventually(lambda: _idle(runner), what="a free worker")
    # Another worker, when the time has come.
    async with database.transaction() as session:
        await session.connection.execute("update suture.workflow_executions set run_at = now() where id = $1", asked.execution.id)
    async with running(database, http_request, resources=resources()):
        done = await ended(engine, asked.execution.id)
    assert (done.output["body"], len(server.seen)) == ("at last", 2)


async def test_a_call_whose_worker_is_killed_is_sent_again_with_the_same_key(database_url: str, engine: Engine, server: Web):
    held = threading.Event()
    url = server.says("/orders", Answer(hold=held), Answer(200, body=b"one order"))
    settings = {"SUTURE_HTTP_ALLOW": "127.0.0.1"}

    with worker(database_url, **settings) as first:
        asked = await engine.enqueue("http-request", {"method": "POST", "url": url, "json": {"item": 1}}, actor="test")
        await eventually(lambda: _seen(server, 1), what="the call")
        first.kill()
        first.wait()
        with worker(database_url, **settings):
            done = await ended(engine, asked.execution.id)

    held.set()
    assert (done.status, done.output["body"], done.crashes) == ("completed", "one order", 1)
    assert [seen.headers["idempotency-key"] for seen in server.seen] == [f"{done.id}-call"] * 2
    assert len({seen.body for seen in server.seen}) == 1


async def test_requeued_from_the_failed_step_it_is_the_same_call_and_from_the_start_another(
    database: Database, engine: Engine, server: Web
):
    url = server.says("/orders", Answer(400), Answer(400), Answer(200))
    failed = await run(database, engine, url=url)

    again = await engine.requeue(failed.id, actor="test")
    async with running(database, http_request, resources=resources()):
        failed_again = await ended(engine, again.id)
        anew = await engine.requeue(failed_again.id, actor="test", from_step="start")
        done = await ended(engine, anew.id)

    assert done.status == "completed"
    keys = [seen.headers["idempotency-key"] for seen in server.seen]
    assert keys == [f"{failed.id}-call", f"{failed.id}-call", f"{done.id}-call"]


async def _seen(server: Web, count: int) -> bool:
    return len(server.seen) >= count


async def _idle(runner: Any) -> bool:
    return runner.running == 0
