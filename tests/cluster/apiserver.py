"""A real kube-apiserver with its etcd on loopback ports: no root, no namespaces, no kubelet. For tests of what talks to the API.

Nothing schedules or runs a pod here, and no controller acts: tests write the status that a controller would have written.
The fixture is in conftest; a whole cluster is tests/node/rig.
"""

import json
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any

from tests.node.pki import Authority
from tests.node.programs import BIN

NEEDED = ("kube-apiserver", "etcd", "kubectl")


class KubectlError(Exception):
    """kubectl failed; the message is what it said."""


@dataclass
class ApiServer:
    """A running API server."""

    url: str
    kubeconfig: Path
    """Of an administrator (group system:masters)."""
    authority: Authority
    _names: Iterator[int] = field(default_factory=lambda: count(1))

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """What `kubectl ARGUMENTS` prints; a failure is raised with what it said.

        Raises: KubectlError.
        """
        command = [BIN / "kubectl", "--kubeconfig", kubeconfig or self.kubeconfig, *arguments]
        done = subprocess.run([str(part) for part in command], input=stdin, capture_output=True, text=True, check=False, timeout=150)
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *manifests: dict[str, Any]) -> None:
        """Apply objects, status and all where they carry one: there is no controller to write it."""
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=document)
        for manifest in manifests:
            if "status" in manifest:
                self.kubectl("replace", "--subresource=status", "-f", "-", stdin=json.dumps(self._current(manifest)))

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """One object, as the API prints it."""
        place = ("-n", namespace) if namespace else ()
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, *place, "-o", "json"))
        return found

    def namespace(self, prefix: str = "test") -> str:
        """A new namespace; with no controllers none ever goes away, so a test never uses another's."""
        name = f"{prefix}-{next(self._names)}"
        self.kubectl("create", "namespace", name)
        return name

    def token_for(self, account: str) -> str:
        """A bearer token of the ServiceAccount `namespace/name`, which is made if it is missing."""
        namespace, name = account.split("/")
        with suppress(KubectlError):
            self.kubectl("create", "serviceaccount", name, "-n", namespace)
        return self.kubectl("create", "token", name, "-n", namespace, "--duration=1h").strip()

    def kubeconfig_for(self, account: str) -> Path:
        """A kubeconfig of the ServiceAccount `namespace/name`, which may do what RBAC lets it."""
        return self.authority.kubeconfig_with_token(account.replace("/", "-"), self.url, self.token_for(account))

    def _current(self, manifest: dict[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        return self.get(manifest["kind"], metadata["name"], metadata.get("namespace")) | {"status": manifest["status"]}


@contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """An API server whose state lives in `folder`; it ends with the block, and with this process too."""
    with ExitStack() as stack:
        client, peer, secure = free_ports(3)
        authority = Authority.create(folder / "pki")
        authority.issue("apiserver", "/CN=kube-apiserver", "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.254.0.1")
        authority.issue("admin", "/O=system:masters/CN=admin", "DNS:admin")
        url = f"https://127.0.0.1:{secure}"
        etcd = stack.enter_context(_process(folder / "etcd.log", _etcd(folder, client, peer)))
        api = stack.enter_context(_process(folder / "apiserver.log", _apiserver(authority.folder, client, secure)))
        server = ApiServer(url, authority.kubeconfig("admin", url), authority)
        _wait_until_ready(server, {folder / "etcd.log": etcd, folder / "apiserver.log": api})
        yield server


def _etcd(folder: Path, client: int, peer: int) -> Sequence[str | Path]:
    return (
        BIN / "etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", f"http://127.0.0.1:{client}", "--advertise-client-urls", f"http://127.0.0.1:{client}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}",
    )  # fmt: skip


def _apiserver(pki: Path, etcd: int, port: int) -> Sequence[str | Path]:
    return (
        BIN / "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1", f"--secure-port={port}",
        "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint
        f"--tls-cert-file={pki}/apiserver.crt", f"--tls-private-key-file={pki}/apiserver.key", f"--client-ca-file={pki}/ca.crt",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key",
        "--service-cluster-ip-range=10.254.0.0/24", "--authorization-mode=RBAC", "--allow-privileged=true",
        "--disable-admission-plugins=ServiceAccount",  # no controller makes the `default` account that it wants
    )  # fmt: skip


@contextmanager
def _process(log: Path, command: Sequence[str | Path]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = _start(command, output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(command: Sequence[str | Path], output: IO[bytes]) -> subprocess.Popen[bytes]:
    # setpriv: a killed test run takes its servers with it
    bound = ["setpriv", "--pdeathsig", "KILL", *map(str, command)]
    return subprocess.Popen(bound, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True)


def _wait_until_ready(server: ApiServer, processes: dict[Path, subprocess.Popen[bytes]], within: float = 90.0) -> None:
    deadline = time.monotonic() + within
    while (complaint := _complaint(server)) is not None:
        for log, process in processes.items():
            assert process.poll() is None, f"{log.stem} ended: {log.read_text(errors='replace')[-2000:]}"
        assert time.monotonic() < deadline, f"no API server within {within:.0f} s: {complaint}"
        time.sleep(0.2)


def _complaint(server: ApiServer) -> str | None:
    try:
        server.kubectl("get", "--raw", "/readyz")
    except KubectlError as error:
        return str(error)
    return None


def free_ports(number: int) -> list[int]:
    """Ports of loopback for servers that are yet to start; below those that the kernel lends to clients, one of which could be faster."""
    with ExitStack() as stack:
        return [stack.enter_context(_bound()).getsockname()[1] for _ in range(number)]


def _bound() -> socket.socket:
    while True:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", 10_000 + secrets.randbelow(20_000)))
        except OSError:
            one.close()
        else:
            return one


def eventually(what: str, holds: Callable[[], bool], within: float = 90.0) -> None:
    """Wait for a condition; what kubectl refuses meanwhile counts as not yet, and so does what takes no connection.

    Raises: AssertionError, with `what` did not come true.
    """
    deadline = time.monotonic() + within
    while not _holds(holds):
        assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}"
        time.sleep(0.1)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except (KubectlError, OSError):
        return False
