"""I6: the caller's SQL and the step's checkpoint commit together or not at all."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from suture.engine import NEVER, Database, Engine, Retry, Run, Session, workflow
from suture.engine.claim import Claim
from suture.errors import DatabaseUnavailable, LeaseLost, PermanentError, Suspended
from tests.postgres.engine.stage import QUICK, ended, reached, running


class Receipt(BaseModel):
    number: int


@pytest.fixture(autouse=True)
async def _ledger(psql):
    await psql.execute("create table public.ledger (id int generated always as identity, amount int not null)")


async def amounts(psql) -> list[int]:
    return [row["amount"] for row in await psql.fetch("select amount from public.ledger order by id")]


def fresh(claim: Claim) -> Run:
    return Run(claim, done={}, failures={}, retry=NEVER)


async def test_a_committed_transaction_is_left_out_in_every_later_run(engine, database, psql):
    seen = []

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> int:
        async with run.transaction("bill", Receipt) as (connection, done):
            seen.append(bool(done))
            if not done:
                number = await connection.fetchval("insert into public.ledger (amount) values (5) returning id")
                done.set(Receipt(number=number))
        assert isinstance(done.value, Receipt)
        await run.wait("go", type(None))
        return done.value.number

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", None, actor="test")
        assert (await ended(engine, task.id)).output == 1
    assert (seen, await amounts(psql)) == ([False, True], [5])
    first = (await engine.checkpoints(task.id))[0]
    assert (first.step_id, first.kind, first.output) == ("bill", "transaction", {"number": 1})


async def test_sql_that_is_not_left_out_is_refused_once_the_step_is_committed(engine, database, psql):
    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill") as (connection, _done):
            await connection.execute("insert into public.ledger (amount) values (5)")
        await run.wait("go", type(None))

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", None, actor="test")
        done = await ended(engine, task.id)
    assert (done.error.reason, "look at `done`" in done.error.message, await amounts(psql)) == ("InvalidRequest", True, [5])


async def test_a_failure_rolls_back_and_is_tried_again(engine, database, psql):
    tries = []

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill") as (connection, _done):
            tries.append(1)
            await connection.execute("insert into public.ledger (amount) values ($1)", len(tries))
            if len(tries) < 3:
                raise ConnectionError

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert (done.status, done.attempt, await amounts(psql)) == ("completed", 3, [3])
    assert (await engine.checkpoints(task.id))[0].attempts == 3


async def test_a_transaction_that_failed_for_good_raises_the_same_in_every_later_run(engine, database, psql):
    tries, caught = [], []

    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> str:
        try:
            async with run.transaction("bill") as (connection, _done):
                tries.append(1)
                await connection.execute("insert into public.ledger (amount) values (1)")
                raise KeyError("no such account")
        except KeyError as error:
            caught.append(str(error))
        await run.wait("go", type(None))
        return "compensated"

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await reached(engine, task.id, "waiting")
        await engine.emit(task.id, "go", None, actor="test")
        assert (await ended(engine, task.id)).output == "compensated"
    assert (len(tries), len(caught), len(set(caught)), await amounts(psql)) == (1, 2, 1, [])


async def test_a_lease_that_is_lost_in_the_middle_rolls_the_caller_s_sql_back(engine, database, psql, take, pass_time):
    task = (await engine.enqueue("w", None, actor="test")).execution
    claim = await take("slow", lease=1)

    heirs = []

    async def bill() -> None:
        async with fresh(claim).transaction("bill") as (connection, done):
            await connection.execute("insert into public.ledger (amount) values (5)")
            await pass_time(2)
            await database.many("recover", timedelta(0), 5, 10, "test", timedelta(0))
            heirs.append(await take("heir"))
            done.set(1)

    with pytest.raises(LeaseLost):
        await bill()
    assert (await amounts(psql), await engine.checkpoints(task.id)) == ([], [])
    async with fresh(heirs[0]).transaction("bill") as (connection, _done):
        await connection.execute("insert into public.ledger (amount) values (7)")
    assert await amounts(psql) == [7]


async def test_what_postgres_cannot_serialize_is_tried_again(engine, database, psql):
    """Write skew: each of two reads what the other writes. One of them has to come again, and then sees the other's row."""
    both = asyncio.Barrier(2)
    tries = []

    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> int:
        async with run.transaction("count", isolation="serializable") as (connection, done):
            tries.append(1)
            before = await connection.fetchval("select count(*) from public.ledger")
            if len(tries) <= 2:
                await both.wait()
            await connection.execute("insert into public.ledger (amount) values ($1)", before)
            done.set(before)
        return int(done.value)

    tasks = [(await engine.enqueue("w", None, actor="test")).execution.id for _ in range(2)]
    async with running(database, w):
        outputs = [(await ended(engine, task)).output for task in tasks]
    assert sorted(outputs) == [0, 1]
    assert sorted(await amounts(psql)) == [0, 1]
    assert len(tries) == 3


