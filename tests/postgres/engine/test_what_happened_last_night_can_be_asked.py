"""The history answers what ended, how long it took and why it failed: by methods, and by views for whoever sits at psql."""

from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pytest

from suture.engine import NEVER, Run, workflow
from suture.engine.lease import tidy
from suture.errors import PermanentError, TemporaryError
from tests.postgres.engine.stage import QUICK, ended, running

VIEWS = ("ended", "finished_steps", "failures_last_day", "workflows_last_day", "steps_last_day")
TRIES = {"mail": 0}


@workflow("order", retry=NEVER)
async def order(run: Run, number: int) -> int:
    async def reserve() -> int:
        return number

    async def pay() -> None:
        if number >= 3:
            raise PermanentError(f"no money for {number}")

    await run.step("reserve", reserve)
    await run.step("pay", pay)
    return number


@workflow("mail", retry=QUICK)
async def mail(run: Run, _: None) -> None:
    async def send() -> None:
        TRIES["mail"] += 1
        if TRIES["mail"] < 3:
            raise TemporaryError("away", delay=timedelta(0))

    await run.step("send", send)
    await run.sleep("rest", timedelta(seconds=0.01))


@pytest.fixture(params=["live", "archived"])
async def night(engine, database, psql, request):
    """Five orders, of which two fail, and a mail that needs three tries; then the same long before."""
    TRIES["mail"] = 0
    async with running(database, order, mail):
        ids = await engine.enqueue_many("order", [1, 2, 3, 4], actor="test")
        ids.append((await engine.enqueue("order", 0, actor="test")).execution.id)
        ids.append((await engine.enqueue("mail", None, actor="test")).execution.id)
        for id_ in ids:
            await ended(engine, id_)
    await psql.execute("set session_replication_role = replica")
    await psql.execute(
        """update suture.operation_outputs set started_at = finished_at - interval '3 s' * (1 + (output #>> '{}')::int)
           where step_id = 'reserve'"""
    )
    if request.param == "archived":
        await tidy(database, keep_ended=timedelta(0), keep_workers=timedelta(days=1))
    return ids


async def test_workflows_are_counted_by_how_they_ended(engine, night):
    mails, orders = await engine.history.workflow_statistics()
    assert (orders.workflow, orders.ended, orders.completed, orders.failed, orders.cancelled) == ("order", 5, 3, 2, 0)
    assert (mails.workflow, mails.ended, mails.retried, mails.crashed) == ("mail", 1, 1, 0)
    assert 0 <= mails.run_p50 <= mails.run_p99 <= mails.run_max < 60
    assert 0 <= orders.queued_p50 <= orders.queued_p95
    assert [found.workflow for found in await engine.history.workflow_statistics(workflow="mail")] == ["mail"]


async def test_steps_are_measured_slowest_first(engine, night):
    reserve = (await engine.history.step_statistics())[0]
    assert (reserve.workflow, reserve.step, reserve.kind, reserve.finished, reserve.retried) == ("order", "reserve", "step", 5, 0)
    assert (reserve.p50, reserve.max) == (9, 15)
    assert 14 < reserve.p95 < 15
    send = next(found for found in await engine.history.step_statistics(workflow="mail") if found.step == "send")
    assert (send.retried, send.attempts) == (1, 3)


async def test_failures_are_grouped_with_an_example(engine, night):
    (failure,) = await engine.history.failures()
    assert (failure.workflow, failure.reason, failure.step, failure.failed) == ("order", "PermanentError", "pay", 2)
    assert failure.last_id in night
    assert failure.last_message.startswith("no money for")
    assert failure.first_at <= failure.last_at


async def test_the_slowest_steps_are_named_one_by_one_without_what_only_waits(engine, night):
    slow = await engine.history.slow_steps(limit=2)
    assert [(found.step, found.seconds) for found in slow] == [("reserve", 15), ("reserve", 12)]
    assert "rest" not in {found.step for found in await engine.history.slow_steps(limit=100)}


async def test_only_what_ended_in_the_time_is_told(engine, night):
    before = datetime.now(UTC) - timedelta(days=2)
    assert await engine.history.workflow_statistics(until=before) == []
    assert await engine.history.failures(since=timedelta(days=1), until=before) == []
    assert await engine.history.step_statistics(since=timedelta(microseconds=1)) == []
    assert await engine.history.slow_steps(until=before) == []


async def test_the_views_say_the_same_and_are_explained(psql, engine, night):
    for view in VIEWS:
        assert await psql.fetch(f"select * from suture.{view}"), view
        assert await psql.fetchval("select obj_description($1::text::regclass)", f"suture.{view}"), view
    history = engine.history
    last_day = {
        "failures_last_day": await history.failures(),
        "workflows_last_day": await history.workflow_statistics(),
        "steps_last_day": await history.step_statistics(),
    }
    for view, told in last_day.items():
        rows = await psql.fetch(f"select * from suture.{view}")
        assert {tuple(row) for row in rows} == {attrgetter(*rows[0].keys())(found) for found in told}, view
