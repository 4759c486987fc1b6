"""Claims are cheap beside the work: planned once for each connection, and on their way while what the last one found begins.

Past any pooler, through which no plan is kept (see `test_a_pooler_is_found_out`).
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio

from suture.engine import Database, Engine, Run, Runner, workflow
from suture.engine.database import Row
from suture.engine.ids import uuid7
from suture.engine.lease import Lease
from tests.postgres.engine.stage import eventually, running


class World:
    """What the workflow notes, and when claims were asked for and answered."""

    def __init__(self) -> None:
        self.now = self.most = self.ended = self.suspects = self.most_suspects = 0
        self.claims: list[tuple[str, int]] = []
        """("asked", how many executions ran by then) or ("found", how many)."""
        self.found = asyncio.Event()
        self.runner: Runner | None = None
        self.seconds = [0.0, 0.004, 0.008, 0.1]
        """The first that ends asks for a claim, others end meanwhile, and one of four lasts longer than two claims."""

    async def has_ended(self, count: int) -> bool:
        return self.ended >= count


@workflow("brief")
async def brief(run: Run, number: int) -> None:
    world, is_suspect = run.resources, run.execution.crashes > 0
    world.now, world.suspects = world.now + 1, world.suspects + is_suspect
    world.most, world.most_suspects = max(world.most, world.now), max(world.most_suspects, world.suspects)
    await asyncio.sleep(0.1 if is_suspect else world.seconds[number % 4])
    world.now, world.suspects, world.ended = world.now - 1, world.suspects - is_suspect, world.ended + 1


class SlowDatabase(Database):
    """Its claims take long enough for executions to end meanwhile."""

    world: World

    async def many(self, name: str, *args: object) -> list[Row]:
        if name != "claim" or not args[1]:  # of no queue: one that is only planned
            return await super().many(name, *args)
        self.world.claims.append(("asked", self.world.runner.running if self.world.runner else 0))
        rows = await super().many(name, *args)
        await asyncio.sleep(0.02)
        self.world.claims.append(("found", len(rows)))
        if len(self.world.claims) >= 8:
            self.world.found.set()
        return rows


@pytest_asyncio.fixture
async def slow(direct_url: str) -> AsyncIterator[SlowDatabase]:
    async with SlowDatabase.connect(direct_url) as database:
        database.world = World()
        await Engine(database).enqueue_many("brief", list(range(60)), actor="test")
        yield database


async def test_the_next_claim_is_on_its_way_while_the_executions_of_the_last_begin(slow):
    async with running(slow, brief, concurrency=4, resources=slow.world) as slow.world.runner:
        await eventually(lambda: slow.world.has_ended(60), what="the end of all")
    pairs = [(found, ran) for (_, found), (what, ran) in pairwise(slow.world.claims) if what == "asked"]
    assert any(ran < found for found, ran in pairs[1:])


async def test_what_is_claimed_and_has_not_begun_holds_its_slots(slow):
    async with running(slow, brief, concurrency=4, resources=slow.world):
        await eventually(lambda: slow.world.has_ended(60), what="the end of all")
    assert slow.world.most <= 4


async def test_a_stop_between_two_claims_gives_back_both(slow, psql):
    slow.world.seconds[-1] = 0.012
    async with running(slow, brief, concurrency=4, resources=slow.world) as runner:
        await asyncio.wait_for(slow.world.found.wait(), 30)
        runner.stop()
        stopped = len(slow.world.claims)
    counts = dict(await psql.fetch("select status, count(*) from suture.workflow_executions group by status"))
    assert counts == {"completed": slow.world.ended, "enqueued": 60 - slow.world.ended}
    assert len(slow.world.claims) <= stopped + 3  # the one on its way, and one ahead


async def test_a_second_suspect_is_not_claimed_while_the_first_has_not_begun(slow, psql):
    """A suspect may be what kills its workers: one at a time."""
    await psql.execute("update suture.workflow_executions set crashes = 2 where id in (select id from suture.workflow_executions limit 20)")
    async with running(slow, brief, concurrency=4, resources=slow.world, lease=Lease(suspect=2, restart=timedelta(0))):
        await eventually(lambda: slow.world.has_ended(60), what="the end of all")
    assert slow.world.most_suspects == 1


@pytest.mark.parametrize(("plan_once", "custom"), [(True, 0), (False, 5)])
async def test_a_statement_is_planned_once_for_any_value(direct_url: str, plan_once: bool, custom: int):
    async with Database.connect(direct_url, size=1, plan_once=plan_once) as database:
        for _ in range(7):
            await claim(database)
        async with database.session() as session:
            plans = await session.connection.fetchrow(
                "select generic_plans, custom_plans from pg_prepared_statements where statement like '/* claim */%'"
            )
    assert tuple(plans) == (7 - custom, custom)


async def test_a_worker_plans_its_claim_on_more_than_one_connection_before_it_is_due(direct_url: str):
    """The first look that falls together with a claim must not make it wait for a new connection and its plan: ten times a claim."""
    planned = "select sum(generic_plans) from pg_prepared_statements where statement like '/* claim */%'"
    connected, seldom = Database.connect(direct_url, size=3, plan_once=True), timedelta(minutes=1)

    async def plans() -> bool:
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(database.session()) for _ in range(3)]
            counts = [await session.connection.fetchval(planned) for session in sessions]
        return sum(1 for count in counts if count) >= 2

    async with connected as database, running(database, brief, resources=World(), poll=seldom):
        await eventually(plans, what="two connections with a plan")


async def test_plans_that_were_made_of_empty_tables_hold_when_they_are_full(direct_url: str, psql):
    """A worker is there before its work. All that it does then is by index, before anybody has analyzed anything."""
    world = World()
    connected = Database.connect(direct_url, plan_once=True)
    async with connected as database, running(database, brief, concurrency=20, resources=world) as runner:
        await eventually(lambda: is_ready(runner), what="its first claim")
        for count in range(100, 500, 100):
            await Engine(database).enqueue_many("brief", [1] * 100, actor="test")
            await eventually(lambda count=count: world.has_ended(count), what="the end of all")

    async def told() -> tuple[int, int] | None:
        """Rows that were read one after the other, once the ended sessions have said what they did."""
        row = await psql.fetchrow("select n_tup_upd, seq_tup_read from pg_stat_user_tables where relname = 'workflow_executions'")
        return tuple(row) if row[0] >= 800 else None

    assert (await eventually(told))[1] == 0


async def test_the_caller_s_own_sql_is_planned_as_the_server_would(direct_url: str):
    names = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "jit")
    settings = "select " + ", ".join(f"current_setting('{name}')" for name in names)
    usual, found = ("auto", "on", "on", "on"), asyncio.get_running_loop().create_future()

    @workflow("pay")
    async def pay(run: Run, _: None) -> None:
        async with run.transaction("bill", isolation="serializable") as (connection, _done):
            assert await connection.fetchval("show transaction_isolation") == "serializable"
            found.set_result(tuple(await connection.fetchrow(settings)))

    async with Database.connect(direct_url, size=1, plan_once=True) as database:
        engine = Engine(database)
        async with engine.transaction() as session:
            assert tuple(await session.connection.fetchrow(settings)) == usual
        async with database.session() as session:
            assert tuple(await session.connection.fetchrow(settings)) == ("force_generic_plan", "off", "off", "off")
        await engine.enqueue("pay", None, actor="test")
        async with running(database, pay):
            assert await asyncio.wait_for(found, 30) == usual


async def is_ready(runner: Runner) -> bool:
    return runner.ready


async def claim(database: Database) -> list[Any]:
    return list(await database.many("claim", uuid7(), ["q"], ["w"], [1], 10, Lease().duration, "test", 3, False))
