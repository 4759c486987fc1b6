"""I7: killed at any boundary, before and after each statement, commit and act, an effect is seen exactly once outside."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from suture.engine import NEVER, Run, workflow
from suture.errors import TemporaryError
from tests.postgres.engine.stage import ended, eventually, running

EFFECTS = ("announce", "deliver")
AT_ONCE = 4
"""Boundaries that are tried at the same time, each with its own queue and world."""


async def test_one_effect_at_every_boundary_wherever_its_worker_is_killed(engine, workers, tmp_path):
    places = await rehearse(engine, workers, tmp_path / "rehearsal")
    assert {"before intend", "after intend", "before confirm", "after confirm", "before announce", "after announce"} <= set(places)
    assert {"after claim", "before commit", "after commit", "before complete", "after complete", "before retry"} <= set(places)
    gate = asyncio.Semaphore(AT_ONCE)

    async def at(number: int, place: str) -> str | None:
        async with gate:
            return await kill_at(engine, workers, tmp_path / str(number), number, place)

    wrong = [w for w in await asyncio.gather(*(at(n, p) for n, p in enumerate(places, start=1))) if w]

    print(f"exactly one effect at {len(places) - len(wrong)} of {len(places)} boundaries")
    assert not wrong, wrong


async def rehearse(engine, workers, world):
    """The boundaries of one undisturbed run, in order."""
    world.mkdir()
    task = (await engine.enqueue("effects", None, actor="test", queue="rehearsal")).execution
    worker = workers.start(world=str(world), queue="rehearsal")
    assert (await ended(engine, task.id)).status == "completed"
    worker.signal(15)
    await worker.gone()
    return (world / "boundaries").read_text().splitlines()


async def kill_at(engine, workers, world, number, place):
    """What was wrong after a kill at this boundary, if anything was."""
    world.mkdir()
    queue = f"boundary-{number}"
    task = (await engine.enqueue("effects", None, actor="test", queue=queue)).execution
    first = workers.start(world=str(world), queue=queue, kill_at=number, grace=0.05)
    await first.gone(within=60)
    second = workers.start(world=str(world), queue=queue, grace=0.05)
    done = await ended(engine, task.id, within=60)
    second.kill()
    counts = Counter(path.name.split(".")[0] for path in world.iterdir())
    found = {effect: counts[effect] for effect in EFFECTS}
    good = done.status == "completed" and found == dict.fromkeys(EFFECTS, 1)
    return None if good else f"boundary {number} ({place}): {done.status}, {found}"


async def test_a_confirmed_effect_is_known_to_every_later_execution(engine, database):
    acts = []

    @workflow("effect")
    async def effect(run: Run, key: str) -> int:
        async def act() -> int:
            acts.append(run.id)
            return len(acts)

        async def find() -> int | None:
            return None

        return await run.effect("open", kind="pull-request", key=key, find=find, act=act, returns=int)

    first, second, other = [(await engine.enqueue("effect", key, actor="test")).execution.id for key in ("a", "a", "b")]
    async with running(database, effect, concurrency=1):
        outputs = [(await ended(engine, id_)).output for id_ in (first, second, other)]
    assert outputs == [1, 1, 2]
    assert acts == [first, other]


async def test_two_executions_about_the_same_effect_at_once_act_once(engine, database, pass_time):
    """Both find nothing outside; the second stands back while the first, that noted its intent, lives."""
    acts, inside, leave = [], asyncio.Event(), asyncio.Event()

    @workflow("effect")
    async def effect(run: Run, _: None) -> str:
        async def act() -> str:
            acts.append(run.id)
            inside.set()
            await leave.wait()
            return "made"

        async def find() -> str | None:
            return None

        return await run.effect("open", key="same", find=find, act=act, returns=str)

    first, second = [(await engine.enqueue("effect", None, actor="test")).execution.id for _ in range(2)]
    async with running(database, effect):
        await asyncio.wait_for(inside.wait(), 30)

        async def stood_back() -> bool:
            moves = [*await engine.timeline(first), *await engine.timeline(second)]
            return any("EffectUnderWay" in move.reason for move in moves)

        await eventually(stood_back)
        leave.set()
        while "completed" not in {(await engine.get(id_)).status for id_ in (first, second)}:
            await asyncio.sleep(0.01)
        await pass_time(10)
        ends = [await ended(engine, id_) for id_ in (first, second)]
    assert [e.output for e in ends] == ["made", "made"]
    assert len(acts) == 1
    assert {e.attempt for e in ends} == {1}  # to stand back is no failure


async def test_an_intent_whose_execution_ended_is_taken_over_by_finding_first(engine, database):
    world = []

    @workflow("effect", retry=NEVER)
    async def effect(run: Run, fails: bool) -> str:
        async def act() -> str:
            world.append("made")
            if fails:
                raise TemporaryError("the answer was lost")
            return "made"

        async def find() -> str | None:
            return world[0] if world else None

        return await run.effect("open", key="same", find=find, act=act, returns=str)

    first = (await engine.enqueue("effect", True, actor="test")).execution
    async with running(database, effect):
        assert (await ended(engine, first.id)).status == "error"
        second = (await engine.enqueue("effect", False, actor="test")).execution
        assert (await ended(engine, second.id)).output == "made"
    assert world == ["made"]


async def test_a_failing_effect_is_tried_again_and_looks_first(engine, database):
    seen = []

    @workflow("effect")
    async def effect(run: Run, _: None) -> str:
        async def act() -> str:
            seen.append("act")
            raise TemporaryError("no answer", delay=timedelta(0))

        async def find() -> str | None:
            seen.append("find")
            return "found" if seen.count("find") == 3 else None

        return await run.effect("open", key="same", find=find, act=act, returns=str)

    task = (await engine.enqueue("effect", None, actor="test")).execution
    async with running(database, effect):
        done = await ended(engine, task.id)
    assert (done.output, done.attempt) == ("found", 3)
    assert seen == ["find", "act", "find", "act", "find"]


async def test_the_first_confirmation_counts(engine, take):
    for _ in range(2):
        await engine.enqueue("w", None, actor="test")
    first, second = await take(), await take()
    about = {"kind": "pull-request", "key": "a", "attempts": 1, "started_at": datetime.now(UTC)}
    await first.intend("open", kind="pull-request", key="a")
    assert await first.confirm("open", "first", **about) == "first"
    assert await second.confirm("open", "second", **about) == "first"
    assert (await second.intend("open", kind="pull-request", key="a")) == ("done", "first")
