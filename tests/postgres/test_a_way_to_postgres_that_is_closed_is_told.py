"""Whoever cannot reach Postgres reads where it was looked for, which setting says so, and what to do; never the password."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from suture.engine import Database
from suture.errors import DatabaseUnavailable
from tests.fakes.refusing import refusing
from tests.postgres.api.gateway import running as gateway_running
from tests.postgres.command import COMMAND, environment, suture
from tests.postgres.servers import renamed

NOBODY = "postgresql://me:sesame@127.0.0.1:1/orders"


@asynccontextmanager
async def closed(why: str, real: str) -> AsyncIterator[str]:
    """An address that leads to no session."""
    async with AsyncExitStack() as stack:
        match why:
            case "nobody listens":
                yield NOBODY
            case "no such host":
                yield "postgresql://me:sesame@nowhere.invalid/orders"
            case "no such socket":
                yield "postgresql:///orders?host=/nonexistent&user=me&password=sesame"
            case "no such database":
                yield renamed(real, "nothing_is_called_so")
            case "wrong password":
                refusal = refusing("28P01", 'password authentication failed for user "me"')
                yield f"postgresql://me:sesame@{await stack.enter_async_context(refusal)}/orders"
            case "starting":
                refusal = refusing("57P03", "the database system is starting up")
                yield f"postgresql://me:sesame@{await stack.enter_async_context(refusal)}/orders"
            case "full":
                refusal = refusing("53300", "sorry, too many clients already")
                yield f"postgresql://me:sesame@{await stack.enter_async_context(refusal)}/orders"


WAYS = {
    "nobody listens": r"at 127\.0\.0\.1:1 takes no connections.*start it, or set SUTURE_DATABASE_URL",
    "no such host": r"nowhere\.invalid is not known.*correct the host in SUTURE_DATABASE_URL",
    "no such socket": r"at /nonexistent takes no connections.*start it, or set SUTURE_DATABASE_URL",
    "no such database": r"lacks the database .*nothing_is_called_so.*create it and run `suture migrate`.*SUTURE_DATABASE_URL",
    "wrong password": r"refuses the login .*\"me\".*correct the user and the password in SUTURE_DATABASE_URL",
    "starting": r"is not ready \(the database system is starting up\).*SUTURE_DATABASE_URL leads to it, so wait",
    "full": r"has no connection left .*SUTURE_DATABASE_POOL",
}


@pytest.mark.parametrize("why", WAYS)
async def test_a_command_says_where_it_looked_and_what_to_do(why: str, direct_url: str) -> None:
    async with closed(why, direct_url) as url:
        asked, migrated = await asyncio.gather(suture("queues", SUTURE_DATABASE_URL=url), suture("migrate", SUTURE_DATABASE_URL=url))
    for said in (asked, migrated):
        assert said.code == 3
        assert re.match(f"DatabaseUnavailable: Postgres .*{WAYS[why]}", said.err), said.err
        assert "sesame" not in said.err


async def test_a_command_with_an_address_that_is_none_says_so_and_shows_no_part_of_it() -> None:
    said = await suture("queues", SUTURE_DATABASE_URL="postgresql://me:12/sesame@db/orders")
    assert said.code == 2
    assert said.err.startswith("ConfigError: SUTURE_DATABASE_URL is no address of Postgres")
    assert "sesame" not in said.err
    assert "'12'" not in said.err


KUBECONFIG = """
{"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],
 "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
 "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}]}
"""


@pytest.mark.parametrize("process", ["api", "worker", "operator"])
async def test_a_process_says_in_its_log_what_is_closed(process: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    own = {
        "api": {"SUTURE_API_ADDRESS": "127.0.0.1:0"},
        "worker": {"SUTURE_WORKER_HEALTH_ADDRESS": "", "SUTURE_REPOSITORY_URL": str(tmp_path)}
        | {"SUTURE_EVIDENCE_SOURCE": "recording", "SUTURE_EVIDENCE_RECORDING": str(tmp_path)},
        "operator": {"SUTURE_OPERATOR_HEALTH_ADDRESS": "", "SUTURE_OPERATOR_NAMESPACES": "x", "KUBECONFIG": str(tmp_path / "kubeconfig")},
    }
    settings = environment(SUTURE_DATABASE_URL=NOBODY, **own[process])
    started = await asyncio.create_subprocess_exec(*COMMAND, process, env=settings, stdout=-1, stderr=asyncio.subprocess.STDOUT)
    try:
        async with asyncio.timeout(60):
            told = await _line(started.stdout, "Postgres is away")
    finally:
        started.terminate()
        rest, _ = await asyncio.wait_for(started.communicate(), 30)
    assert (told["level"], "sesame" in json.dumps(told), b"sesame" in rest) == ("warning", False, False)
    assert re.search(WAYS["nobody listens"], told["event"]), told


async def test_whoever_asks_for_readiness_learns_nothing_that_the_log_does_not_keep(caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_running(NOBODY) as gateway:
        answers = [await gateway.by(None).get("/readyz") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.json()["detail"] for answer in answers} == {"Postgres does not answer as it should: the log of the gateway says why."}
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert re.search(WAYS["nobody listens"], told.getMessage())


async def _line(out: asyncio.StreamReader | None, text: str) -> dict[str, str]:
    assert out is not None
    seen = []
    async for line in out:
        seen.append(line.decode())
        if text in seen[-1]:
            found: dict[str, str] = json.loads(line)
            return found
    raise AssertionError(f"it ended: {seen}")


async def test_a_direct_address_that_is_closed_is_told_once_by_its_own_name(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Database.connect(database_url, direct=NOBODY) as database:
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable, match="SUTURE_DATABASE_DIRECT"):
                await database.listen([], lambda *_: None, greet=_nothing, every=timedelta(seconds=1))
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "set SUTURE_DATABASE_DIRECT to where it listens" in told[0].getMessage()
    assert "sesame" not in caplog.text


async def _nothing(_: object) -> None:
    pass


async def test_a_server_that_is_silent_and_a_pool_that_is_in_use_are_told_apart(database_url: str) -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other has had enough
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    async with (
        silent,
        Database.connect(f"postgresql://me:sesame@127.0.0.1:{port}/x") as nowhere,
        Database.connect(database_url, size=1) as full,
        full.session(),
    ):
        unanswered, busy = await asyncio.gather(nowhere.one("ping"), full.one("ping"), return_exceptions=True)
    assert isinstance(unanswered, DatabaseUnavailable)
    assert f"at 127.0.0.1:{port} gives no answer in time: see whether SUTURE_DATABASE_URL" in unanswered.message
    assert isinstance(busy, DatabaseUnavailable)
    assert "all 1 connections of this process were in use for 10 s. Raise SUTURE_DATABASE_POOL" in busy.message
