"""The postgres tier: one real server for the run, migrated once, and a database of its own for each test, copied from that template.

SUTURE_TEST_POSTGRES chooses the server: 18 (the default), 16, 15 or `pgbouncer`, or the address of any other, whose user may create
databases.
"""

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from tests.postgres.servers import Server, renamed, serve


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def postgres() -> AsyncIterator[Server]:
    async with serve(os.environ.get("SUTURE_TEST_POSTGRES", "18")) as server:
        yield server


@pytest.fixture(scope="session")
def server_url(postgres: Server) -> str:
    """The address of a database from which others may be created."""
    return postgres.direct


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def template(server_url: str) -> AsyncIterator[str]:
    """The name of a migrated database that nobody is connected to."""
    from suture.engine.migrate import migrate  # noqa: PLC0415 (tests of the server alone run without the engine)

    async with create_database(server_url) as url:
        await migrate(url)
        yield _name(url)


@pytest_asyncio.fixture
async def direct_url(server_url: str, template: str) -> AsyncIterator[str]:
    """The address of this test's own database, migrated, past any pooler; it goes with the test."""
    async with create_database(server_url, template=template) as url:
        yield url


@pytest.fixture
def database_url(postgres: Server, direct_url: str) -> str:
    """The address of this test's own database, migrated, as the engine is given it."""
    return renamed(postgres.pooled, _name(direct_url))


@pytest_asyncio.fixture
async def empty_database_url(postgres: Server, server_url: str) -> AsyncIterator[str]:
    """The address of this test's own database, with nothing in it."""
    async with create_database(server_url) as url:
        yield renamed(postgres.pooled, _name(url))


@asynccontextmanager
async def create_database(server_url: str, *, template: str = "template1") -> AsyncIterator[str]:
    """A database of its own, for the time of the block."""
    name = f"suture_test_{uuid.uuid4().hex[:12]}"
    # Copying files asks for a checkpoint, which is nothing without fsync; the default writes every page to the log instead.
    await _administer(server_url, f"create database {name} template {template} strategy file_copy")
    try:
        yield renamed(server_url, name)
    finally:
        await _administer(server_url, f"drop database {name} with (force)")


async def _administer(server_url: str, statement: str) -> None:
    connection = await asyncpg.connect(server_url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")
