"""Claims are cheap beside the work: planned once for each connection, and each takes along what came while the last one rested."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from suture.engine import Database, Engine, Run, workflow
from suture.engine.database import Row
from suture.engine.ids import uuid7
from suture.engine.lease import Lease
from suture.engine.watch import Watch
from tests.postgres.engine.stage import eventually, running


class Claimed(NamedTuple):
    began: float
    ended: float
    rows: int


class WatchedDatabase(Database):
    """Notes each claim."""

    claims: list[Claimed]

    async def many(self, name: str, *args: object) -> list[Row]:
        began = time.monotonic()
        rows = await super().many(name, *args)
        if name == "claim":
            self.claims.append(Claimed(began, time.monotonic(), len(rows)))
        return rows


@pytest_asyncio.fixture
async def watched(database_url: str) -> AsyncIterator[WatchedDatabase]:
    async with WatchedDatabase.connect(database_url) as database:
        database.claims = []
        yield database


@workflow("lasting")
async def lasting(run: Run, turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0.001)


async def test_a_claim_that_found_all_there_was_rests_before_the_next(watched):
    """Else each execution that ends would ask for a claim of its own, and those would take a core."""
    engine = Engine(watched)
    await engine.enqueue_many("lasting", list(range(60)), actor="test")
    async with running(watched, lasting, concurrency=100):
        await eventually(lambda: over(engine), within=30, what="the end of all")

    pauses = [(later.began - earlier.ended, earlier.ended - earlier.began) for earlier, later in pairwise(watched.claims)]
    assert sum(claimed.rows for claimed in watched.claims) == 60
    assert len(pauses) > 3
    assert all(pause > min(1.9 * took, 0.0099) for pause, took in pauses)


async def test_a_claim_that_may_have_left_something_does_not_rest(database_url: str):
    """With few slots and short work, a pause after each claim would be most of the time."""
    async with Database.connect(database_url) as database:
        watch = Watch(database, lease=Lease(), poll=timedelta(seconds=1))
        rests = {found_all: min([await rest(watch, found_all) for _ in range(20)]) for found_all in (True, False)}
    assert rests[False] < 0.005 < 0.0099 < rests[True]


async def rest(watch: Watch, found_all: bool) -> float:
    """Seconds of the pause after a claim of a second."""
    watch.timed(1.0, found_all=found_all)
    began = time.monotonic()
    await watch.breathe()
    return time.monotonic() - began


async def over(engine: Engine) -> bool:
    return not [one for one in (await engine.health()).depth if one["status"] in ("enqueued", "running")]


@pytest.mark.parametrize(("plan_once", "custom"), [(True, 0), (False, 5)])
async def test_a_statement_is_planned_once_for_any_value(database_url: str, plan_once: bool, custom: int):
    async with Database.connect(database_url, size=1, plan_once=plan_once) as database:
        for _ in range(7):
            await claim(database)
        async with database.session() as session:
            plans = await session.connection.fetchrow(
                "select generic_plans, custom_plans from pg_prepared_statements where statement like '/* claim */%'"
            )
    assert tuple(plans) == (7 - custom, custom)


async def claim(database: Database) -> list[Any]:
    return list(await database.many("claim", uuid7(), ["q"], ["w"], [1], 10, Lease().duration, "test", 3, False))
