"""What public reports tell of operators and clients of Kubernetes, done to ours: E22, E24, E28. (E20 is in test_operator_everywhere.)"""

import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from suture.clients.cluster import LOG_TAIL, Cluster
from tests.cluster.apiserver import ApiServer, KubectlError, eventually
from tests.cluster.operating import field

# E22 -------------------------------------------------------------------------------------------------------------------------

PEERING = "clusterkopfpeerings.kopf.dev"
STRANGER = """
import kopf

@kopf.on.startup()
def configure(settings, **_):
    settings.posting.enabled = False

@kopf.on.event("configmaps")
def seen(name, **_):
    print("saw", name, flush=True)
"""


def test_e22_another_kopf_operator_with_the_default_peering_freezes_nothing(apiserver: ApiServer, tmp_path: Path) -> None:
    """nolar/kopf#734: a peering named default counts by itself, and an operator of another team was the one in charge."""
    peering(apiserver)
    with field(apiserver, tmp_path) as made:
        first = made.operator()
        stranger = strange_operator(apiserver, tmp_path)
        try:
            eventually("the stranger is in charge of its peering", lambda: "stranger" in peers(apiserver))
            made.apply(made.task("beside"))
            eventually("it is enqueued beside a living stranger", lambda: made.state("beside") == "enqueued")
        finally:
            stranger.kill()
            stranger.wait(60)
        assert "stranger" in peers(apiserver), "it was killed and has left its claim behind"
        made.apply(made.task("after"))
        eventually("it is enqueued beside a dead stranger", lambda: made.state("after") == "enqueued")

        made.operator()  # a rolling update: the new one is there before the old one goes
        first.terminate()
        made.apply(made.task("rolling"))
        eventually("it is enqueued in a rolling update", lambda: made.state("rolling") == "enqueued")
        assert len(made.rows()) == 3


def peering(apiserver: ApiServer) -> None:
    """The resource of kopf's peerings and the object by which its operators find each other without being told."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "clusterkopfpeerings", "singular": "clusterkopfpeering", "kind": "ClusterKopfPeering"}
    apiserver.apply(
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": PEERING}}
        | {"spec": {"group": "kopf.dev", "scope": "Cluster", "names": names, "versions": [version]}}
    )
    apiserver.kubectl("wait", "--for=condition=Established", f"crd/{PEERING}")

    def made() -> bool:
        with suppress(KubectlError):
            apiserver.apply({"apiVersion": "kopf.dev/v1", "kind": "ClusterKopfPeering", "metadata": {"name": "default"}})
            return True
        return False

    eventually("the default peering", made)


def peers(apiserver: ApiServer) -> str:
    return json.dumps(json.loads(apiserver.kubectl("get", PEERING, "default", "-o", "json")).get("status", {}))


def strange_operator(apiserver: ApiServer, folder: Path) -> "subprocess.Popen[bytes]":
    program = folder / "stranger.py"
    program.write_text(STRANGER)
    command = [sys.executable, "-m", "kopf", "run", str(program), "-A", "--peering", "default", "--priority", "1000"]
    with (folder / "stranger.log").open("wb") as log:
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(apiserver.kubeconfig), "POD_ID": "stranger"}
        return subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)


# E24 -------------------------------------------------------------------------------------------------------------------------


def test_e24_a_spec_of_any_size_is_taken_or_refused_without_a_hot_loop(apiserver: ApiServer, tmp_path: Path) -> None:
    """nolar/kopf#1087: the whole spec went into an annotation of 262,144 bytes, and a large object was tried for ever."""
    with field(apiserver, tmp_path) as made:
        made.operator(SUTURE_OPERATOR_RESYNC="1")
        sizes = {"small": 200_000, "larger": 300_000, "largest": 1_400_000}
        for name, size in sizes.items():
            task = made.task(name, text="x" * size)
            made.kubectl("create", "-f", "-", stdin=json.dumps(task))  # apply would write an annotation of its own
        for name in ("small", "larger"):
            eventually(f"{name} is enqueued", lambda name=name: made.state(name) == "enqueued")
        made.kubectl("wait", "--for=condition=Stalled", "task/largest", "--timeout=90s")
        stalled = made.condition("largest", "Stalled")
        assert stalled["reason"] == "PayloadTooLarge"
        assert "1,048,576" in stalled["message"]
        before = {name: made.get(name)["metadata"]["resourceVersion"] for name in sizes}
        made.passes(4)
        assert {name: made.get(name)["metadata"]["resourceVersion"] for name in sizes} == before
        assert all("annotations" not in made.get(name)["metadata"] for name in sizes)
        for name in sizes:
            made.kubectl("delete", "task", name, "--timeout=90s")


