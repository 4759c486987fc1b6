"""What public reports tell of clocks, time zones and text that broke other engines, done to ours: E17, E18."""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from pydantic import ValidationError

from suture.engine import Database, Retry, Run, workflow
from suture.errors import PayloadUnfit, PermanentError, TemporaryError
from suture.settings import LeaseSettings, WorkerSettings
from tests.postgres.engine.stage import Workers, ended, reached, running, sample_workers

ZONES = {
    "America/New_York": ("2026-03-07 12:00-05", "2026-10-31 12:00-04", "2026-03-08 01:59:57"),
    "Europe/London": ("2026-03-28 12:00+00", "2026-10-24 12:00+01", "2026-10-25 01:59:57"),
}
"""A noon before each change of the clocks, and a moment just before one of them on the clock on the wall."""
ODD = "a\0b \ud800 \U0001f600 \u202egnp.exe"
DEEP = 200


# Time ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", ZONES)
async def test_e17_a_day_of_waiting_is_24_hours_across_a_change_of_the_clocks(database_url, psql, zone):
    """aiocron#28, croner#286: what was due across the change came an hour late or twice. Durations go to Postgres, which has a zone."""
    name = await psql.fetchval("select current_database()")
    await psql.execute(f"alter database {name} set timezone = '{zone}'")
    async with Database.connect(database_url) as database, database.session() as session:
        for noon in ZONES[zone][:2]:
            took = await session.connection.fetchval(
                f"select extract(epoch from timestamptz '{noon}' + $1 - timestamptz '{noon}')::int", timedelta(hours=24)
            )
            assert took == 24 * 3600


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.skipif(not shutil.which("faketime"), reason="faketime, which moves a process' clock, is missing")
async def test_e17_a_worker_on_whose_wall_the_clock_is_set_waits_as_long_as_ever(engine, database_url, psql, tmp_path: Path, zone):
    """Its process lives in the minute of the change: pauses, sleeps and leases are the database's and the monotonic clock's."""
    with sample_workers(under=("faketime", ZONES[zone][2]), env={"TZ": zone}) as nursery:
        workers = Workers(nursery, database_url, tmp_path)
        before, began = await _commits(psql), asyncio.get_running_loop().time()
        task = (await engine.enqueue("naps", None, actor="test")).execution
        workers.start(lease=3.0, heartbeat=1.0)
        for _ in range(240):
            await asyncio.sleep(0.5)  # seldom: our own looks are counted, too
            if (done := await engine.get(task.id)).finished_at:
                break
        assert (done.status, done.attempt, done.crashes) == ("completed", 2, 0)
        assert done.started_at
        assert done.finished_at
        took = (done.finished_at - done.started_at).total_seconds()
        assert 4 <= took < 20  # a pause of 1 s, a sleep of 2 s, a time-out of 1 s, on a machine that is busy
        made, watched = await _commits(psql) - before, asyncio.get_running_loop().time() - began
        assert made / watched < 60, "no busy loop"


async def _commits(psql) -> int:
    await psql.execute("select pg_stat_clear_snapshot()")
    return await psql.fetchval("select xact_commit + xact_rollback from pg_stat_database where datname = current_database()")


async def test_e17_negative_and_zero_delays_end_at_once_and_spin_nowhere(engine, database, psql):
    """pyncette#10: a negative time-out became one millisecond, for ever."""
    tries, over = [], asyncio.Event()

    async def stumbles() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise TemporaryError("not yet", delay=timedelta(seconds=-5))

    @workflow("hasty", retry=Retry(attempts=5, initial=timedelta(seconds=-1)))
    async def hasty(run: Run, _: None) -> str:
        await run.step("stumbles", stumbles)
        await run.sleep("negative", timedelta(hours=-1))
        await run.sleep("none", timedelta(0))
        waited = await run.wait("nobody", str, timeout=timedelta(seconds=-3))
        over.set()
        return str(waited)

    before = await _commits(psql)
    task = (await engine.enqueue("hasty", None, actor="test", run_at=datetime(2020, 1, 1, tzinfo=UTC))).execution
    async with running(database, hasty):
        await asyncio.wait_for(over.wait(), 30)  # our own looks are counted, too
        done = await ended(engine, task.id)
        assert (done.output, done.attempt, len(tries)) == ("None", 3, 3)
        await asyncio.sleep(1)
    assert await _commits(psql) - before < 150


