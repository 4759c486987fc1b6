"""What the engine's guarantees are tested with: a clock of the database that can be moved, worker processes that can be killed."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from suture.engine import Database, Engine
from suture.engine.claim import Claim
from suture.engine.ids import uuid7
from suture.engine.records import Execution
from tests.nursery import Nursery
from tests.postgres.engine.stage import PACKAGES, Workers, sample_workers


@pytest_asyncio.fixture
async def database(database_url: str, direct_url: str) -> AsyncIterator[Database]:
    async with Database.connect(database_url, direct=direct_url, size=20, packages=PACKAGES) as database:
        yield database


@pytest.fixture
def engine(database: Database) -> Engine:
    return Engine(database)


@pytest_asyncio.fixture
async def psql(direct_url: str) -> AsyncIterator["asyncpg.Connection[Any]"]:
    """A connection as a person at psql has it."""
    connection = await asyncpg.connect(direct_url)
    yield connection
    await connection.close()


@pytest.fixture
def pass_time(psql: "asyncpg.Connection[Any]") -> Callable[[float], Awaitable[None]]:
    """Let the database's time pass for everybody: every stored moment lies further back."""

    async def pass_(seconds: float) -> None:
        columns = await psql.fetch(
            """select c.relname as table, a.attname as column
               from pg_attribute a join pg_class c on c.oid = a.attrelid
               where c.relnamespace = 'suture'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
                 and c.relname <> 'workflow_history' -- what has ended lies in its month, and stays there
                 and a.atttypid = 'timestamptz'::regtype and not a.attisdropped"""
        )
        async with psql.transaction():
            await psql.execute("set local session_replication_role = replica")  # past the triggers: nobody changes anything
            for table in {row["table"] for row in columns}:
                moved = ", ".join(
                    f"{r['column']} = {r['column']} - make_interval(secs => {seconds})" for r in columns if r["table"] == table
                )
                await psql.execute(f"update suture.{table} set {moved}")

    return pass_


@pytest.fixture
def take(database: Database) -> Callable[..., Awaitable[Claim]]:
    """Claim the most urgent due execution, as a worker does."""

    async def take_(name: str = "sample", *, owner: UUID | None = None, lease: float = 30.0, queue: str = "default") -> Claim:
        owner = owner or uuid7()
        known = [row["workflow"] for row in await _workflows(database)]
        rows = await database.many(
            "claim", owner, [queue], known, [99] * len(known), 1, timedelta(seconds=lease), f"worker {name}", 99, False
        )
        assert rows, "nothing is due"
        return Claim(database, Execution.from_row(rows[0]), owner, f"worker {name}")

    return take_


async def _workflows(database: Database) -> list[Any]:
    async with database.session() as session:
        return list(await session.connection.fetch("select distinct workflow from suture.workflow_executions"))


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    with sample_workers() as nursery:
        yield nursery


@pytest.fixture
def workers(nursery: Nursery, database_url: str, direct_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(nursery, database_url, tmp_path, direct=direct_url)
    yield workers
    for worker in workers.started:
        with suppress(ProcessLookupError):
            worker.kill()
