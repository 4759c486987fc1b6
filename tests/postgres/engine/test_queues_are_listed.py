"""Queues are listed with what is in them and what they may do; a change says who made it and why."""

from datetime import timedelta

from suture.engine import Limits, Rate
from suture.engine.queues import Queue
from tests.postgres.engine.limits import claim, many


async def test_a_queue_tells_what_is_in_it(engine, database, pass_time):
    await many(engine, 3)
    await pass_time(90)
    now = (await database.one("ping"))["at"]
    await many(engine, 2, run_at=now + timedelta(hours=1))
    row = (await claim(database, 2))[0]
    assert await database.maybe("suspend", row["id"], row["owner_id"], row["epoch"], "nap", "worker", "sleeps")
    await engine.enqueue_many("w", [None] * 4, actor="test", queue="keyed", concurrency_keys=["k"] * 4)
    keyed, default = sorted(await engine.queues.list(), key=lambda q: q.name != "keyed")
    assert (default.name, default.due, default.delayed, default.running, default.waiting, default.parked) == ("default", 1, 2, 1, 1, 0)
    assert timedelta(seconds=90) <= default.oldest_due < timedelta(seconds=150)
    assert (keyed.due, keyed.parked) == (1, 3)
    assert (default.limits, default.paused, default.changed_at) == (Limits(), False, None)


async def test_a_change_is_told_with_its_author_and_reason(engine):
    limits = Limits(concurrency=4, per_key=2, rate=Rate(5, timedelta(minutes=1), 9))
    await engine.queues.limit("empty", limits, actor="anna", reason="the cluster is small")
    queue = await engine.queues.get("empty")
    assert (queue.limits, queue.changed_by, queue.reason, queue.paused) == (limits, "anna", "the cluster is small", False)
    await engine.queues.pause("empty", actor="bert", reason="freeze")
    (queue,) = await engine.queues.list()
    assert (queue.paused, queue.limits, queue.changed_by, queue.reason) == (True, limits, "bert", "freeze")
    await engine.queues.resume("empty", actor="bert", reason="thaw")
    assert not (await engine.queues.get("empty")).paused
    assert (queue.due, queue.running, queue.oldest_due) == (0, 0, None)


async def test_a_queue_that_nobody_uses_is_empty_and_has_no_limits(engine):
    assert await engine.queues.get("nobody") == Queue("nobody")
    assert await engine.queues.list() == []


async def test_a_burst_is_as_many_as_the_starts_when_it_is_not_given(engine):
    await engine.queues.limit("q", Limits(rate=Rate(5, timedelta(minutes=1))), actor="anna")
    assert (await engine.queues.get("q")).limits.rate == Rate(5, timedelta(minutes=1), 5)
