"""Cluster-wide, installed before its resource, behind a network that goes silent: the operator finds every Task all the same."""

import json
import re
import time
import urllib.request
from pathlib import Path

from tests.cluster.apiserver import ApiServer, eventually, free_ports
from tests.cluster.operating import ROOT, Field, field
from tests.cluster.wire import Wire


def test_without_namespaces_it_serves_all_of_them(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        made.grant_everywhere()
        elsewhere = apiserver.namespace()
        made.operator(SUTURE_OPERATOR_NAMESPACES="")

        task = made.task("away")
        task["metadata"]["namespace"] = elsewhere
        apiserver.kubectl("apply", "-f", "-", stdin=json.dumps(task))

        eventually("it is enqueued", lambda: apiserver.get("task", "away", elsewhere).get("status", {}).get("state") == "enqueued")
        apiserver.kubectl("delete", "task", "away", "-n", elsewhere, "--timeout=90s")


def test_a_watch_that_went_silent_hides_no_task_and_is_seen_in_the_metrics(apiserver: ApiServer, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with field(apiserver, tmp_path) as made, Wire(apiserver.url) as wire:
        started = time.time()
        made.operator(KUBECONFIG=str(rewired(made, wire, tmp_path)), SUTURE_OPERATOR_HEALTH_ADDRESS=address)
        watch = f'{{resource="tasks",namespace="{made.namespace}"}}'
        made.apply(made.task("before"))
        eventually("it is enqueued", lambda: made.state("before") == "enqueued")
        eventually("the watch has shown it", lambda: metrics(address)["suture_operator_tasks"] == 1)
        made.passes(2)
        assert metrics(address)[f"suture_operator_watch_unseen{watch}"] == 0
        last = metrics(address)[f"suture_operator_watch_last_event_timestamp_seconds{watch}"]
        assert started < last < time.time()

        silenced = time.time()
        wire.silence()  # the connections stay open and carry nothing more; new ones work
        made.apply(made.task("after"))

        eventually("the resync finds it", lambda: made.state("after") == "enqueued")
        eventually("it is told", lambda: metrics(address)[f"suture_operator_watch_unseen{watch}"] >= 1)
        assert metrics(address)[f"suture_operator_watch_last_event_timestamp_seconds{watch}"] < silenced + 1
        eventually("a new watch shows it", lambda: metrics(address)[f"suture_operator_watch_unseen{watch}"] == 0, within=120)


def metrics(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_an_api_server_that_is_away_is_waited_for(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made, Wire(apiserver.url) as wire:
        wire.cut()
        operator = made.operator(ready=False, KUBECONFIG=str(rewired(made, wire, tmp_path)))
        made.apply(made.task("early"))
        eventually("it has tried", lambda: "Cannot connect" in made.log())

        wire.mend()
        eventually("it is enqueued", lambda: made.state("early") == "enqueued")
        wire.cut()
        made.apply(made.task("late"))
        wire.mend()

        eventually("it is enqueued too", lambda: made.state("late") == "enqueued")
        assert operator.poll() is None


def test_the_sample_is_accepted(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        sample = (ROOT / "deploy" / "samples" / "task.yaml").read_text()
        (home,) = set(re.findall(r"^ +namespace: (\S+)", sample, re.MULTILINE))  # a Task names workloads of its own namespace alone

        made.kubectl("create", "--dry-run=server", "-f", "-", stdin=sample.replace(f"namespace: {home}", f"namespace: {made.namespace}"))


def rewired(made: Field, wire: Wire, folder: Path) -> Path:
    """The operator's kubeconfig, by way of the wire."""
    text = made.kubeconfig().read_text()
    changed = folder / "rewired.kubeconfig"
    changed.write_text(text.replace(made.apiserver.url, wire.url))
    assert wire.url in changed.read_text()
    return changed


def test_the_schema_explains_itself(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made:
        explained = made.kubectl("explain", "task.spec", "--recursive=false")

        for name in ("type", "input", "operationKey", "queue", "priority", "maxAttempts", "deadline", "suspend", "cancel"):
            assert f"  {name}\t" in explained
        assert "It cannot be taken back." in explained
        assert "tasks.suture.dev" in made.kubectl("api-resources", "--categories=suture", "-o", "name")
        assert made.kubectl("get", "st").strip() == ""
