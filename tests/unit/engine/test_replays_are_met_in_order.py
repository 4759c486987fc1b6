"""I14: what is recorded is met by name; what began first in one claim is met first; tasks side by side get the turns they need."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from suture.engine.records import Checkpoint, Execution
from suture.engine.replay import ADDED, Replay
from suture.errors import ReplayMismatch

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def execution(**fields: Any) -> Execution:
    return Execution(**dict.fromkeys(Execution._fields) | fields)


def record(name: str, at: float, *, epoch: int = 1, owner: int = 1, kind: str = "step", output: Any = None) -> Checkpoint:
    began = NOON + timedelta(seconds=at)
    return Checkpoint(name, kind, output, 1, UUID(int=owner), epoch, began, began)


def replay(*records: Checkpoint, step: str | None = None, failures: tuple[str, ...] = ()) -> Replay:
    return Replay(execution(step=step), {r.step_id: r for r in records}, dict.fromkeys(failures, 1))


def test_a_step_is_met_by_its_name_once_and_as_its_kind():
    one = replay(record("a", 0))
    assert one.meet("a", "step") is not None
    assert one.meet("new", "step") is None
    with pytest.raises(ReplayMismatch, match="used twice"):
        one.meet("a", "step")
    with pytest.raises(ReplayMismatch, match="used twice"):  # nothing goes on after it
        one.meet("b", "step")
    with pytest.raises(ReplayMismatch, match="recorded as a step and the code now has a sleep"):
        replay(record("a", 0)).meet("a", "sleep")


def test_a_later_step_of_one_claim_misses_the_earlier_one():
    one = replay(record("a", 0), record("b", 1), record("c", 2))
    assert (one.missing("a"), one.missing("b"), one.missing("c")) == (set(), {"a"}, {"b"})
    one.meet("a", "step")
    assert one.missing("b") == set()


def test_between_claims_and_owners_nothing_is_said():
    """Code may have changed between them: a step that was added later stands in front."""
    one = replay(record("b", 0, epoch=1), record("a", 1, epoch=2), record("x", 2, epoch=2, owner=2))
    assert (one.missing("a"), one.missing("b"), one.missing("x")) == (set(), set(), set())


@pytest.mark.parametrize("how", [{"step": "go"}, {"failures": ("go",)}], ids=["waited", "failed"])
def test_what_had_begun_misses_all_that_was_recorded_unless_it_was_added_in_front(how):
    assert replay(record("a", 0), record("b", 5, epoch=2), **how).missing("go") == {"a", "b"}
    marked = record(ADDED + "go", 1, epoch=3, kind="added")
    assert replay(record("a", 0), marked, **how).missing("go") == set()


async def test_a_later_one_is_held_back_until_the_earlier_one_has_begun():
    one = replay(record("slow", 0), record("quick", 1))
    order = []

    async def branch(name: str, hops: int) -> None:
        for _ in range(hops):
            await asyncio.sleep(0)
        one.meet(name, "step")
        await one.expect(name, one.missing(name))
        order.append(name)

    await asyncio.gather(branch("quick", 0), branch("slow", 5))
    assert order == ["slow", "quick"]


async def test_what_nobody_comes_to_is_loud_and_names_it():
    one = replay(*(record(f"step-{n}", n) for n in range(9)), step="go")
    one.meet("go", "wait")
    with pytest.raises(ReplayMismatch, match=r"'go' without 'step-0', .*'step-4' and 4 more") as told:
        await one.expect("go", one.missing("go"))
    with pytest.raises(ReplayMismatch):
        one.finish()
    assert one.mismatch is told.value


def test_at_the_end_all_but_taken_patches_must_have_been_met():
    taken, left = record("p", 0, kind="patch", output=True), record("q", 1, kind="patch", output=False)
    replay(taken).finish()
    with pytest.raises(ReplayMismatch, match="without 'q'"):
        replay(taken, left).finish()
    with pytest.raises(ReplayMismatch, match="without 'a'"):
        replay(record("a", 0)).finish()


def test_a_taken_patch_that_is_gone_breaks_no_chain():
    one = replay(record("a", 0), record("p", 1, kind="patch", output=True), record("b", 2))
    one.meet("a", "step")
    assert one.missing("b") == set()


def test_past_is_who_has_records_or_a_begun_step_before_them():
    assert not replay().is_past()
    assert replay(record("a", 0)).is_past()
    assert replay(step="go").is_past()
    assert replay(failures=("go",)).is_past()
    one = replay(record("a", 0), step="a")
    one.meet("a", "step")
    assert not one.is_past()


def test_a_recorded_failure_stands_for_any_kind():
    failed = replace(record("a", 0), kind="failure")
    assert replay(failed).meet("a", "effect") is failed
