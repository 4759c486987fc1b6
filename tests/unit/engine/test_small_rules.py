"""The engine's pure rules: states, ids, what an error means, how workflows and statements are named."""

import time
from uuid import UUID

import pytest

from suture.engine import LIVE, MOVES, NEVER, STATUSES, Run, Workflows, is_terminal, workflow
from suture.engine.ids import uuid7
from suture.engine.outcome import explain
from suture.engine.statements import load
from suture.errors import InvalidRequest, PermanentError, RateLimited, UnknownWorkflow


def test_every_state_has_its_moves_and_the_ends_have_none():
    assert set(MOVES) == set(STATUSES)
    assert {s for s in STATUSES if is_terminal(s)} == {"completed", "error", "cancelled"}
    assert {"enqueued", "running", "waiting"} == LIVE
    assert all(targets <= set(STATUSES) for targets in MOVES.values())


def test_every_state_can_be_reached_from_the_first():
    reached, todo = set(), ["enqueued"]
    while todo:
        state = todo.pop()
        if state not in reached:
            reached.add(state)
            todo.extend(MOVES[state])
    assert reached == set(STATUSES)


def test_ids_are_of_version_7_unique_and_in_the_order_of_time():
    first = [uuid7() for _ in range(1000)]
    time.sleep(0.002)  # the stamp counts milliseconds
    later = uuid7()
    assert len(set(first)) == 1000
    assert all(id_ < later for id_ in first)
    assert (later.version, later.variant) == (7, UUID(int=0x8 << 60).variant)


def test_only_our_own_errors_are_told_in_full():
    assert explain(RateLimited("the forge asks for patience"), step="push").message == "the forge asks for patience"
    told = explain(ConnectionError("postgresql://me:hunter2@db"), step="push")
    assert (told.reason, told.message, told.step) == ("UnexpectedError", "ConnectionError; the worker's log has the details", "push")


def test_a_message_that_jsonb_cannot_keep_is_still_written():
    text = explain(PermanentError("a\0b\ud800c" + "x" * 10_000)).to_json()
    assert "\\u0000" not in text
    assert "\\ud800" not in text
    assert len(text) < 9_000


def test_a_workflow_needs_a_name_that_can_be_a_label():
    for name in ("", "Upper", "a b", "-a", "a" * 64, "a\n"):
        with pytest.raises(ValueError, match="use up to 63 lower-case letters"):
            workflow(name)


def test_a_registry_knows_each_name_once_and_says_what_it_knows():
    @workflow("one", retry=NEVER)
    async def one(run: Run, given: dict[str, int]) -> None: ...

    @workflow("one")
    async def another(run: Run, _: None) -> None: ...

    @workflow("two")
    async def two(run: Run) -> None: ...

    known = Workflows()
    known.add(one)
    known.add(one)
    with pytest.raises(ValueError, match="one is defined twice"):
        known.add(another)
    with pytest.raises(TypeError, match="takes \\(run, input\\)"):
        known.add(two)
    with pytest.raises(UnknownWorkflow, match=r"no workflow 'three'\. Known here: one"):
        known.get("three")
    with pytest.raises(InvalidRequest, match=r"input\.a: Input should be a valid integer"):
        known.get("one").read_input({"a": "hunter2"})


def test_each_statement_carries_its_name_to_the_server():
    for name, statement in load("suture.engine", "suture.remediation").items():
        assert statement.text.startswith(f"/* {name} */")
        assert "--" not in statement.text.split("\n")[0]
