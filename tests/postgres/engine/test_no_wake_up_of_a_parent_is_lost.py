"""I12: parent and child meet at every moment, held there by locks: the wait is written, the end is told, and neither misses the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from suture.engine import NEVER, Database, Run, Session
from suture.engine.children import Order, start, tend
from suture.engine.claim import Claim
from suture.engine.database import Row
from suture.engine.replay import Replay
from suture.errors import Suspended
from tests.postgres.engine.stage import eventually

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def fresh(claim: Claim) -> Run:
    return Run(claim, done={}, failures={}, retry=NEVER)


class Hesitant(Session):
    """Stops after it has looked for a child's end, until it may go on."""

    looked: asyncio.Event
    go_on: asyncio.Event

    async def maybe(self, name: str, *args: object) -> Row | None:
        row = await super().maybe(name, *args)
        if name == "find_child_result":
            self.looked.set()
            await self.go_on.wait()
        return row


class HesitantDatabase(Database):
    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with super().session() as plain:
            hesitant = Hesitant(plain.connection, self.statements)
            hesitant.looked, hesitant.go_on = self.looked, self.go_on
            yield hesitant

    looked: asyncio.Event
    go_on: asyncio.Event


async def test_an_end_that_is_told_while_the_wait_is_written_wakes_the_parent(engine, database, database_url, take):
    """The parent has looked and found nothing; the child ends and the end is told; only then the parent writes that it waits."""
    parent = (await engine.enqueue("parent", None, actor="test")).execution
    claim = await take("parent's")
    child = await fresh(claim).start("child", None)
    heir = await take("child's")
    claim.database = HesitantDatabase(database_url)
    claim.database.looked, claim.database.go_on = asyncio.Event(), asyncio.Event()
    await claim.database.open()
    waits = asyncio.create_task(_suspended(child.result()))
    await asyncio.wait_for(claim.database.looked.wait(), 30)
    await heir.complete("done")
    told = asyncio.create_task(tend(database))
    await eventually(lambda: _over_or_blocked(database, told), what="who tells the end")
    claim.database.go_on.set()
    await waits
    await told
    await claim.database.close()
    assert (await engine.get(parent.id)).status == "enqueued"
    again = await take("parent's")
    run = Run(again, done=await again.checkpoints(), failures={}, retry=NEVER)
    assert await (await run.start("child", None)).result() == "done"


async def _suspended(waiting: Awaitable[object]) -> None:
    with pytest.raises(Suspended):
        await waiting


async def _over_or_blocked(database, told: "asyncio.Task[int]") -> bool:
    return told.done() or await _blocked(database, "lock_parents")


async def _blocked(database, statement: str) -> bool:
    async with database.session() as session:
        found = await session.connection.fetchval(
            "select count(*) from pg_stat_activity where query like $1 and wait_event_type = 'Lock'", f"/* {statement} */%"
        )
    return bool(found)


async def test_who_tells_an_end_waits_for_the_parent_that_is_just_lying_down(engine, database, take):
    """The parent has looked, found nothing, and not yet written that it waits: whoever tells the end must not take it for running."""
    parent = (await engine.enqueue("parent", None, actor="test")).execution
    claim = await take("parent's")
    await fresh(claim).start("child", None)
    heir = await take("child's")
    async with database.transaction() as session:
        await session.maybe("lock_held", *claim.fence)
        assert await session.maybe("find_child_result", parent.id, "child") is None
        await heir.complete("done")
        told = asyncio.create_task(tend(database))
        await eventually(lambda: _blocked(database, "lock_parents"), what="who tells the end")
        await session.maybe("suspend", *claim.fence, "child", "worker", "waits for the child child")
    assert await told == 1
    assert (await engine.get(parent.id)).status == "enqueued"


async def test_a_start_whose_answer_was_lost_is_found_again(engine, take):
    await engine.enqueue("parent", None, actor="test")
    claim = await take()
    order = Order(step="child", workflow="child", version=1, queue="default", priority=0, labels="{}")
    first = await start(claim, order, "null", started_at=NOW)
    again = await start(claim, order, "null", started_at=NOW)
    assert first == again
    await (await take()).complete(None)  # the key is free again, and yet there is no second child
    assert await start(claim, order, "null", started_at=NOW) == first
    assert len(await engine.page(workflow="child")) == 1


async def test_the_end_of_a_child_is_waited_for_where_an_earlier_run_did(engine, take):
    """A step that was recorded before that wait must be met before the child's result is handed out."""
    await engine.enqueue("parent", None, actor="test")
    claim = await take()
    run = fresh(claim)

    async def step() -> None: ...

    child = await run.start("child", None)
    await run.step("between", step)
    with pytest.raises(Suspended):
        await child.result()
    await (await take()).complete(None)
    await tend(engine.database)
    again = await take()
    replay = Replay(again.execution, await again.checkpoints(), {})
    assert replay.missing_at_end_of("child") == {"child", "between"}
    replay.meet("child", "child")
    replay.meet("between", "step")
    assert replay.missing_at_end_of("child") == set()
