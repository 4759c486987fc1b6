"""What operators do to it while a person thinks: a rollout, a Postgres that dies. The question stands, and the answer counts."""

import pytest

from tests.node import rig
from tests.node.installation import BROKEN, NAMESPACE, ROOT, Installation, helm

pytestmark = pytest.mark.timeout(600, func_only=True)  # the images may have to be built first, which takes minutes


def worker_pods() -> set[str]:
    return set(rig.kubectl("get", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=worker", "-o", "name").split())


def test_helm_test_finds_the_gateway_in_order(suture: Installation) -> None:
    assert suture is not None

    told = helm("test", "suture", "--namespace", NAMESPACE, "--logs", "--timeout", "60s")

    assert "/readyz 200" in told


def test_a_rollout_while_a_person_thinks_loses_nothing(suture: Installation) -> None:
    suture.break_app("out-of-memory.yaml", shows="OOMKilled")
    task = suture.page(f"Deployment/{BROKEN}/thumbnailer")
    asked, before = suture.question(task), worker_pods()

    chart = ("suture", ROOT / "charts/suture", "--namespace", NAMESPACE, "--values", "-")
    helm("upgrade", *chart, "--set", "worker.concurrency=4,api.bodyLimit=524288", "--wait", "--timeout", "3m")

    suture.until("the old workers are gone", lambda: not worker_pods() & before, within=30)  # helm waits for the new ones alone
    assert suture.question(task) == asked
    suture.approve(task)
    done = suture.completed(task)
    assert done["output"]["cause"] == "MemoryLimitTooLow"
    assert done["crashes"] == 0  # nobody was cut off: a waiting task is with no worker
    assert suture.git.commits(done["output"]["pull_request"]["branch"]) == 1


def test_a_postgres_that_is_killed_and_restarted_loses_nothing(suture: Installation) -> None:
    suture.break_app("config-key.yaml", shows="CreateContainerConfigError")
    task = suture.page(f"Deployment/{BROKEN}/mailer")
    asked = suture.question(task)

    suture.kill("suture-trial-postgres-0", "postgres")
    suture.until("the API is ready again", lambda: suture.answers("/readyz"))

    assert suture.question(task) == asked
    suture.approve(task)
    assert suture.completed(task)["output"]["pull_request"]["branch"] in suture.git.branches()
