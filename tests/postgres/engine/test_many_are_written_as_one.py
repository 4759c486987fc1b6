"""What many executions write at the same time is one commit, and each hears of its own row alone."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from suture.engine.claim import Claim
from suture.engine.ids import uuid7
from suture.engine.journal import Batches, Ending, Journal, Step, Written
from suture.engine.records import Execution
from suture.errors import DatabaseUnavailable, LeaseLost, PayloadUnfit
from tests.postgres.engine.stage import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_the_steps_of_many_executions_share_their_commits(engine, database):
    for _ in range(40):
        await engine.enqueue("anything", None, actor="test")
    owner, lease = uuid7(), timedelta(seconds=30)
    rows = await database.many("claim", owner, ["default"], ["anything"], [1], 40, lease, "test", 3, False)
    journal = Journal(database, owner, actor="test")
    claims = [Claim(database, Execution.from_row(row), owner, "test", shared=journal) for row in rows]

    await asyncio.gather(*(c.checkpoint("one", number, kind="step", attempts=1, started_at=NOW) for number, c in enumerate(claims)))
    await asyncio.gather(*(c.complete("done") for c in claims))

    for number, claim in enumerate(claims):
        assert [c.output for c in await engine.checkpoints(claim.execution.id)] == [number]
        assert (await engine.get(claim.execution.id)).status == "completed"
    async with database.session() as session:
        assert await session.connection.fetchval("select count(distinct xmin::text) from suture.operation_outputs") <= 2


async def test_one_that_is_lost_does_not_take_its_neighbours_along(engine, database, take):
    for _ in range(3):
        await engine.enqueue("anything", None, actor="test")
    first, second, third = [await take() for _ in range(3)]
    journal = Journal(database, first.owner, actor="test")
    steps = [Step(c.execution.id, c.epoch, "one", "step", "1", 1, NOW) for c in (first, second, third)]

    answers = await asyncio.gather(*map(journal.checkpoint, steps))  # of three owners, and the journal speaks for the first

    assert answers == [Written("1", cancelled=False), None, None]
    second.journal = journal
    with pytest.raises(LeaseLost):
        await second.checkpoint("two", 2, kind="step", attempts=1, started_at=NOW)


async def test_each_ending_keeps_its_own_output_and_epoch_and_the_lost_one_is_named(engine, database, take, psql):
    owner = uuid7()
    for _ in range(5):
        await engine.enqueue("anything", None, actor="test")
    first = await take(owner=owner)
    await psql.execute("update suture.workflow_executions set epoch = 7 where id = $1", first.execution.id)
    others = [await take(owner=owner) for _ in range(3)]
    stranger = await take()
    journal = Journal(database, owner, actor="worker x")
    endings = [
        Ending(first.execution.id, 7, '"first"'),
        Ending(others[0].execution.id, 1, '{"second": 2}'),
        Ending(others[1].execution.id, 2, '"of a claim that it does not have"'),
        Ending(stranger.execution.id, 1, '"of a stranger"'),
        Ending(others[2].execution.id, 1, "null"),
    ]

    answers = await asyncio.gather(*map(journal.complete, endings))

    assert [answer and answer.output for answer in answers] == ['"first"', '{"second": 2}', None, None, "null"]
    rows = {row["id"]: (row["status"], row["output"]) for row in await psql.fetch("select id, status, output from suture.executions")}
    assert [rows[ending.execution] for ending in endings] == [
        ("completed", '"first"'),
        ("completed", '{"second": 2}'),
        ("running", None),
        ("running", None),
        ("completed", "null"),
    ]


@pytest.mark.parametrize(("heir", "status"), [(False, "completed"), (True, "running")])
async def test_an_ending_that_met_another_writer_counts_by_what_that_one_left(engine, database, take, psql, heir, status):
    """The row is locked by a heartbeat, which changes nothing for it, or by an heir: the ending waits, and looks again."""
    for _ in range(2):
        await engine.enqueue("anything", None, actor="test")
    owner = uuid7()
    claims = [await take(owner=owner) for _ in range(2)]
    journal = Journal(database, owner, actor="test")
    async with psql.transaction():
        change = "epoch = epoch + 1, owner_id = id" if heir else "lease_expires = now() + interval '1 minute'"
        await psql.execute(f"update suture.workflow_executions set {change} where id = $1", claims[0].execution.id)
        ending = asyncio.gather(*(journal.complete(Ending(c.execution.id, c.epoch, "1")) for c in claims))
        await eventually(lambda: psql.fetchval("select exists (select from pg_locks where not granted)"), what="the wait for the row")
    assert [answer is not None for answer in await ending] == [not heir, True]
    assert (await engine.get(claims[0].execution.id)).status == status
    assert (await engine.get(claims[1].execution.id)).status == "completed"


async def test_one_that_postgres_refuses_does_not_take_its_neighbours_along(engine, database, take):
    await engine.enqueue("anything", None, actor="test")
    claim = await take()
    journal = Journal(database, claim.owner, actor="test")
    good, bad = (Step(claim.execution.id, claim.epoch, name, "step", text, 1, NOW) for name, text in (("good", "1"), ("bad", "no JSON")))

    answers = await asyncio.gather(journal.checkpoint(good), journal.checkpoint(bad), return_exceptions=True)

    assert answers[0] == Written("1", cancelled=False)
    assert isinstance(answers[1], Exception)
    assert not isinstance(answers[1], DatabaseUnavailable | PayloadUnfit)


async def test_what_comes_while_a_write_is_under_way_goes_together_with_the_next():
    gate, batches = asyncio.Event(), []

    async def write(items: list[tuple[int]]) -> list[Written]:
        batches.append(len(items))
        await gate.wait()
        return [Written(str(item), cancelled=False) for (item,) in items]

    gathered = Batches(write)
    waiting = [gathered.put(0, (0,))]
    await asyncio.sleep(0)
    waiting += [gathered.put(1, (1,))]
    await asyncio.sleep(0)  # both lanes are busy now
    waiting += [gathered.put(n, (n,)) for n in reversed(range(2, 300))]
    gate.set()
    answers = await asyncio.gather(*waiting)

    assert [answer.output for answer in answers] == [str(n) for n in (0, 1, *reversed(range(2, 300)))]
    assert batches == [1, 1, 200, 98]


async def test_what_comes_in_the_very_turn_in_which_both_lanes_end_is_written():
    gate = asyncio.Event()

    async def write(items: list[tuple[int]]) -> list[Written]:
        await gate.wait()
        return [Written(str(item), cancelled=False) for (item,) in items]

    gathered = Batches(write)

    async def twice() -> str:
        await gathered.put(0, (0,))
        return (await gathered.put(2, (2,))).output

    first = asyncio.create_task(twice())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    second = gathered.put(1, (1,))
    await asyncio.sleep(0)
    gate.set()
    _, late = await asyncio.wait({first}, timeout=30)
    await gathered.put(3, (3,))  # takes along whoever was left behind, so that this test ends

    assert not late
    assert (await second).output == "1"
    assert await first == "2"


async def test_a_write_whose_loop_ends_leaves_nobody_waiting():
    async def write(items: list[tuple[int]]) -> list[Written]:
        await asyncio.Event().wait()
        return []

    gathered = Batches(write)
    waiting = [gathered.put(n, (n,)) for n in range(300)]
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()

    async with asyncio.timeout(30):
        answers = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(answer, DatabaseUnavailable) for answer in answers)
