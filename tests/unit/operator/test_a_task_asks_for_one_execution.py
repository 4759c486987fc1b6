"""Whatever is seen, in whatever order and however often, a Task asks for one execution and no more."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.engine import Execution, is_terminal
from suture.errors import InvalidRequest
from suture.operator.reconcile import Action, Cancel, Enqueue, Guard, Linger, Refuse, Release, Rest, reconcile
from suture.operator.resource import FINALIZER, Spec, Task
from tests.unit.operator.things import NOW, ROWS, TASKS, UID, known, row, task

KNOWN = known()


def ask(seen: Task, found: Execution | None) -> Action:
    return reconcile(seen.spec, seen.meta, found, workflows=KNOWN)


# The spec's life: only these fields can change, and each only once.
STEERED = st.permutations([("suspend", False), ("cancel", True)])


@given(STEERED, st.booleans(), st.data())
def test_all_generations_of_a_task_name_one_operation(steered: list[tuple[str, bool]], held: bool, data: st.DataObject) -> None:
    spec: dict[str, Any] = {"suspend": held}
    versions = [task(spec)]
    for generation, (name, value) in enumerate(steered, start=2):
        spec[name] = value
        versions.append(task(spec, generation=generation))
    # Replicas see any version in any order, and none of them sees a row yet.
    seen = data.draw(st.lists(st.sampled_from(versions), max_size=20))

    asked = [action for version in seen if isinstance(action := ask(version, None), Enqueue)]

    assert {(action.operation_key, action.workflow, str(action.input)) for action in asked} <= {
        (f"task:{UID}", "echo", "{'text': 'hello'}")
    }
    assert {action.deadline_at for action in asked} <= {None}


@given(TASKS, ROWS)
def test_where_there_is_a_row_nothing_is_enqueued(seen: Task, found: Execution) -> None:
    assert not isinstance(ask(seen, found), Enqueue | Refuse)


@given(TASKS, st.none() | ROWS)
def test_the_same_look_gives_the_same_action(seen: Task, found: Execution | None) -> None:
    assert ask(seen, found) == ask(seen, found)


@given(TASKS)
def test_nothing_begins_unguarded_unwanted_or_unreadable(seen: Task) -> None:
    if not isinstance(ask(seen, None), Enqueue):
        return
    assert isinstance(seen.spec, Spec)
    assert not seen.spec.cancel
    assert not seen.spec.suspend
    assert not seen.meta.deleting
    assert FINALIZER in seen.meta.finalizers


@pytest.mark.parametrize("spec", [{"cancel": True}, {"suspend": True}, {"cancel": True, "suspend": True}])
def test_a_task_that_is_held_back_or_cancelled_never_begins(spec: dict[str, Any]) -> None:
    assert ask(task(spec, guarded=False), None) == Rest()
    assert ask(task(spec), None) == Release()


@given(TASKS, st.none() | ROWS)
def test_acting_comes_to_rest(seen: Task, found: Execution | None) -> None:
    """Guard, enqueue, cancel and release each bring it nearer to the end: no cycle makes a hot loop."""
    guarded = FINALIZER in seen.meta.finalizers
    taken = []
    for _ in range(6):
        action = ask(seen, found)
        if isinstance(action, Rest | Linger | Refuse):
            break
        taken.append(type(action))
        match action:
            case Guard() | Release():
                guarded = isinstance(action, Guard)
                metadata = {"deleting": seen.meta.deleting, "generation": seen.meta.generation, "guarded": guarded}
                seen = Task(task(**metadata).meta, seen.spec, seen.status)
            case Enqueue():
                found = row("enqueued", labels=action.labels)
            case Cancel():
                found = row("cancelled", cancel_requested_by="operator")
    else:
        pytest.fail(f"no rest after {taken}")
    assert len(taken) <= 4


def test_a_task_whose_row_retention_removed_never_runs_again() -> None:
    ended = {"executionId": "0193", "finishedAt": "2026-11-30T12:00:00Z", "state": "completed"}

    assert ask(task(status=ended, guarded=False), None) == Rest()


@pytest.mark.parametrize("status", ["enqueued", "running", "waiting"])
def test_a_deleted_task_cancels_then_lingers_then_goes(status: str) -> None:
    gone = task(deleting=True)

    assert isinstance(ask(gone, row(status)), Cancel)
    assert ask(gone, row(status, cancel_requested_by="operator")) == Linger()
    assert ask(gone, row("cancelled")) == Release()
    assert ask(gone, None) == Release()


def test_a_task_that_shares_an_execution_does_not_steer_it() -> None:
    foreign = row("running", labels={"uid": "another"})

    assert ask(task({"cancel": True}, guarded=False), foreign) == Rest()
    assert ask(task(deleting=True), foreign) == Release()


def test_the_finalizer_is_there_while_the_execution_lives_and_no_longer() -> None:
    assert ask(task(guarded=False), row("running")) == Guard()
    assert ask(task(), row("running")) == Rest()
    assert all(ask(task(), row(status)) == Release() for status in ("completed", "error", "cancelled"))  # type: ignore[arg-type]
    assert is_terminal("error")


def test_the_spec_reaches_the_row() -> None:
    wanted = {"operationKey": "deploy-42", "queue": "fast", "priority": 7, "maxAttempts": 3, "deadline": "1h30m"}

    action = ask(task(wanted), None)

    assert isinstance(action, Enqueue)
    assert action.operation_key == "task:shop/deploy-42"
    assert (action.queue, action.priority, action.max_attempts, action.version) == ("fast", 7, 3, 3)
    assert action.deadline_at == NOW + timedelta(minutes=90)
    assert action.labels == {"uid": UID, "namespace": "shop", "task": "web", "generation": "1"}


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"type": "coffee"}, "UnknownWorkflow", "coffee"),
        ({"input": {"text": 1}}, "InvalidRequest", "input.text"),
        ({"deadline": "soon"}, "InvalidRequest", "`soon`"),
        ({"priority": "high"}, "InvalidRequest", "spec.priority"),
    ],
)
def test_a_refusal_names_the_value(spec: dict[str, Any], reason: str, says: str) -> None:
    action = ask(task(spec), None)

    assert isinstance(action, Refuse)
    assert action.reason == reason
    assert says in action.message


def test_a_task_cannot_ask_for_what_fails_in_another_namespace() -> None:
    """Who may create Tasks in one namespace must not read, through the worker's rights, the logs of another."""
    for namespace, expected in (("shop", Enqueue), ("kube-system", Refuse)):
        workload = {"kind": "Deployment", "namespace": namespace, "name": "web"}

        action = ask(task({"type": "remediate", "input": {"workload": workload}}), None)

        assert isinstance(action, expected), namespace


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
)
def test_no_spec_makes_reading_fail(spec: object) -> None:
    metadata = {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "1", "creationTimestamp": "2026-11-30T12:00:00Z"}

    assert isinstance(Task.read({"metadata": metadata, "spec": spec}).spec, Spec | InvalidRequest)
