"""The operator as it runs for people: a process of its own, a ServiceAccount with the rights that `operator.main` lists and no more, a real
Postgres, a worker in a third process. Each test takes a `Field`; nothing is left behind.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from suture.cli.installation import Account
from suture.cli.postgres import EmbeddedPostgres
from suture.engine import Database, Engine, Execution, migrate
from tests.cluster.apiserver import ApiServer, eventually

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
CRD = ROOT / "crds" / "tasks.suture.dev.yaml"
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class Loop:
    """An event loop in a thread, for what is async, so that the tests can wait for programs."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=90)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Postgres:
    """A server that can be stopped and started again at the same address."""

    def __init__(self, loop: Loop) -> None:
        self._loop, self._stack = loop, AsyncExitStack()
        self.room = Path(tempfile.mkdtemp(prefix="suture-field-", dir="/tmp"))  # a socket's path must be short
        self.room.chmod(0o755)
        self._socket = self.room / "socket"
        self._socket.mkdir(mode=0o700)
        account = Account.choose()
        if os.geteuid() == 0:
            os.chown(self._socket, account.uid, account.gid)
        self.url = f"postgresql:///suture?host={quote(str(self._socket))}&port=5432&user=suture"

    def start(self) -> None:
        place = {"unix_socket_directories": str(self._socket)}
        self._loop.run(self._stack.enter_async_context(EmbeddedPostgres.start(self.room / "data", settings=FAST | place)))

    def stop(self) -> None:
        self._loop.run(self._stack.aclose())
        self._stack = AsyncExitStack()


class Field:
    """An API server with the resource installed, a namespace, a database, and what runs on them."""

    def __init__(self, apiserver: ApiServer, loop: Loop, postgres: Postgres, plugin: Path, stack: ExitStack) -> None:
        self.apiserver, self.postgres, self.namespace = apiserver, postgres, apiserver.namespace()
        self._loop, self._plugin, self._stack, self._number = loop, plugin, stack, 0
        self.logs = Path(tempfile.mkdtemp(dir=postgres.room))

    # Programs ------------------------------------------------------------------------------------------------------------------

    def operator(self, *, ready: bool = True, **settings: str) -> subprocess.Popen[bytes]:
        """Start the operator; it watches this field's namespace."""
        own = {"SUTURE_OPERATOR_NAMESPACES": self.namespace, "SUTURE_OPERATOR_MIRROR": "0.2", "SUTURE_OPERATOR_RESYNC": "3"}
        own |= {"SUTURE_OPERATOR_HEALTH_ADDRESS": "", "SUTURE_LOG_LEVEL": "info", "KUBECONFIG": str(self.kubeconfig())}
        process = self._start("from suture.cli.main import main; main()", "operator", settings=own | settings)
        if ready:
            log = self.logs / f"{self._number}.log"
            eventually("the operator is let in", lambda: _lives(process, log) and "authentication has finished" in log.read_text())
        return process

    def suture(self, command: str, **settings: str) -> subprocess.Popen[bytes]:
        """Start a process of ours with these settings and no others."""
        return self._start("from suture.cli.main import main; main()", command, settings=settings)

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("from tests.cluster.echoing import main; main()")

    def kubeconfig(self) -> Path:
        return self.apiserver.kubeconfig_for(f"{self.namespace}/operator")

    def grant_everywhere(self) -> None:
        """The same rights in all namespaces, and a look at what is installed."""
        rules = [*RULES, {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["list", "watch"]}]
        bind(self, "ClusterRole", {}, f"suture-operator-all-{self.namespace}", rules)

    def _start(self, program: str, *arguments: str, settings: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        self._number += 1
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.logs), "SUTURE_DATABASE_URL": self.postgres.url}
        environment["PYTHONPATH"] = f"{self._plugin}:{ROOT}/.dev:{ROOT}"
        with (self.logs / f"{self._number}.log").open("wb") as log:
            command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-X", "dev", "-c", program, *arguments]
            process = subprocess.Popen(command, env=environment | (settings or {}), cwd="/", stdout=log, stderr=log)
        self._stack.callback(end, process)
        return process

    def passes(self, count: int) -> int:
        """Wait until the operator has listed the Tasks `count` times more, as the API server counts it."""
        first = self._lists()
        eventually(f"{count} resyncs", lambda: self._lists() >= first + count)
        return count

    def _lists(self) -> int:
        text = self.apiserver.kubectl("get", "--raw", "/metrics")
        pattern = r'^apiserver_request_total\{[^}]*group="suture.dev"[^}]*resource="tasks"[^}]*verb="LIST"[^}]*\} (\S+)$'
        return int(sum(float(number) for number in re.findall(pattern, text, re.MULTILINE)))

    def probe(self, address: str, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://{address}/{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code

    def log(self) -> str:
        return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(self.logs.iterdir()))

    # Tasks ---------------------------------------------------------------------------------------------------------------------

    def task(self, name: str, workflow: str = "echo", *, text: str = "hello", **spec: Any) -> dict[str, Any]:
        """A manifest."""
        metadata = {"name": name, "namespace": self.namespace}
        return {
            "apiVersion": "suture.dev/v1alpha1",
            "kind": "Task",
            "metadata": metadata,
            "spec": {"type": workflow, "input": {"text": text}} | spec,
        }

    def apply(self, *manifests: dict[str, Any]) -> None:
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.kubectl("apply", "-f", "-", stdin=document)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.apiserver.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def get(self, name: str) -> dict[str, Any]:
        return self.apiserver.get("task", name, self.namespace)

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "tasks", "-o", "json"))["items"]
        return found

    def patch(self, name: str, patch: dict[str, Any], *options: str) -> None:
        self.kubectl("patch", "task", name, "--type=merge", "-p", json.dumps(patch), *options)

    def state(self, name: str) -> str | None:
        state: str | None = self.get(name).get("status", {}).get("state")
        return state

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = self.get(name).get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == kind), {})

    def gone(self, name: str) -> bool:
        return not self.kubectl("get", "task", name, "--ignore-not-found")

    # Rows ----------------------------------------------------------------------------------------------------------------------

    def rows(self, name: str | None = None) -> list[Execution]:
        return self.ask(lambda engine: engine.page(labels={"task": name} if name else {"namespace": self.namespace}, limit=500))

    def ask(self, question: Any) -> Any:
        """The answer of the engine to `question`."""

        async def asked() -> Any:
            async with Database.connect(self.postgres.url) as database:
                return await question(Engine(database))

        return self._loop.run(asked())


