"""Brings the database up to this version: applies the migrations that it lacks, in order, each in its own transaction.

Forward only: expand before the new code runs, contract a release later, so that old and new workers run side by side. Each transaction
takes the lock anew and looks again: between two of them a pooler may lend the session, and its lock, to somebody else.

Workers go on meanwhile. A table's lock that is not to be had soon is given up for a while: whoever comes later stands behind who waits for
it, and a migration of several tables and a worker may each hold what the other wants.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import NamedTuple

import asyncpg

from suture.engine.address import check
from suture.engine.database import reaching, translated
from suture.errors import ConfigError, DatabaseUnavailable

log = logging.getLogger(__name__)

# Two migrations that start at once: the second waits here for each step of the first, and then finds it done.
_LOCK = "select pg_advisory_xact_lock(hashtextextended('suture.migrate', 0))"
_IMPATIENTLY = "set local lock_timeout = '1s'"
_NO_LOCK = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
_PATIENCE = 300.0  # seconds
_LEDGER = """
create schema if not exists suture;
create table if not exists suture.migrations
    (name text primary key, digest text not null, applied_at timestamptz not null default clock_timestamp())
"""


class Migration(NamedTuple):
    name: str
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


async def migrate(url: str, *, packages: Sequence[str] = ("suture.engine", "suture.remediation"), patience: float = _PATIENCE) -> list[str]:
    """Apply what is missing and return its names, in order; empty when the database is current. May be run beside workers.

    Raises: DatabaseUnavailable, also when somebody holds a table's lock for `patience` seconds. ConfigError when an applied migration is
    not the one of this version, or `url` is no address.
    """
    check(url)
    with reaching(url):
        connection = await asyncpg.connect(url, timeout=10, statement_cache_size=0)  # nothing stays prepared, whoever is between
    with translated():
        try:
            async with _alone(connection):
                await connection.execute(_LEDGER)
            return [m.name for m in known(*packages) if await _insist(connection, m, patience)]
        finally:
            await connection.close(timeout=10)


def known(*packages: str) -> list[Migration]:
    """All migrations of `packages`, in the order in which they apply."""
    return [
        Migration(f"{package}/{file.name.removesuffix('.sql')}", file.read_text())
        for package in packages
        for file in sorted((files(package) / "sql" / "migrations").iterdir(), key=lambda f: f.name)
        if file.name.endswith(".sql")
    ]


async def _insist(connection: "asyncpg.Connection[asyncpg.Record]", migration: Migration, patience: float) -> bool:
    end = time.monotonic() + patience
    while True:
        try:
            return await _apply(connection, migration)
        except _NO_LOCK as error:
            if time.monotonic() > end:
                raise DatabaseUnavailable(
                    f"Migration {migration.name} got no lock on a table for {patience:g} s: a transaction holds it. End that one "
                    "(pg_stat_activity shows which is old), then run the migration again; nothing of it was applied."
                ) from error
            log.info("a table is in use, tried again soon", extra={"migration": migration.name})
            await asyncio.sleep(random.uniform(0.2, 1))  # noqa: S311 (no secret)


async def _apply(connection: "asyncpg.Connection[asyncpg.Record]", migration: Migration) -> bool:
    async with _alone(connection):
        await connection.execute(_IMPATIENTLY)
        digest = await connection.fetchval("select digest from suture.migrations where name = $1", migration.name)
        if digest == migration.digest:
            return False
        if digest is not None:
            raise ConfigError(
                f"Migration {migration.name} was applied with another content (SHA-256 {digest[:12]}, here {migration.digest[:12]}): "
                "an applied migration never changes, add a new one."
            )
        await connection.execute(migration.text)
        await connection.execute("insert into suture.migrations (name, digest) values ($1, $2)", migration.name, migration.digest)
    return True


@asynccontextmanager
async def _alone(connection: "asyncpg.Connection[asyncpg.Record]") -> AsyncIterator[None]:
    """A transaction that no other migration passes."""
    async with connection.transaction():
        await connection.execute(_LOCK)
        yield
