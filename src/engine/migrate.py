"""Brings the database up to this version: applies the migrations that it lacks, in order, each in its own transaction.

Forward only: expand before the new code runs, contract a release later, so that old and new workers run side by side. Each transaction
takes the lock anew and looks again: between two of them a pooler may lend the session, and its lock, to somebody else.
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import NamedTuple

import asyncpg

from suture.engine.address import check
from suture.engine.database import reaching, translated
from suture.errors import ConfigError

# Two migrations that start at once: the second waits here for each step of the first, and then finds it done.
_LOCK = "select pg_advisory_xact_lock(hashtextextended('suture.migrate', 0))"
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


async def migrate(url: str, *, packages: Sequence[str] = ("suture.engine", "suture.remediation")) -> list[str]:
    """Apply what is missing and return its names, in order; empty when the database is current.

    Raises: DatabaseUnavailable. ConfigError when an applied migration is not the one of this version, or `url` is no address.
    """
    check(url)
    with reaching(url):
        connection = await asyncpg.connect(url, timeout=10, statement_cache_size=0)  # nothing stays prepared, whoever is between
    with translated():
        try:
            async with _alone(connection):
                await connection.execute(_LEDGER)
            return [m.name for m in known(*packages) if await _apply(connection, m)]
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


async def _apply(connection: "asyncpg.Connection[asyncpg.Record]", migration: Migration) -> bool:
    async with _alone(connection):
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
