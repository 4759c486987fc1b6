"""A worker's pod goes: its work is taken over at once, long before its lease ends, and by its pod alone.

The lost worker is frozen, so that its connection, its presence and its lease all still say that it lives.
"""

import json
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster.apiserver import ApiServer, eventually
from tests.cluster.jobbing import row, worker
from tests.cluster.operating import Field, bind, field

LEASE = {"SUTURE_LEASE_DURATION": "240", "SUTURE_LEASE_HEARTBEAT": "5"}
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
CONTAINER = {"name": "worker", "image": "suture", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
UNREACHABLE = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [CONTAINER]}


@pytest.mark.parametrize("how", ["deleted", "evicted", "its node does not answer"])
def test_the_work_of_a_lost_pod_is_taken_over_at_once(apiserver: ApiServer, tmp_path: Path, how: str) -> None:
    with field(apiserver, tmp_path) as made:
        for name in ("worker-a", "worker-b"):
            pod(made, name)
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
        bind(made, "Role", {"namespace": made.namespace}, "suture-operator-pods", rules)
        operator = made.operator(SUTURE_OPERATOR_WORKER_NAMESPACE=made.namespace)
        lost = worker(made, POD_NAME="worker-a", **LEASE)
        id_ = made.ask(lambda engine: engine.enqueue("spin", {"text": ""}, actor="test")).execution.id
        eventually("the first worker runs it", lambda: row(made, id_).status == "running")
        worker(made, POD_NAME="worker-b", **LEASE)
        eventually("both are there", lambda: len(made.ask(lambda engine: engine.health()).workers) == 2)
        first = row(made, id_)
        lost.send_signal(signal.SIGSTOP)
        try:
            match how:
                case "deleted":
                    made.kubectl("delete", "pod", "worker-a", "--force", "--grace-period=0")
                case "evicted":
                    status(made, "worker-a", {"phase": "Failed", "reason": "Evicted"})
                case _:
                    status(made, "worker-a", UNREACHABLE)

            eventually("the other one runs it", lambda: row(made, id_).owner_id not in (None, first.owner_id), within=60)
            taken = row(made, id_)
            assert (taken.epoch, taken.crashes, taken.status) == (first.epoch + 1, 1, "running")
            assert operator.poll() is None
        finally:
            with suppress(ProcessLookupError):
                lost.kill()


def pod(made: Field, name: str) -> None:
    labels = {"app.kubernetes.io/name": "suture", "app.kubernetes.io/component": "worker"}
    metadata = {"name": name, "namespace": made.namespace, "labels": labels}
    spec = {"containers": [{"name": "worker", "image": "suture"}]}
    made.apiserver.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": READY})


def status(made: Field, name: str, status: dict[str, object]) -> None:
    made.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
