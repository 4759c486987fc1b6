"""Postgres goes away, a hostile hand writes the status: nothing is lost, and the status is the row's again."""

from pathlib import Path

from tests.cluster.apiserver import ApiServer, eventually
from tests.cluster.operating import end, field


def test_an_outage_of_postgres_loses_nothing(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator = made.operator()
        made.apply(made.task("before", "hold"), made.task("cancelled", "hold"))
        eventually("they are enqueued", lambda: made.state("before") == made.state("cancelled") == "enqueued")
        made.postgres.stop()

        made.apply(made.task("during"))
        made.patch("cancelled", {"spec": {"cancel": True}})

        eventually("it says what it waits for", lambda: made.condition("during", "Reconciling").get("reason") == "DatabaseUnavailable")
        assert made.condition("during", "Reconciling")["status"] == "True"
        assert made.state("before") == "enqueued", "what is known stays shown"
        made.kubectl("delete", "task", "before", "--timeout=90s")  # no namespace hangs on Postgres

        made.postgres.start()
        eventually("it has its row", lambda: made.state("during") == "enqueued")
        eventually("the wish is done", lambda: made.state("cancelled") == "cancelled")
        eventually("what lost its Task is cancelled", lambda: made.rows("before")[0].status == "cancelled")
        assert operator.poll() is None
        assert len(made.rows()) == 3


def test_a_status_that_another_hand_wrote_is_the_rows_again(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator()
        made.apply(made.task("target", "hold"))
        eventually("it is enqueued", lambda: made.state("target") == "enqueued")
        truth = made.get("target")["status"]

        lie = {"type": "Ready", "status": "True", "reason": "Hacked", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        foreign = lie | {"type": "example.com/Seen"}
        made.patch("target", {"status": {"state": "completed", "result": "paid", "conditions": [lie, foreign]}}, "--subresource=status")

        def mended() -> bool:
            found = made.get("target").get("status") or {"state": None, "conditions": []}  # for a moment there is none
            ours = [c for c in found["conditions"] if c["type"] in {"Ready", "Reconciling", "Stalled"}]
            return found["state"] == "enqueued" and "result" not in found and {c["reason"] for c in ours} == {"Enqueued"} and len(ours) == 3

        eventually("it is mended", mended)
        assert made.condition("target", "Ready")["status"] == "False"
        assert made.condition("target", "example.com/Seen"), "a condition of another type is nobody's business"
        assert made.get("target")["status"]["executionId"] == truth["executionId"]

        made.patch("target", {"status": None}, "--subresource=status")
        eventually("it comes back whole", mended)
        assert made.get("target")["status"]["executionId"] == truth["executionId"]
        assert len(made.rows()) == 1


def test_a_forged_execution_id_shows_nobody_elses_execution(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        operator = made.operator()
        made.apply(made.task("victim", text="secret"), made.task("thief", suspend=True))
        eventually("both are seen", lambda: (made.state("victim"), made.state("thief")) == ("enqueued", "suspended"))
        end(operator)

        made.patch("thief", {"status": {"executionId": made.get("victim")["status"]["executionId"]}}, "--subresource=status")
        made.operator()

        eventually("the lie is gone", lambda: "executionId" not in made.get("thief")["status"])
        assert made.state("thief") == "suspended"


def test_a_requeued_dead_letter_is_shown_under_its_task(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.operator(), made.worker()
        made.apply(made.task("broken", "fail", text="no luck"))
        made.kubectl("wait", "--for=condition=Stalled", "task/broken", "--timeout=90s")
        first = made.get("broken")["status"]["executionId"]

        (row,) = made.rows("broken")
        made.ask(lambda engine: engine.requeue(row.id, actor="test"))

        eventually("the successor is shown", lambda: made.get("broken")["status"]["executionId"] != first)
        made.kubectl("wait", "--for=condition=Stalled", "task/broken", "--timeout=90s")
