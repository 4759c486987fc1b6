"""While Postgres is away a webhook is answered 503, and its retry counts exactly once, wherever the trouble struck."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import httpx
import pytest

from suture.cli.postgres import EmbeddedPostgres
from suture.engine import migrate
from tests.postgres.api.gateway import SECRET, TOKENS, eventually, is_problem, post, running, triggered
from tests.postgres.api.wire import Wire


async def count(url: str) -> tuple[int, int]:
    """Stored deliveries and tasks, past the gateway."""
    connection = await asyncpg.connect(url)
    try:
        deliveries = await connection.fetchval("select count(*) from suture.deliveries")
        tasks = await connection.fetchval("select count(*) from suture.executions")
    finally:
        await connection.close()
    return deliveries, tasks


async def test_postgres_stops_in_mid_request_and_the_retry_is_accepted_once() -> None:
    envelope = triggered("Deployment/shop/web")
    async with folder() as data, Wire.to("") as wire:
        async with EmbeddedPostgres.start(data=data) as server:
            wire.server_url = server.url
            await migrate(server.url)
            gateway = await wire.stack.enter_async_context(running(wire.url))
            wire.hold = "request"
            asking = asyncio.create_task(post(gateway.by(None), envelope))
            await asyncio.wait_for(wire.held.wait(), 60)  # everything is written, and not yet committed
            os.kill(server.pid, signal.SIGQUIT)
            refusal = await asking

        is_problem(refusal, 503, "DatabaseUnavailable")
        assert int(refusal.headers["Retry-After"]) > 0
        is_problem(await gateway.by(None).get("/readyz"), 503, "DatabaseUnavailable")
        is_problem(await gateway.by("vera").get("/tasks"), 503, "DatabaseUnavailable")
        assert (await gateway.by(None).get("/healthz")).status_code == 200
        assert "suture_database_up 0.0" in (await gateway.by("vera").get("/metrics")).text

        wire.go_on()
        async with EmbeddedPostgres.start(data=data) as restarted:
            wire.server_url = restarted.url
            assert await count(restarted.url) == (0, 0)
            answers = [await post(gateway.by(None), envelope) for _ in range(3)]
            assert [answer.status_code for answer in answers] == [202, 200, 200]
            assert await count(restarted.url) == (1, 1)
            assert (await gateway.by(None).get("/readyz")).status_code == 200
            await wire.stack.aclose()


async def test_the_gateway_is_killed_between_commit_and_answer_and_the_retry_is_a_no_op(database_url: str) -> None:
    envelope = triggered("Deployment/shop/web")
    async with Wire.to(database_url) as wire:
        async with process(wire.url) as (url, killed), client(url) as sender:
            wire.hold = "answer"
            asking = asyncio.create_task(post(sender, envelope))
            await eventually(lambda: count(database_url), lambda found: found == (1, 1))  # committed; the gateway does not know it
            assert not asking.done()
            killed.kill()
            with pytest.raises(httpx.TransportError):
                await asking

        wire.go_on()
        async with process(wire.url) as (url, _), client(url) as sender:
            answer = await post(sender, envelope)

    assert (answer.status_code, answer.json()["state"]) == (200, "duplicate")
    assert await count(database_url) == (1, 1)


async def test_a_commit_whose_answer_is_late_is_503_and_the_retry_a_no_op(database_url: str) -> None:
    """PagerDuty waits 5 seconds: better a 503 in time than an answer to nobody."""
    envelope = triggered("Deployment/shop/web")
    async with Wire.to(database_url) as wire, running(wire.url) as gateway:
        wire.hold = "answer"
        loop = asyncio.get_running_loop()
        begin = loop.time()

        refusal = await post(gateway.by(None), envelope)

        assert loop.time() - begin < 5
        is_problem(refusal, 503, "DatabaseUnavailable")
        wire.go_on()
        assert (await post(gateway.by(None), envelope)).json()["state"] == "duplicate"
        assert await count(database_url) == (1, 1)


async def test_sigterm_turns_readiness_off_while_requests_are_served_and_ends_well(database_url: str) -> None:
    async with process(database_url) as (url, gateway), client(url) as asker:
        assert (await asker.get("/readyz")).status_code == 200

        gateway.send_signal(signal.SIGTERM)

        draining = await eventually(lambda: asker.get("/readyz"), lambda answer: answer.status_code == 503)
        assert "about to stop" in is_problem(draining, 503, "ServiceUnavailable")["detail"]
        assert (await post(asker, triggered("Deployment/shop/web"))).status_code == 202
        assert await asyncio.wait_for(gateway.wait(), 60) == 0
    assert await count(database_url) == (1, 1)


@asynccontextmanager
async def process(url: str) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """`suture api` as a process of its own, and where it listens."""
    environ = {
        "PATH": os.environ["PATH"],
        "SUTURE_DATABASE_URL": url,
        "SUTURE_API_ADDRESS": "127.0.0.1:0",
        "SUTURE_API_TOKENS": TOKENS,
        "SUTURE_API_PAGERDUTY_SECRET": SECRET,
    }
    child = await asyncio.create_subprocess_exec(sys.executable, "-m", "suture", "api", env=environ, stderr=asyncio.subprocess.PIPE)
    assert child.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b'"address": "' not in (line := await child.stderr.readline()):
                assert line, "the gateway ended before it listened"
        yield line.split(b'"address": "')[1].split(b'"')[0].decode(), child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.communicate()


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=20)


@asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    """A place for data that Postgres' own user may enter, which pytest's are not."""
    path = Path(tempfile.mkdtemp(prefix="suture-outage-"))
    path.chmod(0o755)
    try:
        yield path / "data"
    finally:
        await asyncio.to_thread(shutil.rmtree, path)