def test_e24_names_and_labels_at_their_limits_are_taken(apiserver: ApiServer, tmp_path: Path) -> None:
    """And progress is kept under a schema that is strict: the status that was written is there."""
    with field(apiserver, tmp_path) as made:
        made.operator()
        task = made.task("n" * 253)
        task["metadata"]["labels"] = {"l" * 63: "v" * 63}
        made.apply(task)
        eventually("it is enqueued", lambda: made.state("n" * 253) == "enqueued")
        status = made.get("n" * 253)["status"]
        assert {"state", "conditions", "executionId"} <= status.keys()
        made.kubectl("delete", "task", "n" * 253, "--timeout=90s")


# E28 -------------------------------------------------------------------------------------------------------------------------

LOGS = {
    "one line of JSON": b'{"a": "b"}\n',
    "a number": b"12\n",
    "latin-1": "h\xe9llo\n".encode("latin-1"),
    "utf-8": "h\xe9llo \U0001f600\n".encode(),
    "a NUL": b"a\0b\n",
    "a torn character": "h\xe9".encode()[:-1],
    "nothing": b"",
    "quotes": b"b'not bytes' \"quoted\"\n",
}


class Kubelet:
    """As much of a kubelet as gives logs: the API server asks it over TLS and passes on what it says."""

    def __init__(self, apiserver: ApiServer) -> None:
        self.logs: dict[str, bytes] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = outer.logs.get(urlsplit(self.path).path.split("/")[3], b"")
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                with suppress(OSError):  # whoever has heard enough hangs up
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        apiserver.authority.issue("kubelet", "/O=system:nodes/CN=system:node:stub", "IP:127.0.0.1")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pki = apiserver.authority.folder
        context.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @contextmanager
    def serving(self) -> Iterator["Kubelet"]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield self
        self._server.shutdown()
        self._server.server_close()
        thread.join()


@pytest.fixture
def kubelet(apiserver: ApiServer) -> Iterator[Kubelet]:
    with Kubelet(apiserver).serving() as made:
        address = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
        endpoint = {"daemonEndpoints": {"kubeletEndpoint": {"Port": made.port}}}
        apiserver.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stub"}, "status": address | endpoint})
        yield made
        apiserver.kubectl("delete", "node", "stub")


def crashing(apiserver: ApiServer, namespace: str, name: str) -> None:
    container = {"name": "app", "image": "example.org/app:1"}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    status = {"name": "app", "restartCount": 3, "ready": False, "image": "x", "imageID": "", "state": state}
    apiserver.kubectl("create", "serviceaccount", "default", "-n", namespace) if not accounts(apiserver, namespace) else None
    apiserver.apply(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}
        | {"spec": {"nodeName": "stub", "containers": [container], "automountServiceAccountToken": False}}
        | {"status": {"phase": "Running", "containerStatuses": [status]}}
    )


def accounts(apiserver: ApiServer, namespace: str) -> str:
    return apiserver.kubectl("get", "serviceaccount", "default", "-n", namespace, "--ignore-not-found")


async def test_e28_a_pod_s_log_is_what_the_pod_wrote(apiserver: ApiServer, kubelet: Kubelet) -> None:
    """kubernetes-client/python#2596, #811, #1354: logs came as the repr of bytes, with single quotes, or not at all.

    Through a real API server; of each log the bytes stay, and its text is read with replacements.
    """
    namespace = apiserver.namespace()
    async with await Cluster.connect(apiserver.kubeconfig) as cluster:
        for number, (what, body) in enumerate(LOGS.items()):
            name = f"p{number}"
            kubelet.logs[name] = body
            crashing(apiserver, namespace, name)
            collected = await cluster.collect(namespace, "Pod", name)
            found = {log.content for log in collected.logs}
            assert found == {body}, (what, collected.notes)
    assert kubelet.asked
    assert all("tailLines=" in path for path in kubelet.asked)


async def test_e28_a_log_of_fifty_megabytes_is_bounded_by_its_end(apiserver: ApiServer, kubelet: Kubelet) -> None:
    namespace = apiserver.namespace()
    kubelet.logs["big"] = b"x" * (12 << 20) + b"\nthe last words\n"
    crashing(apiserver, namespace, "big")
    async with await Cluster.connect(apiserver.kubeconfig) as cluster:
        collected = await cluster.collect(namespace, "Pod", "big")
        assert {log.content[-15:] for log in collected.logs} == {b"the last words\n"}
        assert all(len(log.content) <= LOG_TAIL for log in collected.logs)

        kubelet.logs["big"] = b"x" * (50 << 20)
        collected = await cluster.collect(namespace, "Pod", "big")
        assert all(len(log.content) <= LOG_TAIL for log in collected.logs)
