"""A poll for changes misses nothing, in whatever order transactions commit."""

import asyncio
import random


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


async def test_what_lacks_the_label_is_not_named(engine):
    cursor = await engine.cursor()
    await engine.enqueue("w", 1, actor="test", labels={"other": "x"})
    assert (await engine.changed_since(cursor, label="mirror"))[1] == []
