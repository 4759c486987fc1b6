"""I17: two migrations at once do the work once; what was applied never changes; a current database is left alone."""

import asyncio

import asyncpg
import pytest

from suture.engine import migrate
from suture.engine.migrate import known
from suture.errors import ConfigError
from tests.postgres.engine.stage import PACKAGES


async def test_several_at_once_apply_each_migration_once(empty_database_url):
    applied = await asyncio.gather(*(migrate(empty_database_url) for _ in range(4)))
    assert sorted(name for names in applied for name in names) == sorted(m.name for m in known(*PACKAGES))


async def test_a_second_run_has_nothing_to_do(empty_database_url):
    assert await migrate(empty_database_url) == [m.name for m in known(*PACKAGES)]
    assert await migrate(empty_database_url) == []


async def test_a_migration_that_was_applied_with_another_content_is_refused(database_url, psql):
    await psql.execute("update suture.migrations set digest = 'another' where name like 'suture.engine/%'")
    with pytest.raises(ConfigError, match="an applied migration never changes, add a new one"):
        await migrate(database_url)


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty_database_url):
    connection = await asyncpg.connect(empty_database_url)
    await connection.execute("create schema suture; create table suture.workers (id int)")  # in its way
    with pytest.raises(asyncpg.DuplicateTableError):
        await migrate(empty_database_url)
    tables = await connection.fetch("select tablename from pg_tables where schemaname = 'suture' order by 1")
    assert [row[0] for row in tables] == ["migrations", "workers"]
    await connection.execute("drop table suture.workers")
    assert await migrate(empty_database_url)
    await connection.close()
