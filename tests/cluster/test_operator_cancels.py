"""The spec steers one execution: cancel, suspend, delete. What would make another run is refused."""

import signal
import time
from pathlib import Path

import pytest

from tests.cluster.apiserver import ApiServer, KubectlError, eventually
from tests.cluster.operating import end, field


def test_a_spec_that_would_run_something_else_is_refused(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.apply(made.task("fixed", cancel=True))

        for field_name, value in {
            "type": "hold", "input": {"text": "other"}, "operationKey": "late", "queue": "fast", "priority": 5, "maxAttempts": 3,
            "deadline": "1h", "cancel": False, "suspend": True,
        }.items():  # fmt: skip
            with pytest.raises(KubectlError, match=f"spec.{field_name}"):
                made.patch("fixed", {"spec": {field_name: value}})
        for field_name, value in {"type": "Bad_Name", "priority": 5000, "deadline": "soon", "queue": "", "operationKey": "a b"}.items():
            with pytest.raises(KubectlError, match=f"spec.{field_name}"):
                made.apply(made.task("refused", **{field_name: value}))


def test_cancel_ends_what_runs_and_starts_nothing(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()
        made.apply(made.task("running", "spin"))
        eventually("it runs", lambda: made.state("running") == "running")

        made.patch("running", {"spec": {"cancel": True}})

        made.kubectl("wait", "--for=condition=Stalled", "task/running", "--timeout=90s")
        assert made.condition("running", "Stalled")["reason"] == "Cancelled"
        (row,) = made.rows("running")
        assert row.status == "cancelled"
        assert made.get("running")["status"]["observedGeneration"] == 2


def test_a_suspended_task_begins_when_it_is_let_go_and_once(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()
        made.apply(made.task("held", suspend=True), made.task("never", suspend=True))
        eventually("it is held back", lambda: made.state("held") == made.state("never") == "suspended")
        assert made.rows() == []

        made.patch("held", {"spec": {"suspend": False}})
        made.patch("never", {"spec": {"suspend": False, "cancel": True}})

        made.kubectl("wait", "--for=condition=Ready", "task/held", "--timeout=90s")
        made.kubectl("wait", "--for=condition=Stalled", "task/never", "--timeout=90s")
        assert [row.labels["task"] for row in made.rows()] == ["held"]


def test_a_deletion_cancels_what_runs_and_releases(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()
        made.apply(made.task("running", "spin"), made.task("waiting", "hold"))
        eventually("both are under way", lambda: (made.state("running"), made.state("waiting")) == ("running", "waiting"))

        made.kubectl("delete", "task", "running", "waiting", "--timeout=90s")

        assert {row.status for row in made.rows()} == {"cancelled"}


def test_a_deletion_is_released_within_its_bound_whatever_the_worker_does(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator()
        worker = made.worker()
        made.apply(made.task("stubborn", "stubborn"))
        eventually("it runs", lambda: made.state("stubborn") == "running")

        started = time.monotonic()
        made.kubectl("delete", "task", "stubborn", "--timeout=30s")

        assert 8 < time.monotonic() - started < 20
        assert made.rows("stubborn")[0].cancel_requested_by == "operator"
        end(worker, order=signal.SIGKILL)