@pytest.mark.parametrize(
    ("settings", "given"), [(LeaseSettings, {"duration": -30}), (LeaseSettings, {"heartbeat": 0}), (WorkerSettings, {"drain": -1})]
)
def test_e17_a_setting_that_is_no_time_is_refused_with_its_name(settings, given):
    with pytest.raises(ValidationError, match=f"{next(iter(given))}\n.*greater than"):
        settings(**given)


async def test_e17_every_moment_in_the_tables_has_its_zone(psql):
    loose = await psql.fetch(
        """select table_name, column_name from information_schema.columns
           where table_schema = 'suture' and data_type in ('timestamp without time zone', 'date', 'time without time zone')"""
    )
    assert loose == []


# Text ------------------------------------------------------------------------------------------------------------------------


async def test_e18_work_that_is_done_is_kept_whatever_text_it_gives(engine, database):
    """hatchet#2023 and four more: jsonb has no NUL, the write came after the work, and finished work was marked as failed.

    Kept exactly, which is more than a visible replacement: nothing was replaced, and nothing needs a marker.
    """
    deep: object = ODD
    for _ in range(DEEP):
        deep = [deep]
    value = {"log": ODD, "key \0 \ud800": ODD, "deep": deep, "bytes": b"\x00\xff".decode("latin-1")}

    async def read_log() -> dict[str, object]:
        return value

    @workflow("reads")
    async def reads(run: Run, _: None) -> dict[str, object]:
        await run.step("read", read_log)
        await run.wait("go", int)  # its next run reads the checkpoint
        return await run.step("read again", read_log)

    task = (await engine.enqueue("reads", None, actor="test")).execution
    async with running(database, reads):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", 1, actor="test")
        done = await ended(engine, task.id)
    assert (done.status, done.attempt) == ("completed", 1)
    assert done.output == value
    assert [c.output for c in await engine.checkpoints(task.id) if c.kind == "step"] == [value, value]


async def test_e18_an_error_whose_text_postgres_cannot_hold_is_told_with_a_visible_replacement(engine, database):
    async def breaks() -> None:
        raise PermanentError(f"the log said {ODD}")

    @workflow("breaks")
    async def fails(run: Run, _: None) -> None:
        await run.step("break", breaks)

    task = (await engine.enqueue("breaks", None, actor="test")).execution
    async with running(database, fails):
        done = await ended(engine, task.id)
    assert (done.status, done.attempt, done.crashes) == ("error", 1, 0)
    assert done.error.message == "the log said a\N{REPLACEMENT CHARACTER}b ? \U0001f600 \u202egnp.exe"
    (letter,) = await engine.dead_letters()
    assert letter.error.message == done.error.message


@pytest.mark.parametrize("value", ["a\0b", {"a\0": 1}, {"a": ["\ud800"]}], ids=["text", "key", "half a surrogate pair"])
async def test_e18_what_comes_from_outside_is_refused_before_any_work_with_its_place(engine, psql, value):
    """At the engine's own door; a webhook's text is replaced before it comes here (see the table)."""
    with pytest.raises(PayloadUnfit, match="input"):
        await engine.enqueue("w", value, actor="test")
    task = (await engine.enqueue("w", None, actor="test")).execution
    with pytest.raises(PayloadUnfit, match="payload"):
        await engine.emit(task.id, "go", value, actor="test")
    assert await psql.fetchval("select count(*) from suture.events") == 0


async def test_e18_postgres_itself_would_have_refused_it(psql):
    """What the others ran into, and why the engine tags such text."""
    with pytest.raises(asyncpg.UntranslatableCharacterError):
        await psql.fetchval("""select '"\\u0000"'::jsonb""")
