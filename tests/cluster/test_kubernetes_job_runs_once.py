"""`kubernetes-job`: one Job for one execution, whoever dies; its end is kept; it does not outlive its execution."""

from pathlib import Path

from tests.cluster.apiserver import ApiServer, eventually
from tests.cluster.jobbing import created, enqueue, finish, jobs, reached, row, worker
from tests.cluster.operating import field


def test_a_job_is_created_waited_for_as_a_row_and_its_end_is_kept(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        worker(made)
        id_ = enqueue(made)

        job = created(made, id_)
        assert job["metadata"]["labels"]["suture.dev/execution"] == str(id_)
        assert job["spec"]["template"]["metadata"]["labels"]["suture.dev/execution"] == str(id_)
        reached(made, id_, "waiting")  # a row: no worker, no connection, no timer
        finish(made, job, message="42 rows, password=hunter2")

        done = reached(made, id_, "completed")
        kept = done.output
        assert (kept["succeeded"], kept["exit_code"], kept["job"]) == (True, 0, f"suture-{id_}")
        assert kept["message"].startswith("42 rows")
        assert "hunter2" not in kept["message"]
        assert (kept["log"], bool(kept["log_note"])) == ("", True)  # no kubelet is here to be asked: that is said


def test_a_worker_that_dies_leaves_one_job_and_another_keeps_its_end(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        first = worker(made)
        ids = [enqueue(made) for _ in range(5)]
        eventually("the first Job", lambda: bool(jobs(made)))
        first.kill()  # somewhere between the first Job and the last
        first.wait()

        worker(made)
        for id_ in ids:
            finish(made, created(made, id_))
        for id_ in ids:
            reached(made, id_, "completed")
        assert len(jobs(made)) == len(ids)


def test_a_failed_job_is_a_failure_and_requeued_it_is_another_job(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        worker(made)
        id_ = enqueue(made)
        finish(made, created(made, id_), code=3, message="the disk is full")

        failed = reached(made, id_, "error")
        assert failed.error is not None
        assert failed.error.reason == "JobFailed"
        for word in ("BackoffLimitExceeded", "exit code 3", "the disk is full"):
            assert word in failed.error.message

        again = made.ask(lambda engine: engine.requeue(id_, actor="test")).id
        finish(made, created(made, again))
        assert reached(made, again, "completed").output["job"] == f"suture-{again}"


def test_a_cancelled_execution_takes_its_job_along_and_leaves_those_of_others(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        worker(made)
        id_, other = enqueue(made), enqueue(made)
        job = created(made, id_)
        created(made, other)
        foreign = {**job, "metadata": {**job["metadata"], "name": "foreign"}}
        foreign["metadata"] = {k: v for k, v in foreign["metadata"].items() if k in ("name", "namespace", "labels")}
        foreign["metadata"]["labels"] = foreign["metadata"]["labels"] | {"suture.dev/execution": "0197f3c2-0000-7000-8000-000000000001"}
        template = {"metadata": {"labels": foreign["metadata"]["labels"]}, "spec": job["spec"]["template"]["spec"]}
        apiserver.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": foreign["metadata"], "spec": {"template": template}})
        reached(made, id_, "waiting")

        made.ask(lambda engine: engine.cancel(id_, actor="test"))

        eventually("the Job is gone", lambda: f"suture-{id_}" not in {j["metadata"]["name"] for j in jobs(made)})
        assert {j["metadata"]["name"] for j in jobs(made)} == {f"suture-{other}", "foreign"}
        assert row(made, id_).status == "cancelled"


def test_a_job_that_somebody_deletes_is_a_failure_that_says_so(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        worker(made)
        id_ = enqueue(made)
        created(made, id_)

        made.kubectl("delete", "job", f"suture-{id_}", "--wait=false")

        failed = reached(made, id_, "error")
        assert failed.error is not None
        assert (failed.error.reason, "JobGone" in failed.error.message) == ("JobFailed", True)


def test_what_may_not_or_cannot_be_created_is_refused_and_nothing_is(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        worker(made)
        ids = {
            "AccessDenied SUTURE_JOBS_NAMESPACES": enqueue(made, namespace="kube-system"),
            "InvalidRequest input.namespace": enqueue(made, namespace=None),
            "InvalidRequest A B": enqueue(made, template={"template": {"spec": {"containers": [{"name": "A B", "image": "app:1"}]}}}),
            "InvalidRequest imag": enqueue(made, template={"template": {"spec": {"containers": [{"name": "a", "imag": "app:1"}]}}}),
        }

        for expected, id_ in ids.items():
            failed = reached(made, id_, "error")
            assert failed.error is not None
            reason, _, names = expected.partition(" ")
            assert failed.error.reason == reason
            assert names in failed.error.message
        assert jobs(made) == []
