"""I14: an added step is safe; a removed or reordered one is loud before anything is done that rests on it; versions stand side by side."""

import asyncio
import random
from datetime import timedelta
from typing import Any

import pytest

from suture.engine import NEVER, Run, Runner, Workflows, workflow
from suture.errors import PermanentError, UnknownWorkflow
from tests.postgres.engine.stage import QUICK, ended, eventually, reached, running


class OutOfStock(PermanentError):
    """There is none left."""


class Steps:
    """Notes which steps' bodies ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def __call__(self, run: Run, *names: str) -> None:
        for name in names:
            await run.step(name, self._body(name))

    def _body(self, name: str) -> Any:
        async def body() -> str:
            self.ran.append(name)
            return name

        return body


@pytest.fixture
def steps() -> Steps:
    return Steps()


def code(body: Any, *, version: int = 1, retry: Any = NEVER) -> Any:
    @workflow("w", version=version, retry=retry)
    async def w(run: Run, _: None) -> Any:
        return await body(run)

    return w


async def waiting_in(engine, database, old) -> Any:
    """An execution that the old code has brought to its wait."""
    task = (await engine.enqueue("w", None, actor="test")).execution
    async with running(database, old):
        await reached(engine, task.id, "waiting")
    return task.id


async def gone_on(engine, database, new, task, *, event: str = "go") -> Any:
    await engine.emit(task, event, None, actor="test")
    async with running(database, new):
        return await ended(engine, task)


def old_code(steps: Steps) -> Any:
    async def old(run: Run) -> None:
        await steps(run, "a", "b")
        await run.wait("go", type(None))
        await steps(run, "c")

    return code(old)


async def test_a_removed_step_is_loud_before_anything_follows_the_wait(engine, database, steps):
    async def new(run: Run) -> None:
        await steps(run, "a")
        await run.wait("go", type(None))
        await steps(run, "c")

    task = await waiting_in(engine, database, old_code(steps))
    done = await gone_on(engine, database, code(new), task)
    assert (done.status, done.error.reason) == ("error", "ReplayMismatch")
    assert "'go' without 'b'" in done.error.message
    assert steps.ran == ["a", "b"]
    assert [letter.reason for letter in await engine.dead_letters()] == ["ReplayMismatch"]


async def test_a_renamed_step_is_loud_before_anything_follows_the_wait(engine, database, steps):
    async def new(run: Run) -> None:
        await steps(run, "a", "b2")
        await run.wait("go", type(None))
        await steps(run, "c")

    done = await gone_on(engine, database, code(new), await waiting_in(engine, database, old_code(steps)))
    assert (done.error.reason, steps.ran) == ("ReplayMismatch", ["a", "b", "b2"])


async def test_reordered_steps_are_loud(engine, database, steps):
    async def new(run: Run) -> None:
        await steps(run, "b", "a")
        await run.wait("go", type(None))

    done = await gone_on(engine, database, code(new), await waiting_in(engine, database, old_code(steps)))
    assert "'b' without 'a'" in done.error.message
    assert steps.ran == ["a", "b"]


async def test_a_step_that_moved_behind_the_wait_is_loud(engine, database, steps):
    async def new(run: Run) -> None:
        await steps(run, "a")
        await run.wait("go", type(None))
        await steps(run, "b", "c")

    done = await gone_on(engine, database, code(new), await waiting_in(engine, database, old_code(steps)))
    assert (done.error.reason, steps.ran) == ("ReplayMismatch", ["a", "b"])


async def test_a_step_removed_at_the_end_is_loud_at_the_end(engine, database, steps, pass_time):
    """Nothing waits behind it: only the end of the code tells that it does not come."""

    async def old(run: Run) -> None:
        await steps(run, "a", "b")
        raise ConnectionError  # between steps

    async def new(run: Run) -> None:
        await steps(run, "a")

    task = (await engine.enqueue("w", None, actor="test")).execution

    async def failed() -> bool:
        return (await engine.get(task.id)).attempt == 2

    async with running(database, code(old, retry=QUICK.__class__(attempts=3, initial=timedelta(minutes=5)))):
        await eventually(failed)
    await pass_time(3600)
    async with running(database, code(new)):
        done = await ended(engine, task.id)
    assert "ended without 'b'" in done.error.message


async def test_a_mismatch_cannot_be_swallowed(engine, database, steps):
    async def new(run: Run) -> str:
        await steps(run, "a")
        try:
            await run.wait("go", type(None))
        except Exception:  # noqa: BLE001 (as careless code does)
            await steps(run, "c")
        return "fine"

    done = await gone_on(engine, database, code(new), await waiting_in(engine, database, old_code(steps)))
    assert (done.status, done.error.reason, steps.ran) == ("error", "ReplayMismatch", ["a", "b"])


async def test_a_mismatch_is_parked_and_goes_on_with_mended_code(engine, database, steps):
    async def broken(run: Run) -> None:
        await run.wait("go", type(None))

    old = old_code(steps)
    task = await waiting_in(engine, database, old)
    await gone_on(engine, database, code(broken), task)
    again = await engine.requeue(task, actor="test")
    async with running(database, old):  # the event had come, and still counts
        assert (await ended(engine, again.id)).status == "completed"
    assert steps.ran == ["a", "b", "c"]


@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_an_added_step_is_safe_even_when_it_fails_and_the_run_is_lost(engine, database, steps, place):
    """It is new in front of recorded ones; it fails twice, and then later runs meet it as a recorded one."""
    failures = [ConnectionError(), ConnectionError()]

    async def shaky() -> str:
        if failures:
            raise failures.pop()
        steps.ran.append("new")
        return "new"

    async def new(run: Run) -> str:
        for name in ("a", "b"):
            if place == ("first" if name == "a" else "middle"):
                await run.step("new", shaky, retry=QUICK)
            await steps(run, name)
        if place == "last":
            await run.step("new", shaky, retry=QUICK)
        await run.wait("go", type(None))
        await run.sleep("pause", timedelta(0))
        await run.wait("again", type(None))
        await steps(run, "c")
        return "done"

    task = await waiting_in(engine, database, old_code(steps))
    changed = code(new, retry=QUICK)
    await engine.emit(task, "go", None, actor="test")
    async with running(database, changed):

        async def waits() -> bool:
            found = await engine.get(task)
            return found.finished_at is not None or (found.status == "waiting" and found.step == "again")

        await eventually(waits)
    done = await gone_on(engine, database, changed, task, event="again")
    assert (done.status, done.output, steps.ran) == ("completed", "done", ["a", "b", "new", "c"])


async def test_steps_side_by_side_give_no_false_alarm(engine, database):
    """Branches of random length on workers that hand the execution back at random moments: however they interleave, nothing is amiss."""
    chance = random.Random(7)

    @workflow("w", retry=QUICK)
    async def w(run: Run, seed: int) -> int:
        dice = random.Random(seed)
        delays = [[dice.random() / 100 for _ in range(dice.randint(1, 4))] for _ in range(dice.randint(2, 5))]
        gate = asyncio.Semaphore(dice.randint(1, 3))

        async def branch(number: int) -> int:
            if seed % 2:
                async with gate:
                    for at, delay in enumerate(delays[number]):
                        await run.step(f"{number}-{at}", body, delay)
            else:  # a place for each step: the next one may be another branch's
                for at, delay in enumerate(delays[number]):
                    async with gate:
                        await run.step(f"{number}-{at}", body, delay)
            return len(delays[number])

        async def body(delay: float) -> None:
            await asyncio.sleep(delay)
            if dice.random() < 0.1:
                raise ConnectionError

        await run.step("before", body, 0.0)
        if dice.random() < 0.5:
            counts = await asyncio.gather(*(branch(n) for n in range(len(delays))))
        else:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(branch(n)) for n in range(len(delays))]
            counts = [task.result() for task in tasks]
        await run.step("after", body, 0.0)
        return sum(counts)

    tasks = [(await engine.enqueue("w", seed, actor="test")).execution.id for seed in range(12)]
    patient = 0
    while not all([(await engine.get(task)).finished_at for task in tasks]):
        async with running(database, w, name=f"worker-{patient}"):
            await asyncio.sleep(0.05 + chance.random() / 5)  # as long as this worker lives
        patient += 1
        assert patient < 100
    ends = [await engine.get(task) for task in tasks]
    # A step may use up its tries; that is no mismatch.
    assert {one.error.reason for one in ends if one.status == "error" and one.error} <= {"UnexpectedError"}
    assert sum(one.status == "completed" for one in ends) > len(ends) / 2
    assert max(one.epoch for one in ends) > 2
    assert patient > 1


async def test_a_step_removed_beside_the_line_is_loud_before_anything_follows(engine, database, steps):
    async def old(run: Run) -> None:
        await asyncio.gather(steps(run, "left-1", "left-2"), steps(run, "right-1"))
        await run.wait("go", type(None))

    async def new(run: Run) -> None:
        await asyncio.gather(steps(run, "left-2"), steps(run, "right-1"))
        await run.wait("go", type(None))
        await steps(run, "c")

    done = await gone_on(engine, database, code(new), await waiting_in(engine, database, code(old)))
    assert "'go' without 'left-1'" in done.error.message
    assert sorted(steps.ran) == ["left-1", "left-2", "right-1"]


async def test_a_step_in_line_waits_for_the_tasks_beside_it(engine, database, steps):
    """Recorded beside the line, and begun before the wait: it is met although its task has only just been made."""

    async def beside(run: Run) -> None:
        task = asyncio.create_task(steps(run, "beside-1", "beside-2"))
        await steps(run, "a")
        await task
        other = asyncio.create_task(steps(run, "late"))
        await asyncio.sleep(0)
        await run.step("b", _until(lambda: "late" in steps.ran))
        await run.wait("go", type(None))
        await other

    w = code(beside)
    done = await gone_on(engine, database, w, await waiting_in(engine, database, w))
    assert (done.status, sorted(steps.ran)) == ("completed", ["a", "beside-1", "beside-2", "late"])


def _until(look: Any) -> Any:
    async def body() -> None:
        while not look():
            await asyncio.sleep(0.001)

    return body


async def test_a_patch_is_taken_by_the_new_and_not_by_those_past_it(engine, database, steps):
    async def new(run: Run) -> bool:
        await steps(run, "a", "b")
        taken = await run.patched("audit-first")
        if taken:
            await steps(run, "audit")
        await run.wait("go", type(None))
        await run.sleep("pause", timedelta(0))
        await run.wait("again", type(None))
        return taken

    past = await waiting_in(engine, database, old_code(steps))
    changed = code(new)
    assert await at_the_second_wait(engine, database, changed, past) is False
    fresh = await waiting_in(engine, database, changed)
    assert await at_the_second_wait(engine, database, changed, fresh) is True
    assert steps.ran == ["a", "b", "a", "b", "audit"]


async def at_the_second_wait(engine, database, changed, task) -> bool:
    await engine.emit(task, "go", None, actor="test")
    async with running(database, changed):

        async def waits() -> bool:
            return (await engine.get(task)).step == "again"

        await eventually(waits)
    recorded = {c.step_id: c.output for c in await engine.checkpoints(task)}
    done = await gone_on(engine, database, changed, task, event="again")
    assert (done.status, done.output) == ("completed", recorded["audit-first"])
    return bool(done.output)


async def test_a_patch_is_retired_by_removing_it_and_the_old_branch_is_then_loud(engine, database, steps):
    async def patched(run: Run) -> None:
        await steps(run, "a")
        await steps(run, "new" if await run.patched("p") else "old")
        await run.wait("go", type(None))

    async def retired(run: Run) -> None:
        await steps(run, "a", "new")
        await run.wait("go", type(None))

    async def before(run: Run) -> None:
        await steps(run, "a", "old")
        await run.wait("go", type(None))

    fresh = await waiting_in(engine, database, code(patched))
    assert (await gone_on(engine, database, code(retired), fresh)).status == "completed"
    past = await waiting_in(engine, database, code(before))
    done = await gone_on(engine, database, code(retired), past)
    assert done.error.reason == "ReplayMismatch"


async def test_versions_stand_side_by_side_and_each_runs_on_its_own_code(engine, database):
    def version(number: int) -> Any:
        async def which(run: Run) -> int:
            return number

        return code(which, version=number)

    tasks = {v: (await engine.enqueue("w", None, actor="test", version=v)).execution.id for v in (1, 2, 3, 4, 6)}
    async with running(database, version(2), version(4), version(5)):
        for asked, runs in ((1, 2), (2, 2), (3, 4), (4, 4)):
            assert (await ended(engine, tasks[asked])).output == runs
        assert (await engine.get(tasks[6])).status == "enqueued"


def test_two_functions_of_one_version_and_a_version_that_is_not_there_are_named():
    async def body(run: Run) -> None: ...

    known = Workflows()
    known.add(code(body, version=2))
    with pytest.raises(ValueError, match="w is defined twice in version 2"):
        known.add(code(body, version=2))
    with pytest.raises(UnknownWorkflow, match="up to version 2, not 3"):
        known.get("w", 3)
    assert (known.get("w").version, known.get("w", 1).version) == (2, 2)
    assert isinstance(Runner, type)


async def test_a_failure_that_was_caught_is_the_same_in_every_later_run_and_its_body_does_not_run_again(engine, database):
    runs, caught = [], []

    class Odd(Exception):
        def __init__(self, code: int, *, secret: str) -> None:
            super().__init__(secret)
            self.code = code

    def failing(error: Exception) -> Any:
        async def body() -> None:
            runs.append(type(error).__name__)
            raise error

        return body

    async def caught_all(run: Run) -> list[str]:
        for number, error in enumerate((OutOfStock("no blue ones"), ValueError("password=hunter2"), TimeoutError(), Odd(1, secret="s"))):
            try:
                await run.step(f"step-{number}", failing(error), retry=NEVER)
            except OutOfStock as found:
                caught.append(f"{number} OutOfStock {found}")
            except (ValueError, TimeoutError) as found:
                caught.append(f"{number} {type(found).__name__} {found}")
            except PermanentError as found:
                caught.append(f"{number} {type(found).__name__} {found}")
        await run.wait("go", type(None))
        return caught[-4:]

    w = code(caught_all)
    task = await waiting_in(engine, database, w)
    done = await gone_on(engine, database, w, task)
    assert done.status == "completed"
    assert caught[:4] == caught[4:]
    assert len(runs) == 4
    assert "hunter2" not in str(caught)
    assert [text.split()[1] for text in caught[:4]] == ["OutOfStock", "ValueError", "TimeoutError", "StepFailed"]
