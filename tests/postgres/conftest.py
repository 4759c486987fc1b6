"""The postgres tier: one real server for the run, migrated once, and a database of its own for each test, copied from that template.

SUTURE_TEST_POSTGRES chooses the server: 18 (the default) or 16 of the embedded ones, or the address of any other, whose user may create
databases. Sync to disk is off here and only here: no test pulls the plug of the machine.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import asyncpg
import pytest_asyncio

from suture.cli.postgres import EmbeddedPostgres
from suture.cli.room import room

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200"}
EMBEDDED: dict[str, Literal[16, 18]] = {"16": 16, "18": 18}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server_url() -> AsyncIterator[str]:
    """The address of a database from which others may be created."""
    chosen = os.environ.get("SUTURE_TEST_POSTGRES", "18")
    if chosen not in EMBEDDED:
        yield chosen
        return
    with room(_directory(), "suture-tests-") as private:
        private.path.chmod(0o711)  # as root the server runs as nobody, who has to pass
        async with EmbeddedPostgres.start(private.path / "data", EMBEDDED[chosen], FAST) as server:
            yield server.url


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(server_url: str) -> AsyncIterator[str]:
    """The name of a migrated database that nobody is connected to."""
    from suture.engine.migrate import migrate  # noqa: PLC0415 (tests of the server alone run without the engine)

    async with _database(server_url) as url:
        await migrate(url)
        yield _name(url)


@pytest_asyncio.fixture
async def database_url(server_url: str, template: str) -> AsyncIterator[str]:
    """The address of this test's own database, migrated; it goes with the test."""
    async with _database(server_url, template=template) as url:
        yield url


@pytest_asyncio.fixture
async def empty_database_url(server_url: str) -> AsyncIterator[str]:
    """The address of this test's own database, with nothing in it."""
    async with _database(server_url) as url:
        yield url


@asynccontextmanager
async def _database(server_url: str, *, template: str = "template1") -> AsyncIterator[str]:
    name = f"suture_test_{uuid.uuid4().hex[:12]}"
    # Copying files asks for a checkpoint, which is nothing without fsync; the default writes every page to the log instead.
    await _administer(server_url, f"create database {name} template {template} strategy file_copy")
    try:
        yield _renamed(server_url, name)
    finally:
        await _administer(server_url, f"drop database {name} with (force)")


def _renamed(url: str, name: str) -> str:
    # By hand: urlunsplit drops the empty host of postgresql:///suture?host=/a/folder, and what is left is no address of a database.
    scheme, _, rest = url.partition("://")
    host = rest.partition("/")[0]
    query = urlsplit(url).query
    return f"{scheme}://{host}/{name}{'?' if query else ''}{query}"


async def _administer(server_url: str, statement: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _directory() -> Path:
    """In memory where there is room: to copy a template's 300 files takes 10 ms there and 100 ms on a disk."""
    memory = Path("/dev/shm")
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else Path(tempfile.gettempdir())


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")
