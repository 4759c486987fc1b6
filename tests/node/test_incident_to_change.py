"""The main job on a real cluster: a page becomes one approved branch, whoever dies on the way."""

import json

import pytest

from tests.node import rig
from tests.node.installation import BROKEN, NAMESPACE, ROOT, Installation

pytestmark = pytest.mark.timeout(600, func_only=True)  # the images may have to be built first, which takes minutes


def test_a_page_becomes_one_branch_with_the_approved_change(suture: Installation) -> None:
    suture.break_app("config-key.yaml", shows="CreateContainerConfigError")

    task = suture.page(f"Deployment/{BROKEN}/mailer")
    question = suture.question(task)
    assert question["proposal"]["cause"]["code"] == "MissingConfigMapKey"
    assert set(suture.git.branches()) == {"main"}  # nothing happens before a person says so
    suture.approve(task)
    done = suture.completed(task)

    branch = done["output"]["pull_request"]["branch"]
    assert set(suture.git.branches()) == {"main", branch}
    assert changed_lines(suture.git.diff(branch)) == ["-                  key: smtp_host", "+                  key: smtp-host"]


def test_a_task_resource_is_ready_when_its_change_is_delivered(suture: Installation) -> None:
    suture.break_app("probe-port.yaml", shows="CrashLoopBackOff")

    rig.kubectl("apply", "-f", ROOT / "deploy/samples/task.yaml")
    execution = "jsonpath={.status.executionId}"
    suture.until("the Task has an execution", lambda: rig.kubectl("get", "task", "fix-directory", "-n", BROKEN, "-o", execution) != "")
    suture.approve(rig.kubectl("get", "task", "fix-directory", "-n", BROKEN, "-o", execution))

    rig.kubectl("wait", "--for=condition=Ready", "task/fix-directory", "-n", BROKEN, "--timeout=180s")
    status = json.loads(rig.kubectl("get", "task", "fix-directory", "-n", BROKEN, "-o", "json"))["status"]
    assert status.get("pullRequest", {}).get("branch") in suture.git.branches(), status
    moved = ["-              port: 8081", "+              port: 8080"]
    assert changed_lines(suture.git.diff(status["pullRequest"]["branch"])) == 2 * moved  # readiness and liveness


def test_a_worker_that_is_killed_in_mid_delivery_is_replaced_and_nothing_happens_twice(suture: Installation) -> None:
    suture.break_app("image-tag.yaml", shows="ImagePullBackOff")
    task = suture.page(f"Deployment/{BROKEN}/greeter")
    suture.question(task)
    before = {step["name"]: step for step in suture.ask("GET", f"/tasks/{task}/steps")}

    suture.git.hold_pushes()
    suture.approve(task)
    suture.until("the push is under way", suture.git.holds_one)
    killed = claimed_by(suture, task)
    rig.kubectl("delete", "pod", killed, "-n", NAMESPACE, "--force", "--grace-period=0")
    suture.until("another worker has taken over", lambda: claimed_by(suture, task) != killed)
    suture.git.release()  # the push of the dead goes through after all, while its heir is at the same work
    done = suture.completed(task)

    steps = {step["name"]: step for step in suture.ask("GET", f"/tasks/{task}/steps")}
    assert {name: steps[name] for name in before} == before  # what was finished was not done again
    branch = done["output"]["pull_request"]["branch"]
    assert {name for name in suture.git.branches() if name.startswith("suture/")} == delivered(suture)
    assert suture.git.commits(branch) == 1
    assert done["crashes"] == 1


def test_a_cause_without_a_safe_change_ends_as_a_report(suture: Installation) -> None:
    suture.break_app("missing-env.yaml", shows="CrashLoopBackOff")
    before = suture.git.branches()

    done = suture.completed(suture.page(f"Deployment/{BROKEN}/archiver"))

    assert done["output"]["state"] == "reported"
    assert "ARCHIVE_REGION" in done["output"]["sentence"]
    assert suture.git.branches() == before


def claimed_by(suture: Installation, task: str) -> str:
    """Name of the pod that claimed the task last."""
    moves = suture.ask("GET", f"/tasks/{task}/timeline")
    return str(next(move["actor"] for move in reversed(moves) if move["toStatus"] == "running")).removeprefix("worker ")


def delivered(suture: Installation) -> set[str]:
    """The branches that the tasks say they made."""
    tasks = suture.ask("GET", "/tasks?status=completed")["items"]
    return {task["output"]["pull_request"]["branch"] for task in tasks if task["output"].get("pull_request")}


def changed_lines(diff: str) -> list[str]:
    return [line for line in diff.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
