"""I17: a migration is applied while workers of the version before it run; they go on, and none of their work is lost or punished."""

import asyncio
from datetime import timedelta

import pytest

from suture.engine import Limits, Run, migrate, workflow
from suture.engine.lease import tidy
from suture.engine.statements import load
from suture.errors import DatabaseUnavailable
from tests.postgres.engine.sample_worker import family, noted
from tests.postgres.engine.stage import PACKAGES, QUICK, ended, eventually, reached, running

NEXT = "tests.postgres.engine.next_release"
WAITS = "select exists (select from pg_locks where not granted and relation = 'suture.workflow_executions'::regclass)"


async def upgrade(url: str) -> None:
    assert await migrate(url, packages=(*PACKAGES, NEXT)) == [f"{NEXT}/0001_expand_all"]


@pytest.mark.parametrize("limited", [False, True], ids=["claimed at once", "claimed under limits"])
async def test_worker_processes_go_on_while_the_next_schema_comes(engine, direct_url, database, psql, workers, tmp_path, limited):
    """They have prepared all of their statements by then, and hold executions in the middle of a step."""
    await psql.execute("create table public.ledger (execution_id uuid primary key, amount bigint not null)")
    if limited:
        await engine.queues.limit("default", Limits(concurrency=8), actor="test")
    started = [workers.start(name=f"of-this-release-{n}") for n in range(2)]
    before = [(await engine.enqueue(name, input_, actor="test")).execution.id for name, input_ in MIX]
    await eventually(lambda: held(psql, 2), what="executions in the middle of a step")

    await upgrade(direct_url)

    after = [(await engine.enqueue(name, input_, actor="test")).execution.id for name, input_ in MIX]
    (tmp_path / "released").write_text("")
    for id_ in (*before, *after):
        done = await ended(engine, id_)
        assert (done.status, done.crashes) == ("completed", 0), (done.workflow, done.error)
        assert done.attempt <= 2, "it was tried again for more than what its workflow stumbles over"
    assert [worker.alive for worker in started] == [True, True]
    assert await psql.fetchval("select count(*) from public.ledger") == 2
    assert {row[0] for row in await psql.fetch("select distinct of_next_release from suture.executions")} == {"next"}
    await psql.execute("set session_replication_role = replica; update suture.workflow_executions set finished_at = now() - interval '2 h'")
    await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1))
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 0
    assert (await engine.get(before[0])).status == "completed"


MIX = [("three-steps", None), ("three-steps", None), ("family", None), ("effects", None), ("billing", 5)]


async def held(psql, count: int) -> bool:
    return await psql.fetchval("select count(*) >= $1 from suture.workflow_executions where status = 'running' and step = 'hold'", count)


async def test_no_statement_s_rows_change_their_shape(direct_url, psql):
    """Or a statement that is prepared already would fail once in a caller's transaction, on each connection."""

    async def shapes() -> dict[str, list[str]]:
        table = load(*PACKAGES)
        return {name: [a.name for a in (await psql.prepare(one.text)).get_attributes()] for name, one in table.items()}

    before = await shapes()
    await upgrade(direct_url)
    assert await shapes() == before


async def test_waits_sleeps_and_what_is_handed_in_go_on(engine, direct_url, database, psql):
    """Everything that lies in rows across the upgrade, and each door: a key, a bulk, an event, a cancel, a schedule, a dead letter."""

    @workflow("patient", retry=QUICK)
    async def patient(run: Run, _: None) -> list[str]:
        return [await run.wait("first", str, timeout=None), await run.wait("second", str, timeout=None)]

    @workflow("fails")
    async def fails(_run: Run, _: None) -> None:
        raise ValueError

    async with running(database, patient, family, noted, fails, resources=Silent()):
        waiting = (await engine.enqueue("patient", None, actor="test", operation_key="k")).execution.id
        cancelled = (await engine.enqueue("patient", None, actor="test")).execution.id
        failed = (await engine.enqueue("fails", None, actor="test", max_attempts=1)).execution.id
        await engine.schedules.put("hourly", "noted", 1, every=timedelta(hours=1), actor="test")
        await reached(engine, waiting, "waiting")
        await reached(engine, cancelled, "waiting")
        await ended(engine, failed)
        await engine.emit(waiting, "first", "a", actor="test")
        await upgrade(direct_url)
        assert not (await engine.enqueue("patient", None, actor="test", operation_key="k")).created
        ids = await engine.enqueue_many("noted", list(range(20)), actor="test")
        await engine.emit(waiting, "second", "b", actor="test")
        await engine.cancel(cancelled, actor="test")
        again = await engine.requeue(failed, actor="test")
        await engine.schedules.run_now("hourly", actor="test")
        assert (await ended(engine, waiting)).output == ["a", "b"]
        assert (await ended(engine, cancelled)).status == "cancelled"
        assert (await ended(engine, again.id)).status == "error"
        assert [(await ended(engine, id_)).status for id_ in ids] == ["completed"] * 20
        parent = (await engine.enqueue("family", None, actor="test")).execution.id
        assert (await ended(engine, parent)).output == [20, 2, 4, 6]
    assert [move.to_status for move in await engine.timeline(waiting)][-1] == "completed"


class Silent:
    def note(self, _: str) -> None:
        pass


async def test_a_long_transaction_is_waited_for_and_holds_up_nobody_behind_the_upgrade(engine, direct_url, psql):
    """Whoever wants a table stands behind who waits for its lock: so the upgrade does not wait long at once."""
    async with engine.transaction() as session:
        await session.connection.execute("lock table suture.workflow_executions in access share mode")  # as any reader does
        upgrading = asyncio.create_task(upgrade(direct_url))
        for _ in range(2):
            await eventually(lambda: psql.fetchval(WAITS), what="the wait of the upgrade")
            await engine.enqueue("anything", None, actor="test")
        assert not upgrading.done()
    await upgrading
    assert len(await engine.page()) == 2


async def test_a_lock_that_is_never_given_is_told_and_nothing_is_applied(engine, direct_url, psql):
    async with engine.transaction() as session:
        await engine.enqueue("anything", None, actor="test", session=session)
        with pytest.raises(DatabaseUnavailable, match="0001_expand_all got no lock on a table for 0 s: a transaction holds it"):
            await migrate(direct_url, packages=(*PACKAGES, NEXT), patience=0)
    assert await psql.fetchval("select to_regclass('suture.of_next_release')") is None
    await upgrade(direct_url)
