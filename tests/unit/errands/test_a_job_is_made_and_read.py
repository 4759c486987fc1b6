"""From a request to a Job, and from what Kubernetes printed of it to a result."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from suture.engine import Workflows
from suture.errands.job_manifest import manifest, result, sentence, told_by
from suture.errands.kubernetes_job import kubernetes_job, pause_before_look
from suture.errands.requests import JobRequest
from suture.errors import InvalidRequest

EXECUTION = UUID("0197f3c2-0000-7000-8000-000000000001")
known = Workflows()
known.add(kubernetes_job)
WORKFLOW = known.get("kubernetes-job")
TEMPLATE: dict[str, Any] = {"template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}}


def made(**fields: Any) -> Any:
    return manifest(JobRequest.model_validate(fields), namespace="shop", execution=EXECUTION, task="nightly")


def test_an_image_and_a_command_become_a_job_of_no_rights():
    job = made(image="app:1", command=["run"], args=["--all"], env={"MODE": "full"}, backoffLimit=2, timeoutSeconds=60)

    labels = {"app.kubernetes.io/managed-by": "suture", "suture.dev/execution": str(EXECUTION), "suture.dev/task": "nightly"}
    assert job["metadata"] == {"namespace": "shop", "name": f"suture-{EXECUTION}", "labels": labels}
    assert len(job["metadata"]["name"]) <= 63  # it is also a label of its pods
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (2, 60, 86_400)
    assert job["spec"]["template"]["metadata"]["labels"] == labels
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    (container,) = pod["containers"]
    assert (container["image"], container["command"], container["args"]) == ("app:1", ["run"], ["--all"])
    assert container["env"] == [{"name": "MODE", "value": "full"}]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_a_template_is_kept_and_what_is_ours_is_added():
    inner = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}},
        "spec": {**TEMPLATE["template"]["spec"], "restartPolicy": "OnFailure"},
    }
    job = made(template={"template": inner, "parallelism": 3, "activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 1}, timeoutSeconds=60)

    assert job["spec"]["parallelism"] == 3
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (30, 86_400)
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert job["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}
    assert job["spec"]["template"]["metadata"]["labels"].items() >= {"app": "x", "suture.dev/execution": str(EXECUTION)}.items()


def test_a_tasks_name_that_is_no_label_is_left_out():
    request = JobRequest(image="app:1")
    assert "suture.dev/task" not in manifest(request, namespace="shop", execution=EXECUTION, task="x" * 64)["metadata"]["labels"]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "either `image`"),
        ({"image": "app:1", "template": TEMPLATE}, "either `image`"),
        ({"template": TEMPLATE, "command": ["x"]}, "either `image`"),
        ({"template": {"template": {"spec": {}}}}, "containers"),
        ({"template": {"template": "x"}}, "containers"),
        ({"image": "app:1", "env": {"DB_PASSWORD": "hunter2"}}, "DB_PASSWORD"),
        ({"image": "app:1", "env": {"API_KEY": "hunter2"}}, "API_KEY"),
        (
            {"template": {"template": {"spec": {"containers": [{"name": "a", "env": [{"name": "TOKEN", "value": "hunter2"}]}]}}}},
            "TOKEN",
        ),
        ({"image": "app:1", "namespace": "../kube-system"}, "namespace"),
        ({"image": "app:1", "logBytes": 10_000_000}, "logBytes"),
        ({"image": "app:1", "ttlSeconds": 1}, "ttlSeconds"),
        ({"image": "app:1", "serviceAccountName": "root"}, "serviceAccountName"),
    ],
    ids=str,
)
def test_what_is_no_job_or_tells_a_secret_is_refused_by_its_name(fields: dict[str, Any], names: str):
    with pytest.raises(InvalidRequest, match=names) as told:
        WORKFLOW.read_input(fields)
    assert "hunter2" not in str(told.value)


def job(kind: str, **condition: Any) -> dict[str, Any]:
    met = {"type": kind, "status": "True"} | condition
    return {"metadata": {"namespace": "shop", "name": "j"}, "status": {"conditions": [{"type": "FailureTarget", "status": "True"}, met]}}


def pod(name: str, phase: str, *containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    status = {"phase": phase, "containerStatuses": list(containers), "initContainerStatuses": list(init)}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "app"}, {"name": "side"}]}, "status": status}


def ended(name: str, code: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "state": {"terminated": {"exitCode": code} | fields}}


def test_of_a_success_the_own_container_of_the_pod_that_succeeded_tells():
    pods = [pod("a", "Failed", ended("app", 1)), pod("b", "Succeeded", ended("side", 0), ended("app", 0, message="42 rows"))]
    found = result(job("Complete"), pods)
    assert (found.succeeded, found.exit_code, found.message, found.pod, found.reason) == (True, 0, "42 rows", "b", "")
    assert told_by(pods, succeeded=True) == ("b", "app")


def test_of_a_failure_the_container_that_failed_tells():
    pods = [pod("a", "Failed", ended("app", 1)), pod("b", "Failed", ended("app", 0), ended("side", 137, reason="OOMKilled"))]
    found = result(job("Failed", reason="BackoffLimitExceeded", message="too often"), pods)
    assert (found.exit_code, found.pod, found.reason, found.message) == (137, "b", "BackoffLimitExceeded", "too often")
    assert told_by(pods, succeeded=False) == ("b", "side")
    assert "exit code 137" in sentence(found)


def test_an_init_container_that_failed_tells():
    pods = [pod("a", "Failed", {"name": "app", "state": {"waiting": {}}}, init=(ended("prepare", 2),))]
    assert told_by(pods, succeeded=False) == ("a", "prepare")
    assert result(job("Failed"), pods).exit_code == 2


def test_a_job_whose_pods_are_gone_still_has_an_end():
    found = result(job("Failed", reason="DeadlineExceeded", message="Job was active longer"), [])
    assert (found.exit_code, found.pod, found.reason) == (None, None, "DeadlineExceeded")
    assert "Job was active longer" in sentence(found)
    assert told_by([], succeeded=False) is None


def test_a_message_of_the_container_tells_no_secret():
    found = result(job("Failed"), [pod("a", "Failed", ended("app", 1, message="password=hunter2\0"))])
    assert "hunter2" not in found.message
    assert "\0" not in found.message


def test_an_end_is_seen_a_tenth_late_and_a_day_takes_few_looks():
    waited, looks = timedelta(), 1
    while waited < timedelta(days=1):
        pause = pause_before_look(looks + 1)
        assert pause <= waited * 0.1 + timedelta(seconds=1.01)
        waited, looks = waited + pause, looks + 1
    assert looks < 220
