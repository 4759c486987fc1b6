"""Cluster-wide, installed before its resource, behind a network that goes silent: the operator finds every Task all the same."""

import json
import re
from pathlib import Path

from tests.cluster.apiserver import ApiServer, eventually
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
        apiserver.kubectl("delete", "task", "away", "-n", elsewhere, "--timeout=20s")


def test_a_watch_that_went_silent_hides_no_task(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made, Wire(apiserver.url) as wire:
        made.operator(KUBECONFIG=str(rewired(made, wire, tmp_path)))
        made.apply(made.task("before"))
        eventually("it is enqueued", lambda: made.state("before") == "enqueued")

        wire.silence()  # the connections stay open and carry nothing more; new ones work
        made.apply(made.task("after"))

        eventually("the resync finds it", lambda: made.state("after") == "enqueued", within=75)


def test_an_api_server_that_is_away_is_waited_for(apiserver: ApiServer, tmp_path: Path) -> None:
    with field(apiserver, tmp_path) as made, Wire(apiserver.url) as wire:
        wire.cut()
        operator = made.operator(ready=False, KUBECONFIG=str(rewired(made, wire, tmp_path)))
        made.apply(made.task("early"))
        eventually("it has tried", lambda: "Cannot connect" in made.log())

        wire.mend()
        eventually("it is enqueued", lambda: made.state("early") == "enqueued", within=45)
        wire.cut()
        made.apply(made.task("late"))
        wire.mend()

        eventually("it is enqueued too", lambda: made.state("late") == "enqueued", within=45)
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
