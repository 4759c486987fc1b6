"""A schedule enqueues its workflow once each time it is due, whoever looks; what was missed, and what is slow, goes by its policies."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from suture.engine import Run, workflow
from suture.engine.schedules import enqueue_due
from suture.errors import InvalidRequest, NotFound, PayloadUnfit
from tests.postgres.engine.stage import ended, eventually, running

HOUR = timedelta(hours=1)
DAYS_AWAY = 3 * 86400 + 60


@pytest.fixture
def put(engine):
    async def put_(name="hourly", input_=None, **options):
        rhythm = {} if "cron" in options else {"every": HOUR}
        return await engine.schedules.put(name, "report", input_, **(rhythm | {"actor": "ann"} | options))

    return put_


async def statuses(engine):
    return [execution.status for execution in await engine.page(workflow="report", limit=500)]


async def test_of_many_that_look_at_once_one_enqueues(engine, database, pass_time, put):
    await put(input_={"of": "shop"}, labels={"team": "red"}, priority=3)
    assert await enqueue_due(database) == 0
    await pass_time(3601)
    due = (await engine.schedules.get("hourly")).next_at

    looks = await asyncio.gather(*(enqueue_due(database) for _ in range(8)))

    assert sum(looks) == 1
    (execution,) = await engine.page(workflow="report")
    assert (execution.input, execution.priority, execution.labels) == ({"of": "shop"}, 3, {"team": "red", "schedule": "hourly"})
    assert execution.operation_key == f"schedule:hourly:{due:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert (await engine.timeline(execution.id))[0].actor == "schedule"
    schedule = await engine.schedules.get("hourly")
    assert (schedule.last_at, schedule.next_at, schedule.fired_count) == (due, due + HOUR, 1)


async def test_each_of_many_times_fires_once_however_many_look_and_how_seldom(engine, database, psql, pass_time, put):
    await put("often", every=timedelta(seconds=20), missed="all", missed_limit=1000, overlap="allow")
    await put("minutely", cron="* * * * *", missed="all", missed_limit=1000, overlap="allow")
    for away in (5, 21, 0, 190, 61, 19, 386, 1):
        await pass_time(away)
        await asyncio.gather(*(enqueue_due(database) for _ in range(3)))
        keys = [row[0] for row in await psql.fetch("select operation_key from suture.workflow_executions where operation_key is not null")]
        assert len(set(keys)) == len(keys)
        # Time passes by moving what is stored, and keys do not move: a later time would get the name of an earlier one.
        await psql.execute("update suture.workflow_executions set operation_key = null, input_digest = null")

    for name in ("often", "minutely"):
        schedule = await engine.schedules.get(name)
        made = await engine.page(labels={"schedule": name}, limit=1000)
        assert len(made) == schedule.fired_count
        assert schedule.missed_count == 0
    assert (await engine.schedules.get("often")).fired_count == (5 + 21 + 190 + 61 + 19 + 386 + 1) // 20


async def test_two_runners_run_each_time_once(engine, database, put):
    @workflow("report")
    async def report(run: Run, _: None) -> str:
        return run.execution.operation_key or ""

    await put("quick", every=timedelta(seconds=1), missed="all", overlap="allow")

    async def fired() -> bool:
        return (await engine.schedules.get("quick")).fired_count >= 3

    async with running(database, report), running(database, report):
        await eventually(fired)
        made = await engine.page(labels={"schedule": "quick"})
        outputs = [(await ended(engine, execution.id)).output for execution in made]
    assert len(set(outputs)) == len(outputs) >= 3
    moments = sorted(datetime.strptime(output[-27:], "%Y-%m-%dT%H:%M:%S.%f%z") for output in outputs)
    assert {later - earlier for earlier, later in pairwise(moments)} == {timedelta(seconds=1)}


async def test_a_worker_that_reads_no_cron_expressions_leaves_them_to_others(database, pass_time, put):
    await put("cron", cron="0 * * * *")
    await put("plain")
    await pass_time(3601)
    async with database.transaction() as session:
        assert [row["name"] for row in await session.many("due_schedules", 10, False)] == ["plain"]
        assert {row["name"] for row in await session.many("due_schedules", 10, True)} == {"plain", "cron"}


async def test_a_look_that_dies_before_its_commit_has_fired_nothing(engine, database, pass_time, put):
    await put()
    await pass_time(3601)
    async with database.session() as session:
        await session.connection.execute("begin; lock table suture.timeline in share mode")
        look = asyncio.create_task(enqueue_due(database))
        while not await session.connection.fetchval("select count(*) from pg_locks where not granted"):
            await asyncio.sleep(0.01)
        look.cancel()
        await asyncio.gather(look, return_exceptions=True)
        await session.connection.execute("rollback")

    assert await statuses(engine) == []
    assert await enqueue_due(database) == 1


@pytest.mark.parametrize(
    ("missed", "made", "counted"),
    [("skip", 0, 73), ("once", 1, 72), ("all", 10, 63)],
)
async def test_a_fleet_that_was_away_for_three_days_follows_the_policy_and_keeps_the_rhythm(
    engine, database, pass_time, put, missed, made, counted
):
    """Due by the hour, the first time an hour after it was put: 72 times in three days and one before."""
    first = (await put(missed=missed, missed_limit=10, overlap="allow")).next_at
    await pass_time(DAYS_AWAY + 3600)

    assert await enqueue_due(database) == made
    assert await enqueue_due(database) == 0

    schedule = await engine.schedules.get("hourly")
    assert (schedule.missed_count, schedule.fired_count) == (counted, made)
    moved = first - timedelta(seconds=DAYS_AWAY + 3600)
    assert schedule.next_at == moved + 73 * HOUR
    assert schedule.next_at > datetime.now(UTC)
    keys = sorted(e.operation_key.removeprefix("schedule:hourly:") for e in await engine.page(workflow="report", limit=500))
    newest = [f"{moved + n * HOUR:%Y-%m-%dT%H:%M:%S.%fZ}" for n in range(73 - made, 73)]
    assert keys == newest


async def test_a_long_absence_of_a_schedule_by_the_minute_is_counted_to_the_last_one(engine, database, pass_time, put):
    first = (await put(cron="* * * * *", missed="all", missed_limit=100, overlap="allow")).next_at
    await pass_time(DAYS_AWAY)

    looks = 0
    while (await engine.schedules.get("hourly")).next_at < datetime.now(UTC):
        await enqueue_due(database)
        looks += 1

    schedule = await engine.schedules.get("hourly")
    assert looks > 1, "one look has a bound"
    assert schedule.fired_count == 100
    # pass_time moved the stored next time, which is no full minute then: it fired as it stood, and the minutes after it
    minutes = int((schedule.last_at - (first - timedelta(seconds=DAYS_AWAY))) // timedelta(minutes=1))
    assert schedule.fired_count + schedule.missed_count in (minutes + 1, minutes + 2)


async def test_a_time_a_few_seconds_late_is_not_missed(engine, database, pass_time, put):
    await put(missed="skip")
    await pass_time(3630)
    assert await enqueue_due(database) == 1


async def test_a_slow_run_is_skipped_over_and_counted(engine, database, pass_time, take, put):
    await put()
    await pass_time(3601)
    await enqueue_due(database)
    claim = await take()
    await pass_time(3601)
    assert await enqueue_due(database) == 0
    assert await statuses(engine) == ["running"]
    assert (await engine.schedules.get("hourly")).skipped_count == 1

    # its lease has run out meanwhile, and nobody took it: it is still its owner's
    await claim.complete(None)
    await pass_time(3601)
    await enqueue_due(database)

    assert await statuses(engine) == ["enqueued", "completed"]


async def test_a_queued_time_waits_for_the_end_of_the_earlier_run(engine, database, pass_time, take, put):
    await put(missed="all", overlap="queue")
    await pass_time(3 * 3600 + 60)

    for _ in range(3):
        assert await enqueue_due(database) == 1
        assert await enqueue_due(database) == 0, "the earlier one lives"
        await (await take()).complete(None)

    assert await enqueue_due(database) == 0
    schedule = await engine.schedules.get("hourly")
    assert (schedule.fired_count, schedule.missed_count, schedule.skipped_count) == (3, 0, 0)


async def test_what_waits_in_a_queue_keeps_no_other_schedule_from_firing(database, pass_time, put):
    await put("first", overlap="queue")
    await pass_time(3601)
    await enqueue_due(database)
    await pass_time(3601)
    await put("second", every=timedelta(seconds=1))
    await pass_time(2)
    assert [row["name"] for row in await database.many("due_schedules", 1, True)] == ["second"]


async def test_allowed_runs_go_side_by_side(engine, database, pass_time, put):
    await put(overlap="allow")
    for _ in range(2):
        await pass_time(3601)
        await enqueue_due(database)
    assert await statuses(engine) == ["enqueued", "enqueued"]


async def test_the_same_again_moves_nothing_and_another_rhythm_starts_anew(engine, pass_time, put):
    await put()
    await pass_time(3 * 3600)  # missed meanwhile: a client that starts again must not forget it
    before = (await engine.schedules.get("hourly")).next_at

    assert (await put(actor="bob", input_={"of": "shop"})).next_at == before
    assert (await put(every=2 * HOUR)).next_at > datetime.now(UTC) + HOUR
    assert (await put(cron="0 0 1 1 *")).next_at.strftime("%m-%d %H:%M") == "01-01 00:00"


async def test_a_paused_one_fires_nothing_and_makes_up_for_nothing(engine, database, pass_time, put):
    await put(missed="all", overlap="allow")
    await engine.schedules.pause("hourly", actor="bob")
    await pass_time(5 * 3600 + 60)
    assert await enqueue_due(database) == 0
    assert (await put(missed="all", overlap="allow")).paused, "to declare it again resumes nothing"

    resumed = await engine.schedules.resume("hourly", actor="bob")

    assert not resumed.paused
    assert await enqueue_due(database) == 0
    assert datetime.now(UTC) < resumed.next_at <= datetime.now(UTC) + HOUR
    assert resumed.missed_count == 0


async def test_a_start_and_an_end_bound_it(engine, database, pass_time, put):
    start = datetime.now(UTC) + timedelta(minutes=30)
    schedule = await put(starts_at=start, ends_at=start + HOUR)
    assert schedule.upcoming(5) == [start, start + HOUR]
    for _ in range(3):
        await pass_time(3600)
        await enqueue_due(database)
    schedule = await engine.schedules.get("hourly")
    assert (schedule.next_at, schedule.fired_count + schedule.skipped_count) == (None, 2)

    assert (await put(ends_at=datetime.now(UTC) + 9 * HOUR)).next_at is not None, "a new end is a new rhythm"


async def test_times_can_be_looked_at_before_anything_is_written(engine):
    start = datetime(2031, 3, 29, 12, tzinfo=UTC)
    times = await engine.schedules.preview(cron="30 2 * * *", time_zone="Europe/Berlin", starts_at=start, count=3)
    assert [f"{time:%d %H:%M}" for time in times] == ["30 01:00", "31 00:30", "01 00:30"]
    assert len(await engine.schedules.preview(every=HOUR, starts_at=start, ends_at=start + HOUR)) == 2
    assert await engine.schedules.all() == []


async def test_jitter_delays_the_execution_and_not_the_rhythm(engine, database, pass_time, put):
    await asyncio.gather(*(put(f"s{n}", jitter=timedelta(minutes=10)) for n in range(20)))
    await pass_time(3601)
    assert await enqueue_due(database) == 20

    delays = [e.run_at - datetime.strptime(e.operation_key[-27:], "%Y-%m-%dT%H:%M:%S.%f%z") for e in await engine.page(workflow="report")]

    assert all(timedelta(0) <= d < timedelta(minutes=10) for d in delays)
    assert len(set(delays)) == 20
    assert max(delays) - min(delays) > timedelta(minutes=3)


async def test_it_is_run_by_hand_whatever_its_rhythm_says(engine, put):
    before = await put(input_={"of": "shop"}, every=24 * HOUR)
    await engine.schedules.pause("hourly", actor="bob")

    ids = [await engine.schedules.run_now("hourly", actor="bob") for _ in range(2)]

    assert [(await engine.get(id_)).input for id_ in ids] == [{"of": "shop"}] * 2
    assert (await engine.timeline(ids[0]))[0].actor == "bob"
    assert (await engine.schedules.get("hourly")).next_at == before.next_at


async def test_one_that_cannot_be_read_is_paused_with_its_reason_and_the_others_fire(engine, database, pass_time, psql, put):
    await put("broken", cron="0 * * * *")
    await put("sound")
    await psql.execute("update suture.schedules set time_zone = 'Mars/Olympus' where name = 'broken'")
    await pass_time(3601)

    assert await enqueue_due(database) == 1

    broken = await engine.schedules.get("broken")
    assert broken.paused
    assert "no time zone 'Mars/Olympus'" in broken.problem
    with pytest.raises(InvalidRequest, match="Mars/Olympus"):
        await engine.schedules.resume("broken", actor="bob")
    mended = await put("broken", cron="0 * * * *", time_zone="Europe/Berlin")
    assert (mended.paused, mended.problem) == (False, None)


async def test_a_schedule_can_be_dropped_and_what_is_wrong_is_refused_at_the_door(engine, put):
    await put()
    await engine.schedules.drop("hourly")
    assert await engine.schedules.all() == []

    for act in (engine.schedules.drop, engine.schedules.get):
        with pytest.raises(NotFound, match="'hourly'"):
            await act("hourly")
    for act in (engine.schedules.pause, engine.schedules.resume, engine.schedules.run_now):
        with pytest.raises(NotFound, match="'hourly'"):
            await act("hourly", actor="ann")
    with pytest.raises(PayloadUnfit, match="NUL"):
        await put("odd", "\0")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"every": timedelta(seconds=0.5)}, r"every 0.5 s"),
        ({"every": HOUR, "cron": "0 * * * *"}, "either an interval"),
        ({"cron": "61 * * * *"}, "bad minute"),
        ({"cron": "* * * * * *"}, "6 fields"),
        ({"cron": "0 0 31 2 *"}, "bad day-of-month"),
        ({"cron": "0 0 * * *", "time_zone": "Berlin"}, "no time zone 'Berlin'"),
        ({"missed": "never"}, "missed is one of"),
        ({"missed": "all", "overlap": "skip"}, "use overlap='queue' or 'allow'"),
        ({"missed_limit": 0}, "missed_limit is 0"),
        ({"jitter": timedelta(seconds=-1)}, "cannot be early"),
        ({"starts_at": datetime(2030, 1, 1)}, "no time zone"),  # noqa: DTZ001
    ],
)
async def test_what_is_wrong_with_a_rhythm_is_said(put, wrong, complaint):
    with pytest.raises(InvalidRequest, match=complaint):
        await put("odd", **wrong)
