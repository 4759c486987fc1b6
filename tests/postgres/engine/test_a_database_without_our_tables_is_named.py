"""A database that was never migrated, or not yet, is an outage with its remedy: processes wait for it, and people read what to do."""

import pytest

from suture.engine import Database, Engine
from suture.errors import DatabaseUnavailable


async def test_a_statement_on_a_database_without_tables_says_to_migrate(empty_database_url: str) -> None:
    async with Database.connect(empty_database_url) as database:
        with pytest.raises(DatabaseUnavailable, match=r"not of this version .*suture migrate"):
            await Engine(database).health()