@contextmanager
def field(apiserver: ApiServer, tmp_path: Path) -> Iterator[Field]:
    """A field; on failure what the processes logged is printed."""
    with ExitStack() as stack:
        loop = Loop()
        stack.callback(loop.close)
        postgres = Postgres(loop)
        stack.callback(shutil.rmtree, postgres.room, ignore_errors=True)
        postgres.start()
        stack.callback(postgres.stop)
        loop.run(migrate(postgres.url))
        apiserver.kubectl("apply", "--server-side", "-f", CRD)
        apiserver.kubectl("wait", "--for=condition=Established", "crd/tasks.suture.dev")
        made = Field(apiserver, loop, postgres, offer(tmp_path / "plugin"), stack)
        eventually("the resource is served", lambda: made.tasks() == [])
        grant(made)
        stack.callback(release, made)
        try:
            yield made
        except BaseException:
            print(made.log())
            raise


def offer(folder: Path) -> Path:
    """What installing a distribution with workflows leaves behind: its metadata, with the entry point."""
    metadata = folder / "echoing-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echoing\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[suture.workflows]\necho = tests.cluster.echoing\n")
    return folder


# The rights of the table in `suture.operator.main`.
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["suture.dev"], "resources": ["tasks"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["suture.dev"], "resources": ["tasks/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
IDENTITY: list[dict[str, Any]] = [{"apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"]}]


def grant(made: Field) -> None:
    """As a Role where that is enough."""
    bind(made, "Role", {"namespace": made.namespace}, "suture-operator", RULES)
    bind(made, "ClusterRole", {}, f"suture-operator-{made.namespace}", IDENTITY)


def bind(made: Field, kind: str, scope: dict[str, str], name: str, rules: list[dict[str, Any]]) -> None:
    """Give the operator's account these rules."""
    bind_to(made, "operator", kind, scope, name, rules)


def bind_to(made: Field, account: str, kind: str, scope: dict[str, str], name: str, rules: list[dict[str, Any]]) -> None:
    """Give an account of the field's namespace these rules."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name, **scope}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **scope},
        "roleRef": {"apiGroup": group, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": made.namespace}],
    }
    made.apiserver.apply(role, binding)


def release(made: Field) -> None:
    """Leave no Task that another test's operator could find."""
    for task in made.tasks():
        made.kubectl("patch", "task", task["metadata"]["name"], "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    made.kubectl("delete", "tasks", "--all", "--wait=false")


def end(process: subprocess.Popen[bytes], *, order: signal.Signals = signal.SIGTERM, within: float = 30.0) -> int:
    """The exit code of the process, which gets the signal if it still runs."""
    if process.poll() is None:
        process.send_signal(order)
    try:
        return process.wait(timeout=within)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"it did not end within {within:.0f} s of {order.name}") from None


def _lives(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, f"the operator ended: {log.read_text()[-3000:]}"
    return True


def names(prefix: str, count: int) -> Sequence[str]:
    return [f"{prefix}-{number}" for number in range(count)]
