"""Any number of replicas, restarts and repeats: one row for each Task."""

import json
import signal
from collections import Counter
from pathlib import Path
from uuid import UUID

from tests.cluster.apiserver import ApiServer, eventually, free_ports
from tests.cluster.operating import Field, end, field, names


def test_two_replicas_and_a_kill_make_one_row_for_each_of_fifty_tasks(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        first, second = made.operator(), made.operator()

        made.apply(*[made.task(name) for name in names("task", 50)])
        eventually("the first rows are there", lambda: len(made.rows()) >= 5)
        end(first, order=signal.SIGKILL)
        eventually("every Task has its row", lambda: len(made.rows()) >= 50)
        third = made.operator()
        made.worker()
        made.kubectl("wait", "--for=condition=Ready", "task", "--all", "--timeout=90s")

        assert set(Counter(row.labels["uid"] for row in made.rows()).values()) == {1}
        assert len(made.rows()) == 50
        assert {t["status"]["executionId"] for t in made.tasks()} == {str(row.id) for row in made.rows()}
        eventually("no finalizer is left", lambda: not any("finalizers" in t["metadata"] for t in made.tasks()))
        assert (end(second), end(third)) == (0, 0)


def test_what_happened_while_no_operator_ran_is_found(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator = made.operator()
        made.apply(made.task("cancelled", "hold"), made.task("deleted", "hold"), made.task("finished"), made.task("kept", "hold"))
        eventually("all are enqueued", lambda: all(made.state(n) == "enqueued" for n in ("cancelled", "deleted", "finished", "kept")))
        end(operator)

        made.apply(made.task("created"))
        made.patch("cancelled", {"spec": {"cancel": True}})
        made.kubectl("delete", "task", "deleted", "--wait=false")
        worker = made.worker()
        eventually("the worker runs on its own", lambda: made.rows("finished")[0].status == "completed")
        made.operator()

        made.kubectl("wait", "--for=condition=Ready", "task/created", "task/finished", "--timeout=90s")
        eventually("the deleted one is gone", lambda: made.gone("deleted"))
        assert made.rows("deleted")[0].status == "cancelled"
        eventually("the cancelled one says so", lambda: made.condition("cancelled", "Stalled").get("reason") == "Cancelled")
        assert made.get("cancelled")["status"]["observedGeneration"] == 2
        assert made.state("kept") == "waiting"
        assert worker.poll() is None
        assert len(made.rows()) == 5


def test_a_row_whose_task_vanished_unseen_is_cancelled(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator = made.operator()
        made.apply(made.task("lost", "hold"), made.task("kept", "hold"))
        eventually("both are enqueued", lambda: made.state("lost") == made.state("kept") == "enqueued")
        end(operator)

        made.patch("lost", {"metadata": {"finalizers": None}})
        made.kubectl("delete", "task", "lost")
        made.operator()

        eventually("its row is cancelled", lambda: made.rows("lost")[0].status == "cancelled")
        assert made.rows("kept")[0].status == "enqueued"


def test_tasks_that_share_an_operation_key_share_the_execution_of_the_first(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()
        made.apply(made.task("first", "hold", operationKey="deploy-42"))
        eventually("the first waits", lambda: made.state("first") == "waiting")

        made.apply(made.task("second", "hold", operationKey="deploy-42"))
        made.apply(made.task("other", "hold", text="something else", operationKey="deploy-42"))

        eventually("the second shows it", lambda: made.state("second") == "waiting")
        assert made.get("second")["status"]["executionId"] == made.get("first")["status"]["executionId"]
        eventually("another input is refused", lambda: made.condition("other", "Stalled").get("reason") == "Conflict")
        made.kubectl("delete", "task", "second", "--timeout=90s")
        (row,) = made.rows()
        assert row.status == "waiting", "the deletion of a sharer cancels nothing"
        release(made, row.id)
        made.kubectl("wait", "--for=condition=Ready", "task/first", "--timeout=90s")


def test_the_operator_leaves_no_annotation_and_writes_only_on_change(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        health = f"127.0.0.1:{free_ports(1)[0]}"
        made.operator(SUTURE_OPERATOR_HEALTH_ADDRESS=health, SUTURE_OPERATOR_RESYNC="1")
        made.kubectl("create", "-f", "-", stdin=json.dumps(made.task("quiet", "hold")))
        eventually("it is enqueued", lambda: made.state("quiet") == "enqueued")

        before = made.get("quiet")
        looks = made.passes(5)

        after = made.get("quiet")
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"], f"written during {looks} resyncs"
        assert "annotations" not in after["metadata"]
        assert after["metadata"]["finalizers"] == ["suture.dev/cancel"]
        managers = {
            m["manager"]
            for m in json.loads(made.kubectl("get", "task", "quiet", "-o", "json", "--show-managed-fields"))["metadata"]["managedFields"]
        }
        assert managers <= {"suture-operator", "kubectl-create"}
        assert made.probe(health, "healthz") == made.probe(health, "readyz") == 200


def release(made: Field, execution: UUID) -> None:
    made.ask(lambda engine: engine.emit(execution, "release", {}, actor="test"))
