"""I6 and I12 with real kills: wherever a worker dies, each child ends once, none is doubled, and the caller's SQL is there once."""

import asyncio
import random
import signal
from collections import Counter

import pytest

from tests.postgres.engine.limits import most_at_once
from tests.postgres.engine.stage import Worker, ended, eventually

AT_ONCE = 4
"""Boundaries that are tried at the same time, each with its own queue and world."""

LEDGER = "create table public.ledger (execution_id uuid, amount bigint)"


async def rehearse(engine, workers, world, workflow, argument):
    """The boundaries of one undisturbed run, in order."""
    world.mkdir()
    task = (await engine.enqueue(workflow, argument, actor="test", queue="rehearsal")).execution
    worker = workers.start(world=str(world), queue="rehearsal")
    assert (await ended(engine, task.id)).status == "completed"
    worker.signal(15)
    await worker.gone()
    return (world / "boundaries").read_text().splitlines()


async def kill_at(engine, workers, world, *, number, workflow, argument):
    """The end of an execution whose worker dies at this boundary; a run that has fewer of them ends undisturbed."""
    world.mkdir()
    queue = f"boundary-{number}"
    task = (await engine.enqueue(workflow, argument, actor="test", queue=queue)).execution
    first: Worker = workers.start(world=str(world), queue=queue, kill_at=number, grace=0.05)

    async def over() -> bool:
        return not first.alive or (await engine.get(task.id)).finished_at is not None

    await eventually(over, within=60)
    second = workers.start(world=str(world), queue=queue, grace=0.05)
    done = await ended(engine, task.id, within=60)
    second.kill()
    if first.alive:
        first.kill()
    return done


async def rows(engine, query, *args):
    async with engine.database.session() as session:
        return await session.connection.fetch(query, *args)


async def at_each(places, one):
    """What is wrong at these boundaries: all of a run, in order, or some by their numbers."""
    numbered = places if isinstance(places, dict) else dict(enumerate(places, start=1))
    gate = asyncio.Semaphore(AT_ONCE)

    async def at(number: int, place: str) -> str | None:
        async with gate:
            wrong = await one(number)
            return f"boundary {number} ({place}): {wrong}" if wrong else None

    return [w for w in await asyncio.gather(*(at(n, p) for n, p in numbered.items())) if w]


async def test_children_and_maps_at_every_boundary(engine, workers, tmp_path):
    places = await rehearse(engine, workers, tmp_path / "rehearsal", "family", None)
    assert {"after start_child", "before suspend", "after open_map", "before feed_map", "after count_endings"} <= set(places)
    assert {"after wake_parents", "before complete", "after complete", "after take_endings", "after commit"} <= set(places)

    async def one(number: int) -> object:
        done = await kill_at(engine, workers, tmp_path / str(number), number=number, workflow="family", argument=None)
        children = await rows(engine, "select status, output::text from suture.executions where parent_id = $1", done.id)
        found = done.status, done.output, Counter(map(tuple, children))
        good = "completed", [20, 2, 4, 6], Counter({("completed", str(n)): 1 for n in (20, 2, 4, 6)})
        return found if found != good else None

    wrong = await at_each(places, one)
    print(f"each child once at {len(places) - len(wrong)} of {len(places)} boundaries")
    assert not wrong, wrong


KEYED = ("start_child", "open_map", "put_inputs", "feed_map", "count_endings", "complete")
"""Statements beside which a key could be lost, given twice, or kept for ever."""


async def test_children_keep_their_keys_wherever_a_worker_dies(engine, workers, tmp_path):
    places = await rehearse(engine, workers, tmp_path / "rehearsal", "keyed-family", None)
    chosen = {n: place for n, place in enumerate(places, start=1) if place.split()[-1] in KEYED}
    assert {place.split()[-1] for place in chosen.values()} == set(KEYED)

    async def one(number: int) -> object:
        done = await kill_at(engine, workers, tmp_path / str(number), number=number, workflow="keyed-family", argument=None)
        query = "select input::text, concurrency_key from suture.executions where parent_id = $1 order by input::text::int"
        children = [tuple(row) for row in await rows(engine, query, done.id)]
        async with engine.database.session() as session:
            most = await most_at_once(session.connection, of=f"e.parent_id = '{done.id}' and e.concurrency_key = 'k'", kind="begun")
        found = done.status, done.output, children, most
        good = "completed", [20, 2, 4, 6], [("1", "k"), ("2", "k"), ("3", None), ("10", "k")], 1
        return found if found != good else None

    wrong = await at_each(chosen, one)
    print(f"each child once and with its key at {len(chosen) - len(wrong)} of {len(chosen)} boundaries")
    assert not wrong, wrong


