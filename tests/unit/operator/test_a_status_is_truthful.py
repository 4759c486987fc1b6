"""The status says what the row says, for the generation that it names, and is written only when it changes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.engine import Execution, Failure
from suture.operator.conditions import differs, line, status, summarized, surplus, word
from suture.operator.reconcile import Refuse
from suture.operator.resource import Task
from suture.remediation.incident import Outcome, PullRequest
from tests.unit.operator.things import NOW, ROWS, TASKS, row, task

REFUSALS = st.none() | st.builds(Refuse, st.sampled_from(["UnknownWorkflow", "Conflict"]), st.text(max_size=50))


def conditions(shown: dict[str, Any]) -> dict[str, str]:
    return {c["type"]: c["status"] for c in shown["conditions"]}


@given(TASKS, st.none() | ROWS, REFUSALS, st.booleans())
def test_ready_means_completed_for_this_generation(seen: Task, found: Execution | None, refusal: Refuse | None, away: bool) -> None:
    shown = status(seen, found, now=NOW, refusal=refusal, away=away)

    assert (conditions(shown)["Ready"] == "True") == (found is not None and found.status == "completed")
    assert {c["observedGeneration"] for c in shown["conditions"]} == {shown["observedGeneration"]} == {seen.meta.generation}
    assert list(conditions(shown).values()).count("True") == (0 if shown["state"] == "suspended" else 1)


@given(TASKS, st.none() | ROWS, st.timedeltas(timedelta(0), timedelta(days=9)))
def test_what_is_shown_is_not_written_again(seen: Task, found: Execution | None, later: timedelta) -> None:
    first = status(seen, found, now=NOW)

    again = status(replace(seen, status=first), found, now=NOW + later)

    assert again == first
    assert not differs(first, again)


@given(TASKS, ROWS, ROWS)
def test_the_time_of_a_condition_moves_with_its_status_alone(seen: Task, before: Execution, after: Execution) -> None:
    first = status(seen, before, now=NOW)
    second = status(replace(seen, status=first), after, now=NOW + timedelta(hours=1))

    for old, new in zip(first["conditions"], second["conditions"], strict=True):
        assert (old["lastTransitionTime"] == new["lastTransitionTime"]) == (old["status"] == new["status"])


@given(
    TASKS,
    ROWS,
    st.dictionaries(st.sampled_from(["state", "result", "attempt", "pullRequest", "hacked", "step"]), st.text() | st.integers()),
)
def test_another_hand_is_seen_and_undone(seen: Task, found: Execution, written: dict[str, Any]) -> None:
    truth = status(seen, found, now=NOW)
    shown = truth | written

    assert differs(shown, truth) == (shown != truth)
    kept = {k: v for k, v in (shown | surplus(shown, truth)).items() if v is not None}
    assert kept.keys() <= truth.keys()


def test_conditions_of_other_types_are_left_alone() -> None:
    truth = status(task(), row(), now=NOW)
    foreign = {"type": "example.com/Seen", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-11-30T12:00:00Z"}

    assert not differs(truth | {"conditions": [foreign, *reversed(truth["conditions"])]}, truth)
    assert surplus(truth | {"conditions": [foreign]}, truth) == {}


@pytest.mark.parametrize(
    ("found", "state", "reason"),
    [
        (row("enqueued"), "enqueued", "Enqueued"),
        (row("enqueued", error=Failure("RateLimited", "slow down")), "enqueued", "Retrying"),
        (row("running", step="say"), "running", "Running"),
        (row("waiting", step="cool-down"), "waiting", "Waiting"),
        (row("waiting", step="approval"), "waiting", "WaitingForApproval"),
        (row("completed"), "completed", "Completed"),
        (row("error", error=Failure("NotFound", "no such pod")), "error", "NotFound"),
        (row("error", error=Failure("weird reason!", "x")), "error", "weirdreason"),
        (row("cancelled"), "cancelled", "Cancelled"),
    ],
)
def test_each_state_has_its_reason(found: Execution, state: str, reason: str) -> None:
    shown = status(task(), found, now=NOW)

    assert (shown["state"], shown["reason"]) == (state, reason)


def test_a_remediation_shows_its_sentence_and_its_pull_request() -> None:
    request = PullRequest(repository="acme/shop", branch="suture/3f2a", commit="c0ffee", number=7, url="https://example.invalid/7")
    outcome = Outcome(state="proposed", sentence="The image tag does not exist; a pull request sets it back.", pull_request=request)

    shown = status(task(), row("completed", workflow="remediate", output=outcome.model_dump(mode="json")), now=NOW, digest="ab12")

    assert shown["result"] == outcome.sentence
    assert shown["reason"] == "Proposed"
    assert shown["pullRequest"] == {"branch": "suture/3f2a", "url": "https://example.invalid/7"}
    assert shown["approval"] == {"digest": "ab12"}
    assert conditions(shown)["Ready"] == "True"


@given(st.text(), st.integers(1, 100))
def test_a_line_is_one_line_and_fits(text: str, limit: int) -> None:
    shown = line(text, limit)

    assert len(shown) <= limit
    assert shown.isprintable() or not any(c in shown for c in "\n\r\t\x1b\x00")
    shown.encode()


@given(st.text())
def test_a_reason_is_what_a_condition_takes(text: str) -> None:
    found = word(text)

    assert found[0].isalpha()
    assert found.isascii()


@given(ROWS)
def test_a_row_in_memory_shows_the_same_without_its_payloads(found: Execution) -> None:
    large = found._replace(input={"text": "x" * 5000}, output={"text": "y" * 5000} if found.output else None)

    small = summarized(large)

    assert small.input is None
    assert status(task(), small, now=NOW) == status(task(), large, now=NOW)
