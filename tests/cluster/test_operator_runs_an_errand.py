"""A Task of a built-in type: applied with kubectl, run with no Python of anybody's, and its end told by kubectl."""

from pathlib import Path

from tests.cluster.apiserver import ApiServer, eventually
from tests.cluster.jobbing import created, finish, jobs, worker
from tests.cluster.operating import bind, field
from tests.fakes.web import Answer, web

WATCH_JOBS = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]}]


def test_a_task_runs_a_job_and_is_woken_at_its_end(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        bind(made, "Role", {"namespace": made.namespace}, "suture-operator-jobs", WATCH_JOBS)
        made.operator(SUTURE_JOBS_NAMESPACES=made.namespace)
        worker(made)

        made.apply(made.task("nightly", "kubernetes-job", input={"image": "app:1", "args": ["--all"]}))
        eventually("the Task waits", lambda: made.state("nightly") == "waiting")
        (row,) = made.rows("nightly")
        job = created(made, row.id)
        assert job["metadata"]["labels"]["suture.dev/task"] == "nightly"
        # Of the looks that grow apart the next is far: only somebody's word wakes it now.
        postpone(made)
        finish(made, job, message="42 rows")

        made.kubectl("wait", "--for=condition=Ready", "task/nightly", "--timeout=90s")
        assert "42 rows" in made.rows("nightly")[0].output["message"]


def test_a_task_that_fails_or_is_deleted_takes_its_job_along(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        bind(made, "Role", {"namespace": made.namespace}, "suture-operator-jobs", WATCH_JOBS)
        made.operator(SUTURE_JOBS_NAMESPACES=made.namespace)
        worker(made)

        elsewhere = made.task("elsewhere", "kubernetes-job", input={"image": "app:1", "namespace": "kube-system"})
        made.apply(*(made.task(name, "kubernetes-job", input={"image": "app:1"}) for name in ("fails", "leaves")), elsewhere)
        eventually("both wait", lambda: {made.state("fails"), made.state("leaves")} == {"waiting"})
        finish(made, created(made, made.rows("fails")[0].id), code=7, message="no such table")
        made.kubectl("wait", "--for=condition=Stalled", "task/fails", "--timeout=90s")
        made.kubectl("delete", "task", "leaves", "--timeout=90s")

        assert made.condition("fails", "Stalled")["reason"] == "JobFailed"
        assert "no such table" in made.condition("fails", "Stalled")["message"]
        eventually("its Job goes with it", lambda: [j["metadata"]["labels"]["suture.dev/task"] for j in jobs(made)] == ["fails"])
        made.kubectl("wait", "--for=condition=Stalled", "task/elsewhere", "--timeout=90s")
        assert made.condition("elsewhere", "Stalled")["reason"] == "InvalidRequest"
        assert made.namespace in made.condition("elsewhere", "Stalled")["message"]


def test_a_task_calls_an_api(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made, web() as server:
        made.operator()
        worker(made, SUTURE_HTTP_ALLOW="127.0.0.1")
        url = server.says("/hooks", Answer(503), Answer(200, body=b"deployed"))

        request = {"method": "POST", "url": url, "json": {"ref": "main"}, "retry": {"initialSeconds": 0.1}}
        closed = made.task("closed", "http-request", input={"url": "http://169.254.169.254/latest/meta-data/"})
        made.apply(made.task("hook", "http-request", input=request), closed)
        made.kubectl("wait", "--for=condition=Ready", "task/hook", "--timeout=90s")
        made.kubectl("wait", "--for=condition=Stalled", "task/closed", "--timeout=90s")

        (row,) = made.rows("hook")
        assert row.output["body"] == "deployed"
        assert [seen.headers["idempotency-key"] for seen in server.seen] == [f"{row.id}-call"] * 2
        assert made.condition("closed", "Stalled")["reason"] == "AccessDenied"


def postpone(made) -> None:  # type: ignore[no-untyped-def]
    """Let every wait end in an hour."""

    async def later(engine) -> None:  # type: ignore[no-untyped-def]
        async with engine.transaction() as session:
            await session.connection.execute("update suture.workflow_waits set wake_at = now() + interval '1 hour' where outcome is null")

    made.ask(later)