async def test_a_transactional_step_at_every_boundary(engine, workers, tmp_path, psql):
    await psql.execute(LEDGER)
    places = await rehearse(engine, workers, tmp_path / "rehearsal", "billing", 1)
    await psql.execute("truncate public.ledger")
    assert {"before the caller's SQL", "after the caller's SQL", "before commit", "after commit", "before checkpoint"} <= set(places)

    async def one(number: int) -> object:
        done = await kill_at(engine, workers, tmp_path / str(number), number=number, workflow="billing", argument=1)
        bills = await rows(engine, "select amount from public.ledger where execution_id = $1", done.id)
        steps = [c.step_id for c in await engine.checkpoints(done.id)]
        found = done.status, len(bills), sorted(steps)
        return found if found != ("completed", 1, ["bill", "last", "prepare"]) else None

    wrong = await at_each(places, one)
    print(f"committed once at {len(places) - len(wrong)} of {len(places)} boundaries")
    assert not wrong, wrong


async def test_a_worker_that_is_frozen_inside_a_transaction_commits_nothing_of_it(engine, workers, tmp_path, psql):
    await psql.execute(LEDGER)
    (tmp_path / "hold-bills").touch()
    task = (await engine.enqueue("billing", 7, actor="test")).execution
    frozen = workers.start(lease=3, heartbeat=0.5)
    await workers.noted("inside")
    frozen.signal(signal.SIGSTOP)
    frozen_at = await psql.fetchval("select clock_timestamp()")
    heir = workers.start(lease=3, heartbeat=0.5)
    assert (await workers.noted("inside", times=2, within=60))[-1] == heir.pid
    (tmp_path / "hold-bills").unlink()
    workers.release()
    done = await ended(engine, task.id)
    its_own = "select count(*) from pg_stat_activity where state = 'idle in transaction' and xact_start < $1"
    assert await psql.fetchval(its_own, frozen_at) == 1
    frozen.signal(signal.SIGCONT)

    async def over() -> bool:
        """Its transaction was open all the time, and ends now."""
        open_ones = "select count(*) from pg_stat_activity where datname = current_database() and state = 'idle in transaction'"
        return await psql.fetchval(open_ones) == 0

    await eventually(over)
    assert (done.status, done.output) == ("completed", 7)
    assert await psql.fetchval("select array_agg(amount) from public.ledger") == [7]


@pytest.mark.parametrize("times", [4])
async def test_a_map_goes_on_while_its_workers_are_killed_one_after_the_other(engine, workers, tmp_path, times):
    task = (await engine.enqueue("family", None, actor="test")).execution
    for number in range(times):
        worker = workers.start(kill_at=12 + 7 * number, grace=0.05)

        async def over(worker: Worker = worker) -> bool:
            return not worker.alive or (await engine.get(task.id)).finished_at is not None

        await eventually(over, within=60)
    workers.start(grace=0.05)
    assert (await ended(engine, task.id, within=60)).output == [20, 2, 4, 6]


async def test_families_on_workers_that_are_killed_at_random_end_whole(engine, workers, psql):
    """Three workers at a time, twelve kills: nobody is lost, doubled or left waiting, and nothing is left untold."""
    chance = random.Random(11)
    tasks = [(await engine.enqueue("family", None, actor="test")).execution.id for _ in range(20)]
    crew = [workers.start(grace=0.05, crash_limit=50) for _ in range(3)]
    for _ in range(12):
        await asyncio.sleep(0.1 + chance.random() / 4)  # as long as they are left alone
        place = chance.randrange(3)
        crew[place].kill()
        crew[place] = workers.start(grace=0.05, crash_limit=50)
    for task in tasks:
        done = await ended(engine, task, within=120)
        assert (done.status, done.output) == ("completed", [20, 2, 4, 6])
    found = await psql.fetch("select workflow, status, count(*) from suture.executions group by 1, 2 order by 1, 2")
    assert [tuple(row) for row in found] == [("family", "completed", 20), ("noted", "completed", 80)]

    async def told() -> bool:
        return await psql.fetchval("select (select count(*) from suture.tidings) + (select count(*) from suture.fan_outs) = 0")

    await eventually(told)
