"""A Task is applied, a worker runs it, and kubectl tells the truth about it."""

import json
from pathlib import Path

import pytest

from tests.cluster.apiserver import ApiServer, KubectlError, eventually
from tests.cluster.operating import end, field


def test_a_task_runs_and_kubectl_wait_returns(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator, _ = made.operator(), made.worker()

        made.apply(made.task("hello", text="good morning"))
        made.kubectl("wait", "--for=condition=Ready", "task/hello", "--timeout=90s")

        header, line = made.kubectl("get", "tasks").splitlines()
        assert header.split() == ["NAME", "TYPE", "STATE", "STEP", "AGE", "RESULT"]
        assert line.split()[:4] == ["hello", "echo", "completed", "say"]
        assert line.endswith("good morning")
        (row,) = made.rows("hello")
        found = made.get("hello")
        assert found["status"]["executionId"] == str(row.id)
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"] == 1
        assert {c["type"]: c["status"] for c in found["status"]["conditions"]} == {
            "Ready": "True",
            "Reconciling": "False",
            "Stalled": "False",
        }
        assert "annotations" not in found["metadata"] or list(found["metadata"]["annotations"]) == [
            "kubectl.kubernetes.io/last-applied-configuration"
        ]
        eventually("a finished Task needs nobody to release it", lambda: "finalizers" not in made.get("hello")["metadata"])
        assert end(operator) == 0


def test_ready_speaks_for_the_generation_that_was_applied(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator, _ = made.operator(), made.worker()
        made.apply(made.task("old"))
        made.kubectl("wait", "--for=condition=Ready", "task/old", "--timeout=90s")
        end(operator)

        made.patch("old", {"spec": {"cancel": True}})

        with pytest.raises(KubectlError, match="timed out"):
            made.kubectl("wait", "--for=condition=Ready", "task/old", "--timeout=2s")
        made.operator()
        made.kubectl("wait", "--for=condition=Ready", "task/old", "--timeout=90s")
        assert made.get("old")["status"]["observedGeneration"] == 2
        assert [row.status for row in made.rows()] == ["completed"], "a cancellation that comes too late changes nothing"


def test_describe_tells_the_story_once(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.operator(), made.worker()

        made.apply(made.task("ask", "ask"))
        eventually("it waits for a person", lambda: made.condition("ask", "Reconciling").get("reason") == "WaitingForApproval")
        (row,) = made.rows("ask")
        made.ask(lambda engine: engine.emit(row.id, "approval", {"verdict": "approved"}, actor="test"))
        made.kubectl("wait", "--for=condition=Ready", "task/ask", "--timeout=90s")

        events = json.loads(made.kubectl("get", "events", "-o", "json"))["items"]
        reasons = [e["reason"] for e in events if e["involvedObject"]["name"] == "ask"]
        assert {"WaitingForApproval", "Completed"} <= set(reasons)
        assert len(reasons) <= 8
        assert "WaitingForApproval" in made.kubectl("describe", "task", "ask")


@pytest.mark.parametrize(
    ("spec", "reason", "names"),
    [
        ({"type": "make-coffee"}, "UnknownWorkflow", "make-coffee"),
        ({"input": {"text": 7}}, "InvalidRequest", "input.text"),
        ({"input": {"text": "a\0b"}}, "PayloadUnfit", "input.text"),
    ],
    ids=["unknown type", "input that does not fit", "input that Postgres cannot keep"],
)
def test_what_cannot_run_is_stalled_with_the_reason(
    apiserver: ApiServer, tmp_path: Path, spec: dict[str, object], reason: str, names: str
) -> None:
    with field(apiserver, tmp_path) as made:
        operator = made.operator()

        made.apply(made.task("bad", **spec), made.task("good"))
        made.kubectl("wait", "--for=condition=Stalled", "task/bad", "--timeout=90s")

        stalled = made.condition("bad", "Stalled")
        assert stalled["reason"] == reason
        assert names in stalled["message"]
        assert made.condition("bad", "Ready")["status"] == "False"
        eventually("the others go on", lambda: made.state("good") == "enqueued")
        assert made.rows("bad") == []
        assert operator.poll() is None
        made.kubectl("delete", "task", "bad", "--timeout=90s")


def test_a_failure_is_stalled_and_never_ready(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()

        made.apply(made.task("broken", "fail", text="the disk is full"))
        made.kubectl("wait", "--for=condition=Stalled", "task/broken", "--timeout=90s")

        assert made.condition("broken", "Ready")["status"] == "False"
        assert "the disk is full" in made.condition("broken", "Stalled")["message"]
        assert made.get("broken")["status"]["step"] == "break"
