"""A poll for changes misses nothing, in whatever order transactions commit."""

import asyncio
import random
from datetime import timedelta

import pytest

from suture.engine.lease import beat, tidy
from suture.engine.records import Failure
from suture.errors import Suspended
from tests.postgres.engine.stage import LEASE


async def test_a_change_that_commits_after_a_younger_one_was_read_is_found(engine):
    """Its transaction began first, and so its place in the timeline is before what the mirror has seen already."""
    cursor = await engine.cursor()
    async with engine.transaction() as slow:
        early = (await engine.enqueue("w", 1, actor="test", labels={"mirror": "a"}, session=slow)).execution
        late = (await engine.enqueue("w", 2, actor="test", labels={"mirror": "b"})).execution
        cursor, changed = await engine.changed_since(cursor, label="mirror")
        assert {e.id for e in changed} == {late.id}
    cursor, changed = await engine.changed_since(cursor, label="mirror")
    assert early.id in {e.id for e in changed}
    cursor, _ = await engine.changed_since(cursor, label="mirror")
    _, changed = await engine.changed_since(cursor, label="mirror")
    assert changed == []


async def test_many_writers_and_a_mirror_that_polls_agree_in_the_end(engine):
    written, seen, over = set(), set(), asyncio.Event()

    async def write(n: int) -> None:
        for _ in range(4):
            async with engine.transaction() as session:
                task = (await engine.enqueue("w", n, actor="test", labels={"mirror": ""}, session=session)).execution
                await asyncio.sleep(random.random() * 0.02)
            written.add(task.id)

    async def mirror() -> None:
        cursor, last = "0", False
        while not last:
            last = over.is_set()
            cursor, changed = await engine.changed_since(cursor, label="mirror")
            seen.update(e.id for e in changed)

    polling = asyncio.create_task(mirror())
    await asyncio.gather(*map(write, range(12)))
    over.set()
    await polling
    assert seen == written


async def test_each_move_is_named_and_what_is_no_move_is_not(engine, database, take, pass_time):
    """Wherever the execution lies: what ended is found in the history as well."""
    cursor = await engine.cursor()

    async def moved() -> list[str]:
        nonlocal cursor
        cursor, changed = await engine.changed_since(cursor, label="mirror")
        cursor = await engine.cursor()  # what was under way has committed: from here on only what is new
        return [e.status for e in changed]

    task = (await engine.enqueue("w", 1, actor="test", labels={"mirror": ""})).execution
    assert await moved() == ["enqueued"]
    claim = await take()
    assert await moved() == ["running"]
    await beat(database, claim.owner, [claim], lease=LEASE)
    await claim.checkpoint("one", 1, kind="step", attempts=1, started_at=task.created_at)
    assert await moved() == []
    await claim.retry(Failure("Bad", "bad"), delay=timedelta(0), step_attempts=1, attempt=2)
    assert await moved() == ["enqueued"]
    claim = await take()
    with pytest.raises(Suspended):
        await claim.wait("go", event="go", timeout=None)
    assert await moved() == ["waiting"]
    await engine.emit(task.id, "go", 1, actor="test")
    assert await moved() == ["enqueued"]
    claim = await take()
    before = cursor
    await claim.complete("done")
    assert await moved() == ["completed"]
    await pass_time(7200)
    assert await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1)) == 1
    assert [e.status for e in (await engine.changed_since(before, label="mirror"))[1]] == ["completed"]
    assert await moved() == []


async def test_the_poll_reads_what_changed_and_not_what_there_is(engine, database, psql):
    await engine.enqueue_many("w", [None] * 300, actor="test", labels={"mirror": ""})
    await psql.execute("vacuum analyze suture.workflow_executions")
    text = database.statements["changed_since"].text
    cursor = await engine.cursor()
    await engine.enqueue("w", None, actor="test", labels={"mirror": ""})
    plan = "\n".join(row[0] for row in await psql.fetch(f"explain (analyze, costs off) {text}", cursor, "mirror"))
    assert "executions_changed" in plan
    assert "Seq Scan on workflow_executions" not in plan
    await psql.execute("set enable_seqscan = off")  # a history with nothing in it is read as fast without
    plan = "\n".join(row[0] for row in await psql.fetch(f"explain (costs off) {text}", cursor, "mirror"))
    assert plan.count("Index Cond: (changed_xid >= ") == 5, "of the live, of three months and of the default"


async def test_what_lacks_the_label_is_not_named(engine):
    cursor = await engine.cursor()
    await engine.enqueue("w", 1, actor="test", labels={"other": "x"})
    assert (await engine.changed_since(cursor, label="mirror"))[1] == []
