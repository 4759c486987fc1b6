"""The schema as it stands in a database, as a page: what the sum of all migrations has made.

`python -m tests.postgres.schema` writes docs/schema.md; a test compares the page with a database, so that a migration shows in a review as
what it changes. Months of partitions come and go and are left out, as is what differs between servers: names of NOT NULL, bodies.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg

from suture.cli.postgres import EmbeddedPostgres
from suture.engine import migrate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schema.md"

_TABLES = """
select c.oid, c.relname as name, c.relkind = 'p' as parted, c.relpersistence = 'u' as unlogged, pg_get_partkeydef(c.oid) as partkey
from pg_class c
where c.relnamespace = 'suture'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
order by c.relname
"""
_COLUMNS = """
select a.attname as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as needed,
       case when a.attidentity <> '' then 'identity' else pg_get_expr(d.adbin, d.adrelid) end as given
from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_CONSTRAINTS = """
select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = $1 and contype in ('c', 'p', 'f', 'u') and conparentid = 0
order by contype <> 'p', conname
"""
_INDEXES = """
select replace(replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON '), 'suture.', '') as text
from pg_index i where i.indrelid = $1 and not i.indisprimary
order by 1
"""
_TRIGGERS = """
select replace(pg_get_triggerdef(t.oid), 'suture.', '') as text
from pg_trigger t where t.tgrelid = $1 and not t.tgisinternal order by t.tgname
"""
_VIEWS = """
select c.relname as name, coalesce(obj_description(c.oid), '') as about,
       (select string_agg(a.attname, ', ' order by a.attnum) from pg_attribute a where a.attrelid = c.oid and a.attnum > 0) as columns
from pg_class c where c.relnamespace = 'suture'::regnamespace and c.relkind = 'v' order by c.relname
"""
_FUNCTIONS = """
select format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) as name, pg_get_function_result(p.oid) as result
from pg_proc p where p.pronamespace = 'suture'::regnamespace order by 1
"""


async def described(connection: "asyncpg.Connection[Any]") -> str:
    """The page."""
    await connection.execute("set search_path = suture")  # what is visible is written without its schema
    lines = ["# The schema", "", "What the migrations add up to, as a database shows it. Written by `make generate`; a test compares.", ""]
    for table in await connection.fetch(_TABLES):
        lines += [line async for line in _table(connection, table)]
    lines += ["## Views", ""]
    lines += [f"- `{v['name']}` ({v['columns']}){': ' + v['about'] if v['about'] else ''}" for v in await connection.fetch(_VIEWS)]
    lines += ["", "## Functions", ""]
    lines += [f"- `{f['name']}` → {f['result']}" for f in await connection.fetch(_FUNCTIONS)]
    return "\n".join(lines) + "\n"


async def _table(connection: "asyncpg.Connection[Any]", table: Any) -> AsyncIterator[str]:
    yield f"## {table['name']}"
    yield ""
    if table["parted"] or table["unlogged"]:
        yield f"Partitioned by {table['partkey']}." if table["parted"] else "Unlogged: empty after a crash."
        yield ""
    yield "| column | type | null | default |"
    yield "| --- | --- | --- | --- |"
    for column in await connection.fetch(_COLUMNS, table["oid"]):
        yield f"| {column['name']} | {column['type']} | {'' if column['needed'] else 'null'} | {_code(column['given'])} |"
    yield ""
    for question in (_CONSTRAINTS, _INDEXES, _TRIGGERS):
        for row in await connection.fetch(question, table["oid"]):
            yield f"- {_code(row['text'])}"
    yield ""


def _code(text: str | None) -> str:
    return f"`{text.replace('suture.', '')}`" if text else ""


async def made() -> str:
    """The page of a new database."""
    async with EmbeddedPostgres.start() as server:
        await migrate(server.url)
        connection = await asyncpg.connect(server.url)
        try:
            return await described(connection)
        finally:
            await connection.close()


if __name__ == "__main__":
    PAGE.write_text(asyncio.run(made()))
