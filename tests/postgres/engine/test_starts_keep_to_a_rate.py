"""I13: a rate is a bucket of tokens in a row: after a quiet time no more starts than the burst; what goes on takes no token."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from suture.engine import Limits, Rate, Run, workflow
from suture.engine.ids import uuid7
from suture.errors import InvalidRequest
from tests.postgres.engine.limits import claim, end, many, running_now
from tests.postgres.engine.stage import eventually, running

STARTS = "from suture.timeline where to_status = 'running'"
ERROR = '{"reason": "Error", "message": ""}'


async def rated(engine, starts, seconds, burst=None, queue="default", **limits):
    await engine.queues.limit(queue, Limits(rate=Rate(starts, timedelta(seconds=seconds), burst), **limits), actor="anna")


async def test_a_full_bucket_gives_its_burst_and_then_one_at_a_time(engine, database, pass_time):
    await many(engine, 50)
    await rated(engine, 6, 600, burst=3)
    assert len(await claim(database, 10)) == 3
    assert await claim(database, 10) == []
    await pass_time(95)
    assert await claim(database, 10) == []
    await pass_time(10)
    assert len(await claim(database, 10)) == 1
    await pass_time(250)
    assert len(await claim(database, 10)) == 2
    await pass_time(36_000)
    assert len(await claim(database, 10)) == 3, "a quiet time saves up no more than the burst"


async def test_thirty_workers_at_once_start_no_more_than_there_are_tokens(engine, database, psql):
    await many(engine, 100)
    await rated(engine, 1, 3600, burst=17)
    await asyncio.gather(*(claim(database, 2) for _ in range(30)))
    await claim(database, 100)
    assert await running_now(psql) == 17


async def test_a_batch_that_another_queue_wins_takes_no_tokens(engine, database):
    await many(engine, 5, queue="rated")
    await many(engine, 5, queue="free", priority=9)
    await rated(engine, 1, 3600, burst=5, queue="rated")
    rows = await claim(database, 6, queues=("free", "rated"))
    assert [row["queue"] for row in rows].count("rated") == 1
    assert len(await claim(database, 10, queues=("rated",))) == 4


async def test_what_is_begun_goes_on_without_a_token(engine, database, psql):
    ids = await many(engine, 3)
    await rated(engine, 1, 3600, burst=3)
    rows = {row["id"]: row for row in await claim(database, 3)}
    await many(engine, 200, priority=50)
    fences = [(rows[id_]["id"], rows[id_]["owner_id"], rows[id_]["epoch"]) for id_ in ids]
    assert await database.maybe("retry", *fences[0], timedelta(0), "failed", None, ERROR, 1, 2, "worker")
    assert await database.many("hand_back", fences[1][1], [fences[1][0]], [fences[1][2]], "worker", "handed back")
    assert await database.maybe("suspend", *fences[2], "nap", "worker", "sleeps")
    await psql.execute("update suture.workflow_executions set status = 'enqueued', run_at = now() where status = 'waiting'")
    assert {row["id"] for row in await claim(database, 10)} == set(ids)
    assert await claim(database, 10) == []


async def test_a_rate_and_a_concurrency_hold_together(engine, database, pass_time):
    await many(engine, 50)
    await rated(engine, 10, 10, burst=10, concurrency=4)
    rows = await claim(database, 20)
    assert len(rows) == 4
    await end(database, *rows)
    assert len(await claim(database, 20)) == 4
    await pass_time(100)
    assert await claim(database, 20) == []


async def test_a_new_rate_begins_with_a_full_bucket_and_the_same_again_does_not(engine, database):
    await many(engine, 50)
    await rated(engine, 1, 3600, burst=2)
    assert len(await claim(database, 10)) == 2
    await rated(engine, 1, 3600, burst=2)
    assert await claim(database, 10) == []
    await rated(engine, 1, 3600, burst=3)
    assert len(await claim(database, 10)) == 3
    await engine.queues.limit("default", Limits(), actor="anna")
    assert len(await claim(database, 10)) == 10


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    starts=st.integers(1, 50),
    seconds=st.sampled_from([0.1, 1, 7, 60, 3600]),
    burst=st.integers(1, 50),
    pauses=st.lists(st.tuples(st.floats(0, 3), st.integers(1, 60)), min_size=1, max_size=12),
)
async def test_what_starts_is_what_the_bucket_holds_and_gains(engine, database, psql, starts, seconds, burst, pauses):
    """Time is moved by moving the bucket's. The little that the test itself takes makes the bucket no emptier than the expected one."""
    queue, passed, started = f"q{uuid7()}", 0.0, 0
    tokens, least = float(burst), 0
    await many(engine, 700, queue=queue)
    await rated(engine, starts, seconds, burst, queue=queue)
    begin = (await database.one("ping"))["at"]
    for part, batch in pauses:
        await psql.execute(
            "update suture.queues set rate_at = rate_at - make_interval(secs => $2) where name = $1 and rate_at > '-infinity'",
            queue,
            part * seconds,
        )
        passed += part * seconds
        tokens = min(burst, tokens + part * starts)
        expected = min(batch, int(tokens - 1e-3 if tokens < burst else tokens))
        tokens, least = tokens - expected, least + expected
        started += len(await claim(database, batch, queues=[queue]))
        real = ((await database.one("ping"))["at"] - begin).total_seconds()
        assert min(least, 700) <= started <= burst + (passed + real) * starts / seconds + 1e-3


async def test_a_token_that_comes_wakes_a_fleet_at_rest(engine, database, psql):
    """Nobody hints at a token: whoever looks next does."""

    @workflow("w")
    async def w(run: Run, _: None) -> None: ...

    await rated(engine, 2, 1, burst=1)
    async with running(database, w, poll=timedelta(seconds=30)):
        await many(engine, 5)
        await eventually(lambda: psql.fetchval(f"select count(*) = 5 {STARTS}"), within=60)
    begun = [row["at"] for row in await psql.fetch(f"select at {STARTS} order by at")]
    assert begun[-1] - begun[0] >= timedelta(seconds=1.9)
    assert all(later - earlier > timedelta(seconds=0.4) for earlier, later in pairwise(begun))


async def test_a_rate_is_refused_when_it_is_none(engine):
    with pytest.raises(InvalidRequest, match="interval is 0 s"):
        await rated(engine, 1, 0)
    with pytest.raises(InvalidRequest, match="starts of the rate is 0"):
        await rated(engine, 0, 1)
