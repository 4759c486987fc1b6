"""I11: fifty clients that want the same get one execution; after its end the reuse policy decides; another input is a conflict."""

import asyncio
from datetime import datetime, timedelta

import asyncpg
import pytest

from suture.engine.lease import tidy
from suture.errors import Conflict, InvalidRequest, PayloadTooLarge, PayloadUnfit
from tests.postgres.engine.stage import eventually


async def test_fifty_at_once_get_one_row(engine, psql):
    answers = await asyncio.gather(*(engine.enqueue("w", {"n": 1}, actor=f"client {n}", operation_key="k") for n in range(50)))
    assert len({a.execution.id for a in answers}) == 1
    assert [a.created for a in answers].count(True) == 1
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 1
    assert await psql.fetchval("select count(*) from suture.timeline") == 1


@pytest.mark.parametrize("archived", [False, True])
async def test_after_the_end_the_policy_decides(engine, database, take, pass_time, archived):
    first = (await engine.enqueue("w", 1, actor="test", operation_key="k")).execution
    await (await take()).complete("done")
    if archived:
        await pass_time(7200)
        assert await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1)) == 1

    returned = await engine.enqueue("w", 1, actor="test", operation_key="k", reuse="return")
    assert (returned.execution.id, returned.created, returned.execution.output) == (first.id, False, "done")
    with pytest.raises(Conflict, match=f"was used by {first.id}, which ended as completed"):
        await engine.enqueue("w", 1, actor="test", operation_key="k", reuse="reject")
    renewed = await engine.enqueue("w", 1, actor="test", operation_key="k", reuse="new")
    assert renewed.created
    assert renewed.execution.id != first.id
    # while one lives, every policy finds it
    for reuse in ("return", "reject", "new"):
        assert (await engine.enqueue("w", 1, actor="test", operation_key="k", reuse=reuse)).execution.id == renewed.execution.id


@pytest.mark.parametrize("reuse", ["return", "new"])
async def test_another_input_or_workflow_is_a_conflict(engine, take, reuse):
    await engine.enqueue("w", {"a": 1, "b": [1, 2]}, actor="test", operation_key="k")
    assert not (await engine.enqueue("w", {"b": [1, 2], "a": 1}, actor="test", operation_key="k")).created
    with pytest.raises(Conflict, match="with another input: use another key"):
        await engine.enqueue("w", {"a": 2}, actor="test", operation_key="k", reuse=reuse)
    with pytest.raises(Conflict, match="belongs to w"):
        await engine.enqueue("v", {"a": 1, "b": [1, 2]}, actor="test", operation_key="k", reuse=reuse)


async def test_a_key_whose_execution_ends_at_this_moment_is_answered_by_it_and_not_by_a_second(engine, database, take, psql):
    """It lives at the first look and has ended at the next: with two looks it would be in neither, and a second would be made."""
    for n in range(60):
        key = f"k{n}"
        first = (await engine.enqueue("w", n, actor="test", operation_key=key)).execution
        claim = await take()
        answers = await asyncio.gather(
            claim.complete("done"),
            *(engine.enqueue("w", n, actor="test", operation_key=key) for _ in range(3)),
        )
        assert {a.execution.id for a in answers[1:]} == {first.id}
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 60


async def test_one_that_is_made_and_ends_unseen_is_still_the_answer(engine, psql):
    """Between the look at a key and the insert nobody passes with it, not even with an execution that has ended when it is seen."""
    async with engine.transaction() as session:
        first = (await engine.enqueue("w", 1, actor="test", operation_key="k", session=session)).execution
        await engine.cancel(first.id, actor="test", session=session)
        second = asyncio.create_task(engine.enqueue("w", 1, actor="test", operation_key="k"))

        async def waits() -> bool:
            return await psql.fetchval("select exists (select from pg_locks where not granted)")

        await eventually(waits)
    assert (await second).execution.id == first.id


async def test_new_ones_at_once_after_the_end_are_one(engine, take, psql):
    await engine.enqueue("w", 1, actor="test", operation_key="k")
    await (await take()).complete("done")
    answers = await asyncio.gather(*(engine.enqueue("w", 1, actor="test", operation_key="k", reuse="new") for _ in range(20)))
    assert len({a.execution.id for a in answers}) == 1
    assert [a.created for a in answers].count(True) == 1


async def test_an_enqueue_joins_the_caller_s_transaction(engine, psql):
    async def half_way() -> None:
        async with engine.transaction() as session:
            await engine.enqueue("w", 1, actor="test", session=session)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await half_way()
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 0
    async with engine.transaction() as session:
        task = (await engine.enqueue("w", 1, actor="test", session=session)).execution
        await engine.emit(task.id, "e", 1, actor="test", session=session)
    assert (await engine.get(task.id)).status == "enqueued"


async def test_an_error_of_the_caller_is_not_taken_for_an_outage(engine):
    with pytest.raises(FileNotFoundError):
        async with engine.transaction():
            raise FileNotFoundError("the caller's own")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"operation_key": ""}, "has 0 characters"),
        ({"operation_key": "k" * 513}, "has 513 characters"),
        ({"operation_key": "a\0b"}, "control character at 1"),
        ({"queue": ""}, "has 0 characters"),
        ({"actor": "a\ud800"}, "control character at 1"),
        ({"run_at": datetime(2026, 3, 29, 2, 30)}, "no time zone"),  # noqa: DTZ001
        ({"deadline_at": datetime(2026, 3, 29, 2, 30)}, "no time zone"),  # noqa: DTZ001
        ({"priority": 1 << 40}, "Postgres cannot keep a value"),
        ({"labels": {"a": "\0"}}, "NUL character"),
    ],
)
async def test_what_cannot_be_kept_is_refused_at_the_door(engine, psql, given, complaint):
    with pytest.raises((InvalidRequest, PayloadUnfit), match=complaint):
        await engine.enqueue("w", 1, **({"actor": "test"} | given))
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 0


async def test_an_input_that_is_too_large_is_refused_with_both_sizes(engine):
    with pytest.raises(PayloadTooLarge, match="1,048,578 bytes and the limit is 1,048,576"):
        await engine.enqueue("w", "x" * (1 << 20), actor="test")


async def test_two_of_one_key_cannot_live_even_by_hand(engine, psql):
    for _ in range(2):
        await engine.enqueue("w", 1, actor="test")
    with pytest.raises(asyncpg.UniqueViolationError, match="operation_key_is_unique"):
        await psql.execute("update suture.workflow_executions set operation_key = 'k'")