async def test_of_two_that_wait_for_each_other_one_comes_again(engine, database, psql):
    await psql.execute("insert into public.ledger (amount) values (0), (0)")
    both = asyncio.Barrier(2)
    tries = []

    @workflow("w", retry=NEVER)
    async def w(run: Run, rows: list[int]) -> None:
        async with run.transaction("move") as (connection, _done):
            tries.append(1)
            await connection.execute("update public.ledger set amount = amount + 1 where id = $1", rows[0])
            if len(tries) <= 2:
                await both.wait()
            await connection.execute("update public.ledger set amount = amount + 1 where id = $1", rows[1])

    tasks = [(await engine.enqueue("w", rows, actor="test")).execution.id for rows in ([1, 2], [2, 1])]
    async with running(database, w):
        assert {(await ended(engine, task)).status for task in tasks} == {"completed"}
    assert (await amounts(psql), len(tries)) == ([2, 2], 3)


class Forgetful(Database):
    """Its next commits are made or not, and nobody hears of it."""

    lost: list[bool]

    @asynccontextmanager
    async def transaction(self, *, lent: bool = False) -> AsyncIterator[Session]:
        commit = self.lost.pop() if self.lost else None
        async with super().transaction(lent=lent) as session:
            yield session
            if commit is False:
                raise DatabaseUnavailable("the connection was cut before the commit")
        if commit:
            raise DatabaseUnavailable("the connection was cut after the commit")


@pytest.mark.parametrize("made", [True, False])
async def test_a_commit_whose_answer_was_lost_is_looked_up(engine, database_url, psql, take, made):
    task = (await engine.enqueue("w", None, actor="test")).execution
    forgetful = Forgetful(database_url)
    await forgetful.open()
    forgetful.lost = [made]
    claim = await take()
    claim.database = forgetful
    try:
        async with fresh(claim).transaction("bill") as (connection, done):
            await connection.execute("insert into public.ledger (amount) values (5)")
            done.set(9)
    except Suspended:
        assert not made
        assert (await engine.get(task.id)).status == "enqueued"
    else:
        assert made
        assert done.value == 9
    finally:
        await forgetful.close()
    assert (await amounts(psql), len(await engine.checkpoints(task.id))) == (([5], 1) if made else ([], 0))


async def test_what_is_handed_in_inside_commits_with_it(engine, database):
    tries = []

    @workflow("w", retry=QUICK)
    async def w(run: Run, _: None) -> None:
        async with run.transaction("order") as (connection, _done):
            tries.append(1)
            await Engine(database).enqueue("other", len(tries), actor="w", session=connection)
            if len(tries) == 1:
                raise ConnectionError

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await ended(engine, task.id)
    assert [other.input for other in await engine.page(workflow="other")] == [2]


@pytest.mark.parametrize("sql", ["commit", "rollback"])
async def test_sql_that_ends_the_transaction_by_itself_is_loud(engine, database, sql):
    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill") as (connection, _done):
            await connection.execute(sql)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        done = await ended(engine, task.id)
    assert (done.error.reason, "has ended it" in done.error.message) == ("InvalidRequest", True)


async def test_an_error_of_sql_that_the_block_swallows_fails_the_step(engine, database, psql):
    @workflow("w", retry=NEVER)
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill") as (connection, _done):
            await connection.execute("insert into public.ledger (amount) values (5)")
            with pytest.raises(Exception, match="null value"):
                await connection.execute("insert into public.ledger (amount) values (null)")

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        assert (await ended(engine, task.id)).status == "error"
    assert await amounts(psql) == []


async def test_no_step_begins_inside_and_no_sql_runs_after_the_block(engine, take):
    await engine.enqueue("w", None, actor="test")
    run = fresh(await take())

    async def step() -> None: ...

    with pytest.raises(PermanentError, match="inside the transaction bill"):
        async with run.transaction("bill"):
            await run.step("inner", step)
    async with run.transaction("again") as (connection, _done):
        pass
    with pytest.raises(PermanentError, match="run none after its block"):
        await connection.execute("select 1")


async def test_a_block_has_its_time(engine, database, psql):
    @workflow("w", retry=Retry(attempts=1))
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill", timeout=timedelta(seconds=0.1)) as (connection, _done):
            await connection.execute("insert into public.ledger (amount) values (5)")
            await asyncio.sleep(3600)

    task = (await engine.enqueue("w", None, actor="test")).execution
    started = datetime.now(UTC)
    async with running(database, w):
        done = await ended(engine, task.id)
    assert ("took longer than 0:00:00.1" in done.error.message, await amounts(psql)) == (True, [])
    assert datetime.now(UTC) - started < timedelta(minutes=1)


async def test_a_cancel_in_the_middle_rolls_back(engine, database, psql):
    inside = asyncio.Event()

    @workflow("w")
    async def w(run: Run, _: None) -> None:
        async with run.transaction("bill") as (connection, _done):
            await connection.execute("insert into public.ledger (amount) values (5)")
            inside.set()
            await asyncio.sleep(3600)

    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, w):
        await asyncio.wait_for(inside.wait(), 30)
        await engine.cancel(task.id, actor="test")
        assert (await ended(engine, task.id)).status == "cancelled"
    assert await amounts(psql) == []
