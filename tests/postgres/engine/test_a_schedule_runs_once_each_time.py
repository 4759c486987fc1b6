"""A schedule enqueues its workflow once each time it is due, whoever looks, and makes up for what was missed once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from suture.engine.schedules import enqueue_due
from suture.errors import InvalidRequest, NotFound, PayloadUnfit

HOUR = timedelta(hours=1)


async def statuses(engine):
    return [execution.status for execution in await engine.page(workflow="report")]


async def test_of_many_that_look_at_once_one_enqueues(engine, database, pass_time):
    await engine.schedule("hourly", "report", {"of": "shop"}, every=HOUR, actor="ann")
    assert await enqueue_due(database) == 0
    await pass_time(3601)

    looks = await asyncio.gather(*(enqueue_due(database) for _ in range(8)))

    assert sum(looks) == 1
    (execution,) = await engine.page(workflow="report")
    assert (execution.input, execution.labels["schedule"]) == ({"of": "shop"}, "hourly")
    assert (await engine.timeline(execution.id))[0].actor == "schedule"


async def test_what_was_missed_is_made_up_for_once_and_the_rhythm_stays(engine, database, pass_time):
    await engine.schedule("hourly", "report", None, every=HOUR, actor="ann")
    before = (await engine.schedules())[0].next_at
    await pass_time(5 * 3600 + 60)

    assert await enqueue_due(database) == 1
    assert await enqueue_due(database) == 0

    after = (await engine.schedules())[0].next_at
    assert after == before - timedelta(seconds=5 * 3600 + 60) + 5 * HOUR
    assert after > datetime.now(UTC)


async def test_a_slow_run_is_not_run_twice_at_a_time(engine, database, pass_time, take):
    await engine.schedule("hourly", "report", None, every=HOUR, actor="ann")
    await pass_time(3601)
    await enqueue_due(database)
    claim = await take()
    await pass_time(3601)
    await enqueue_due(database)
    assert await statuses(engine) == ["running"]

    # its lease has run out meanwhile, and nobody took it: it is still its owner's
    await claim.complete(None)
    await pass_time(3601)
    await enqueue_due(database)

    assert await statuses(engine) == ["enqueued", "completed"]


async def test_the_same_again_moves_nothing_and_another_interval_starts_anew(engine, pass_time):
    await engine.schedule("hourly", "report", None, every=HOUR, actor="ann")
    await pass_time(600)
    before = (await engine.schedules())[0].next_at

    await engine.schedule("hourly", "report", None, every=HOUR, actor="bob")
    assert (await engine.schedules())[0].next_at == before

    await engine.schedule("hourly", "report", None, every=2 * HOUR, actor="bob")
    assert (await engine.schedules())[0].next_at > before + HOUR


async def test_a_schedule_can_be_dropped_and_what_is_wrong_is_refused_at_the_door(engine):
    await engine.schedule("hourly", "report", None, every=HOUR, actor="ann")
    await engine.unschedule("hourly")
    assert await engine.schedules() == []

    with pytest.raises(NotFound, match="'hourly'"):
        await engine.unschedule("hourly")
    with pytest.raises(InvalidRequest, match=r"every 0.5 s"):
        await engine.schedule("quick", "report", None, every=timedelta(seconds=0.5), actor="ann")
    with pytest.raises(PayloadUnfit, match="NUL"):
        await engine.schedule("odd", "report", "\0", every=HOUR, actor="ann")
