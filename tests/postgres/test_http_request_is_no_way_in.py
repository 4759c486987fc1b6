"""`http-request` runs what others ask for: it reaches nothing that is closed, takes no more than it should, and tells no secret."""

import gzip
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from suture.engine import Database, Engine
from suture.errands.http_request import http_request
from tests.fakes.web import Answer, Web, web
from tests.postgres.engine.stage import ended, running
from tests.postgres.errands import LOOPBACK, resources

ONCE = {"attempts": 1}


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as server:
        yield server


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with Database.connect(database_url) as database:
        yield database


async def run(database: Database, *, allow: tuple[str, ...] = LOOPBACK, secrets: Path | None = None, **fields: Any) -> Any:
    engine = Engine(database)
    async with running(database, http_request, resources=resources(allow=allow, secrets=secrets)):
        asked = await engine.enqueue("http-request", {"retry": ONCE} | fields, actor="test")
        return await ended(engine, asked.execution.id)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "127.1", "0x7f.1"])
async def test_loopback_is_closed_in_whatever_way_it_is_written(database: Database, server: Web, host: str):
    port = server.says("/", Answer(200)).split(":")[-1]

    refused = await run(database, allow=(), url=f"http://{host}:{port}")

    assert (refused.status, refused.error.reason) == ("error", "AccessDenied")
    assert "SUTURE_HTTP_ALLOW" in refused.error.message
    assert server.seen == []


@pytest.mark.parametrize("url", ["http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[::ffff:169.254.169.254]/"])
async def test_the_metadata_service_stays_closed_when_loopback_and_names_are_open(database: Database, url: str):
    refused = await run(database, allow=(*LOOPBACK, "10.0.0.0/8", "*.example"), url=url)

    assert refused.error.reason == "AccessDenied"


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked(
    database: Database, server: Web, monkeypatch: pytest.MonkeyPatch
):
    """A name server that says something harmless when it is asked first, and the metadata service's address afterwards."""
    port = int(server.says_json("/", "here").split(":")[-1].rstrip("/"))
    asked: list[str] = []

    def fickle(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        place = "127.0.0.1" if len(asked) == 1 else "169.254.169.254"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, port))]

    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **k: (fickle if host == "shop.example" else real)(host, *a, **k))
    done = await run(database, allow=("shop.example",), url=f"http://shop.example:{port}/")

    assert (done.status, done.output["body"]) == ("completed", "here")
    assert asked == ["shop.example"]
    assert server.seen[0].headers["host"] == f"shop.example:{port}"


async def test_a_redirect_to_the_metadata_service_is_not_followed(database: Database, server: Web):
    place = "http://169.254.169.254/latest/meta-data/iam?token=hunter2hunter2"
    url = server.says("/away", Answer(302, headers={"Location": place}))

    refused = await run(database, allow=(*LOOPBACK, "169.254.0.0/16"), url=url)

    assert (refused.error.reason, len(server.seen)) == ("UnexpectedAnswer", 1)
    assert "redirects are not followed" in refused.error.message
    assert "hunter2" not in refused.error.message


async def test_a_server_that_drips_is_left_when_the_time_is_over(database: Database, server: Web):
    url = server.says("/slow", Answer(body=b"x" * 1000, drip=0.05))
    began = time.monotonic()

    failed = await run(database, url=url, timeoutSeconds=0.5)

    assert (failed.error.reason, time.monotonic() - began < 20) == ("ServiceUnavailable", True)
    assert "within 0.5 s" in failed.error.message


async def test_a_body_that_was_promised_and_never_comes_is_not_waited_for_longer(database: Database, server: Web):
    url = server.says("/never", Answer(headers={"Content-Length": "1000000"}, head_only=True))

    failed = await run(database, url=url, timeoutSeconds=0.5)

    assert failed.error.reason == "ServiceUnavailable"


async def test_of_a_huge_body_no_more_is_read_than_is_kept(database: Database, server: Web):
    url = server.says("/huge", Answer(body=b"x" * (64 << 20)))

    done = await run(database, url=url, maxBytes=1000)

    assert (done.status, done.output["truncated"], len(done.output["body"])) == ("completed", True, 1000)
    assert server.sent < 16 << 20  # the rest was never taken


async def test_a_small_body_that_unpacks_to_gigabytes_stays_packed(database: Database, server: Web):
    packed = gzip.compress(b"\0" * (32 << 20))
    url = server.says("/bomb", Answer(headers={"Content-Encoding": "gzip"}, body=packed))

    done = await run(database, url=url, maxBytes=100_000)

    assert (done.output["form"], done.output["truncated"]) == ("base64", False)
    assert server.seen[0].headers["accept-encoding"] == "identity"


async def test_a_secret_goes_where_it_may_and_is_in_no_row(database: Database, database_url: str, server: Web, tmp_path: Path):
    secret = "s3cr3t-of-the-forge"
    put(tmp_path, "forge", value=f"{secret}\n", origins=f"https://forge.example\n{server.url}\n")
    url = server.says("/echo", Answer(headers={"ETag": f"{secret}-7"}, body=f"{secret}{'x' * 1000}{secret}".encode()))
    headers = {"Authorization": {"secret": "forge", "prefix": "Bearer "}}

    done = await run(database, secrets=tmp_path, url=url, headers=headers, maxBytes=1029)
    refused = await run(database, secrets=tmp_path, url=server.says("/no", Answer(400, body=secret.encode())), headers=headers)

    assert done.status == "completed"
    assert done.output["body"] == f"{'*' * 19}{'x' * 1000}{'*' * 10}"  # the cut goes through the second one
    assert [seen.headers["authorization"] for seen in server.seen] == [f"Bearer {secret}"] * 2
    assert done.output["headers"]["etag"] == "*" * len(secret) + "-7"
    assert refused.status == "error"
    assert secret[:6] not in await everything(database_url)


async def test_a_secret_goes_nowhere_else(database: Database, server: Web, tmp_path: Path):
    put(tmp_path, "forge", value="s3cr3t", origins="https://forge.example\n")
    put(tmp_path, "free", value="s3cr3t", origins=None)
    put(tmp_path, "lines", value="a\r\nX-B: c", origins=server.url)
    url = server.says("/", Answer(200))

    refusals = {
        name: await run(database, secrets=tmp_path, url=url, headers={"Authorization": {"secret": name}})
        for name in ("forge", "free", "none", "lines")
    }
    without = await run(database, url=url, headers={"Authorization": {"secret": "forge"}})

    reasons = {name: refused.error.reason for name, refused in refusals.items()}
    assert reasons == {"forge": "AccessDenied", "free": "NotFound", "none": "NotFound", "lines": "InvalidRequest"}
    assert "SUTURE_HTTP_SECRETS" in without.error.message
    assert server.seen == []


def put(folder: Path, name: str, *, value: str, origins: str | None) -> None:
    """A secret, as a Kubernetes Secret with these keys is mounted."""
    (folder / name).mkdir()
    (folder / name / "value").write_text(value)
    if origins is not None:
        (folder / name / "origins").write_text(origins)


async def everything(database_url: str) -> str:
    """All rows of all our tables, as text."""
    connection = await asyncpg.connect(database_url)
    try:
        tables = await connection.fetch(
            "select relname from pg_class where relnamespace = 'suture'::regnamespace and relkind in ('r', 'p') and not relispartition"
        )
        texts = [await connection.fetchval(f"select string_agg(t::text, ' ') from suture.{row['relname']} t") for row in tables]
    finally:
        await connection.close()
    return " ".join(filter(None, texts))
