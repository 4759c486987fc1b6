"""Every statement is prepared on a real server, has a caller, and the hot ones read what they take and not the table."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

import suture
from suture.engine.ids import uuid7
from suture.engine.statements import load
from tests.postgres.engine.stage import PACKAGES

SOURCE = Path(suture.__file__).parent
STATEMENTS = load(*PACKAGES)
ROWS = 10_000
COLUMNS = "select attname from pg_attribute where attrelid = 'suture.workflow_history'::regclass and attnum > 0 order by attnum"


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_is_understood_by_the_server(psql, name):
    statement = await psql.prepare(STATEMENTS[name].text)
    assert bool(statement.get_attributes()) or STATEMENTS[name].cardinality == "none"


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_has_a_caller(name):
    code = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert re.search(rf'"{name}"', code), f"nobody calls {name}: remove it"


def test_every_parameter_of_a_statement_is_told():
    for package in PACKAGES:
        for path in (SOURCE / package.removeprefix("suture.") / "sql").glob("*.sql"):
            for block in re.split(r"^-- name: ", path.read_text(), flags=re.MULTILINE)[1:]:
                comment = "\n".join(line for line in block.splitlines() if line.startswith("--"))
                body = "\n".join(line for line in block.splitlines() if not line.startswith("--"))
                used, told = set(re.findall(r"\$\d+", body)), set(re.findall(r"\$\d+", comment))
                assert used == told, f"{path.name}: {block.split()[0]}"


@pytest.fixture
async def crowded(psql):
    """Some ten thousand rows in each place where rows gather."""
    owner = uuid7()
    await psql.execute("set session_replication_role = replica")
    await psql.execute(
        f"""insert into suture.workflow_executions
                (id, workflow, queue, priority, status, input, input_digest, owner_id, lease_expires, run_at, finished_at, changed_by)
            select gen_random_uuid(), 'w', 'q' || n % 3, n % 5, s.status, 'null', '',
                   case when s.status = 'running' then $1::uuid end, case when s.status = 'running' then now() + interval '1 h' end,
                   now() - interval '1 h', case when s.status = 'completed' then now() end, 'test'
            from generate_series(1, {ROWS}) n,
                 lateral (select case when n % 100 = 0 then 'running' when n % 10 < 4 then 'enqueued' when n % 10 < 6 then 'waiting'
                                      else 'completed' end as status) s""",
        owner,
    )
    columns = ", ".join(row[0] for row in await psql.fetch(COLUMNS))
    ended = columns.replace("id,", "gen_random_uuid(),", 1)
    await psql.execute(
        f"insert into suture.workflow_history ({columns}) select {ended} from suture.workflow_executions where status = 'completed'"
    )
    await psql.execute(
        """insert into suture.workflow_waits (execution_id, step_id, wake_at)
           select id, 'nap', now() + interval '1 day' from suture.workflow_executions where status = 'waiting'"""
    )
    await psql.execute("update suture.workflow_executions set step = 'nap' where status = 'waiting'")
    await psql.execute("set session_replication_role = origin")
    for table in ("workflow_executions", "workflow_history", "workflow_waits"):
        await psql.execute(f"vacuum analyze suture.{table}")
    return owner


async def plan(psql, name, *args, generic=True):
    """The plan of a statement, by default the one for any arguments, as a worker that asks often gets it."""
    await psql.execute(f"set plan_cache_mode = {'force_generic_plan' if generic else 'force_custom_plan'}")
    async with psql.transaction():
        await psql.execute(f"prepare explained as {STATEMENTS[name].text}")
        try:
            rows = await psql.fetch(f"explain (analyze, buffers, costs off, timing off, summary off) execute explained({', '.join(args)})")
        finally:
            await psql.execute("deallocate explained")
    return "\n".join(row[0] for row in rows)


def rows_read(text, index):
    """How many rows the scan of this index gave, over all its loops."""
    found = re.findall(rf"using {index}\b.*?rows=([\d.]+) loops=(\d+)", text)
    assert found, f"{index} does not serve:\n{text}"
    return sum(float(rows) * int(loops) for rows, loops in found)


ANY = "'00000000-0000-7000-8000-000000000001'::uuid"


@pytest.mark.parametrize("generic", [True, False])
async def test_a_claim_reads_what_it_takes_and_not_the_backlog(psql, crowded, generic):
    args = (ANY, "array['q0','q1']", "array['w']", "array[1]", "10", "interval '30 s'", "'worker'", "3", "false")
    text = await plan(psql, "claim", *args, generic=generic)
    assert "Seq Scan on workflow_executions" not in text
    assert rows_read(text, "executions_due") <= 2 * 10
    assert "executions_suspect" in text or "never executed" in text
    assert sum(map(int, re.findall(r"Rows Removed by Filter: (\d+)", text))) < 100


async def test_a_heartbeat_goes_by_the_key_and_changes_no_index(psql, crowded, database):
    held = await psql.fetch("select id, epoch from suture.workflow_executions where status = 'running'")
    ids = ", ".join(f"'{row['id']}'" for row in held)
    epochs = ", ".join("0" for _ in held)
    text = await plan(
        psql,
        "beat",
        f"'{crowded}'",
        f"array[{ids}]::uuid[]",
        f"array[{epochs}]::bigint[]",
        "array_fill('s'::text, array[100])",
        "interval '30 s'",
    )
    assert "Seq Scan on workflow_executions" not in text
    await psql.execute("select pg_stat_force_next_flush()")
    before = await psql.fetchrow("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'workflow_executions'")
    for _ in range(3):
        assert len(await database.many("beat", crowded, [r["id"] for r in held], [0] * 100, ["s"] * 100, timedelta(seconds=30))) == 100
    async with database.session() as session:
        await session.connection.execute("select pg_stat_force_next_flush()")
    await psql.execute("select pg_stat_clear_snapshot()")
    after = await psql.fetchrow("select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'workflow_executions'")
    updated, hot = after[0] - before[0], after[1] - before[1]
    assert updated == 0 or hot >= 0.9 * updated


async def test_recovery_looks_at_what_runs_alone(psql, crowded):
    text = await plan(psql, "recover", "interval '1 s'", "5", "100", "'recovery'", "interval '0'")
    assert "Seq Scan on workflow_executions" not in text
    assert "executions_running" in text


async def test_waking_looks_at_what_is_due_alone(psql, crowded):
    text = await plan(psql, "wake_due", "100", "'recovery'")
    assert rows_read(text, "workflow_waits_default_wake_at_idx") == 0


async def test_deadlines_are_found_by_their_index(psql, crowded):
    text = await plan(psql, "expire_overdue", "100", "'recovery'")
    assert "executions_deadline" in text


async def test_an_execution_is_found_by_its_key_wherever_it_is(psql, crowded):
    text = await plan(psql, "get", ANY)
    assert "Seq Scan on workflow_executions" not in text
    assert not re.search(r"Seq Scan on workflow_history_\d+ .*rows=\d{3}", text)


@pytest.mark.parametrize("before", ["null", "'7fffffff-0000-7000-8000-000000000001'::uuid"])
async def test_a_page_reads_a_page_in_the_order_of_the_keys(psql, crowded, before):
    text = await plan(psql, "page", "null", "null", "null", "null", before, "null", "null", "50")
    assert rows_read(text, "workflow_executions_pkey") <= 51
    assert "Sort Key" not in text or "Merge Append" in text


async def test_an_operation_key_is_looked_up_in_both_tables_by_index(psql, crowded):
    text = await plan(psql, "last_with_key", "'k'")
    assert "executions_key" in text
    assert "Seq Scan on workflow_executions" not in text


HOT = {
    "enqueue": f"{ANY}, 'w', 1, 'q0', 0, 'null', null, null, '{{}}', null, null, null, 'test', 'test', null",
    "claim": f"{ANY}, array['q0','q1'], array['w'], array[1], 10, interval '30 s', 'worker', 3, false",
    "checkpoint": f"{ANY}, array[{ANY}], array[1], array['s'], array['step'], array['null'::jsonb], array[1], array[now()]",
    "checkpoint_again": f"{ANY}, array[{ANY}], array[1], array['s'], array['step'], array['null'::jsonb], array[1], array[now()]",
    "complete": f"{ANY}, array[{ANY}], array[1], array['null'::jsonb], 'worker'",
    "beat": f"{ANY}, array[{ANY}], array[1], array['s'], interval '30 s'",
    "mark_absent": "interval '0'",
    "recover": "interval '1 s', 5, 100, 'recovery', interval '0'",
    "wake_due": "100, 'recovery'",
    "expire_overdue": "100, 'recovery'",
    "due_schedules": "100, true",
    "load_checkpoints": ANY,
}


@pytest.mark.parametrize("name", HOT)
async def test_what_is_asked_all_the_time_does_not_read_the_history(psql, crowded, name):
    text = await plan(psql, name, HOT[name])
    assert "workflow_history" not in text
    assert "Seq Scan on workflow_executions" not in text
    assert "timeline" not in text.split("Trigger")[0]
