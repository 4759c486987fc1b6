"""I12 and I15: what is told between relatives, and who has none, costs the same whatever the table holds."""

import json

import pytest

from suture.engine import Database, Run, workflow
from suture.engine.ids import uuid7
from suture.engine.statements import load
from tests.postgres.engine.stage import ended, eventually, running

STATEMENTS = load("suture.engine")
ROWS = 20_000


@pytest.fixture
async def crowded(psql):
    """Twenty thousand strangers, some of whom are somebody's children, and a few tidings."""
    parent = uuid7()
    await psql.execute("set session_replication_role = replica")
    await psql.execute(
        f"""insert into suture.workflow_executions (id, workflow, input, parent_id, parent_step, status, finished_at, changed_by)
            select gen_random_uuid(), 'w', 'null', case when n % 100 = 0 then case when n = 100 then $1 else gen_random_uuid() end end,
                   's', case when n % 2 = 0 then 'enqueued' else 'completed' end, case when n % 2 = 1 then now() end, 'test'
            from generate_series(1, {ROWS}) n""",
        parent,
    )
    await psql.execute(
        f"""insert into suture.child_results (parent_id, step_id, item, child_id, status)
            select gen_random_uuid(), 's', n, gen_random_uuid(), 'completed' from generate_series(1, {ROWS}) n"""
    )
    await psql.execute("insert into suture.tidings (kind, parent_id) values ('parent ended', $1)", parent)
    await psql.execute("set session_replication_role = origin")
    await psql.execute("analyze")
    return parent


async def read(psql, name: str, *args: object) -> dict[str, int]:
    """Rows that each scan of the statement read, by the index that served it."""
    async with psql.transaction():
        text = await psql.fetchval(f"explain (analyze, format json) {STATEMENTS[name].text}", *args)
    found: dict[str, int] = {}

    def walk(node: dict) -> None:
        if "Scan" in node["Node Type"] and "Relation Name" in node:
            key = node.get("Index Name", f"all of {node['Relation Name']}")
            found[key] = found.get(key, 0) + round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for inner in node.get("Plans", ()):
            walk(inner)

    walk(json.loads(text)[0]["Plan"])
    return found


async def test_orphans_are_found_by_their_parent(psql, crowded):
    found = await read(psql, "cancel_orphans", 500)
    assert "executions_children" in found
    assert "all of workflow_executions" not in found
    assert sum(found.values()) < 50


@pytest.mark.parametrize(("name", "rest"), [("find_child_result", ["s"]), ("child_results", [["s"]])])
async def test_results_are_found_by_the_parent(psql, crowded, name, rest):
    assert sum((await read(psql, name, crowded, *rest)).values()) < 50


async def test_an_index_holds_only_children_that_live(psql, crowded):
    await psql.execute("reindex index suture.executions_children")  # which counts; what ANALYZE knows is an estimate
    assert await psql.fetchval("select reltuples from pg_class where relname = 'executions_children'") == ROWS // 100


async def test_the_triggers_of_relatives_are_not_called_for_who_has_none(engine, direct_url, psql):
    @workflow("w")
    async def w(run: Run, _: None) -> None: ...

    await psql.execute(f"alter database {await psql.fetchval('select current_database()')} set track_functions = 'pl'")

    @workflow("parent")
    async def parent(run: Run, _: None) -> None:
        await (await run.start("w", None)).result()

    tasks = [*await engine.enqueue_many("w", [None] * 50, actor="test"), (await engine.enqueue("parent", None, actor="test")).execution.id]
    # What its sessions counted is told when they end: past a pooler, which would keep them.
    async with Database.connect(direct_url) as database, running(database, w, parent):
        for task in tasks:
            await ended(engine, task)
    names = ["tell_parent", "tell_children", "begin_run"]

    async def counted() -> list[tuple[str, int]]:
        rows = await psql.fetch("select funcname, calls from pg_stat_user_functions where funcname = any ($1)", names)
        return [tuple(row) for row in rows]

    assert await eventually(counted) == [("tell_parent", 1)]
