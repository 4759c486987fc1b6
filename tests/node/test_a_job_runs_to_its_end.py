"""A Job of a Task on a real kubelet: its end and the end of its log are kept, although every worker dies meanwhile."""

import json
from typing import Any

import pytest

from tests.node import rig
from tests.node.installation import BROKEN, NAMESPACE, PUBLIC_IMAGE, Installation

pytestmark = pytest.mark.timeout(600, func_only=True)  # the images may have to be built first, which takes minutes

PROGRAM = """
import time
print("early words " * 1000)
print("password=hunter2")
time.sleep(8)
print("done: 42 documents", flush=True)
open("/dev/termination-log", "w").write("42 documents")
"""


def test_a_jobs_end_is_kept_although_every_worker_dies_meanwhile(suture: Installation) -> None:
    apply("rebuild", PROGRAM, logBytes=1000)
    suture.until("the Job's pod runs", lambda: "Running" in pods("rebuild"))

    workers = ("-n", NAMESPACE, "-l", "app.kubernetes.io/component=worker")
    rig.kubectl("delete", "pods", *workers, "--force", "--grace-period=0")

    rig.kubectl("wait", "--for=condition=Ready", "task/rebuild", "-n", BROKEN, "--timeout=180s")
    kept = suture.ask("GET", f"/tasks/{status('rebuild')['executionId']}")["output"]
    assert (kept["succeeded"], kept["exit_code"], kept["message"]) == (True, 0, "42 documents"), kept
    assert kept["log"].splitlines()[-1] == "done: 42 documents"
    assert kept["log_truncated"]
    assert len(kept["log"]) <= 1000
    assert "hunter2" not in kept["log"]
    assert len(json.loads(rig.kubectl("get", "jobs", "-n", BROKEN, "-l", "suture.dev/task=rebuild", "-o", "json"))["items"]) == 1


def test_a_deleted_task_takes_its_job_and_its_pod_along(suture: Installation) -> None:
    apply("sleeper", "import time; time.sleep(600)")
    suture.until("the Job's pod runs", lambda: "Running" in pods("sleeper"))

    rig.kubectl("delete", "task", "sleeper", "-n", BROKEN, "--timeout=180s")

    suture.until("the Job is gone", lambda: not rig.kubectl("get", "jobs", "-n", BROKEN, "-l", "suture.dev/task=sleeper", "-o", "name"))
    suture.until("its pod ends", lambda: "Running" not in pods("sleeper"))


def apply(name: str, program: str, **fields: Any) -> None:
    request = {"image": PUBLIC_IMAGE, "command": ["python3", "-c", program]} | fields
    metadata, spec = {"name": name, "namespace": BROKEN}, {"type": "kubernetes-job", "input": request}
    task = {"apiVersion": "suture.dev/v1alpha1", "kind": "Task", "metadata": metadata, "spec": spec}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(task))


def pods(task: str) -> str:
    return rig.kubectl("get", "pods", "-n", BROKEN, "-l", f"suture.dev/task={task}", "-o", "jsonpath={.items[*].status.phase}")


def status(task: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.kubectl("get", "task", task, "-n", BROKEN, "-o", "json"))["status"]
    return found
