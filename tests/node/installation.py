"""Suture, installed in the rig as a user installs it: the chart from the built image, with its trial Postgres and a git server beside."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import yaml

from tests.node import registry, rig
from tests.node.gitserver import URL, GitServer
from tests.node.images import BASE, IMAGE
from tests.node.machine import RigError, inside, sh
from tests.node.network import Inside
from tests.node.programs import BIN
from tests.node.worker_node import kill_container, tag

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "suture"
BROKEN = "broken"
TOKEN, SECRET = "a-token-of-the-test", "a-secret-of-the-test"
PUBLIC_IMAGE = "docker.io/library/python:3.11-slim-bookworm"
"""What the broken apps run on; our own base stands in for it, under its name."""

_VALUES = {
    "image": {"repository": IMAGE.partition(":")[0], "tag": IMAGE.partition(":")[2], "pullPolicy": "Never"},
    "postgres": {"trial": {"enabled": True}},
    "repository": {"url": URL},
    "api": {"tokensSecret": "door", "pagerdutySecret": "door"},
    "jobs": {"namespaces": [BROKEN]},
}


class Installation:
    """What a person has: kubectl, the API with a token, the git repository, and PagerDuty's secret."""

    def __init__(self, git: GitServer) -> None:
        self.git = git
        self._inside = Inside()
        self._url = f"http://{rig.service('suture-api', NAMESPACE, 8080)}"

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The API's answer to the holder of the token; a refusal is raised."""
        answer = self._inside.request(method, f"{self._url}{path}", json=body, headers={"Authorization": f"Bearer {TOKEN}"})
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def answers(self, path: str) -> bool:
        """Whether the API answers well, to a caller without a token; a Service with no ready pod refuses the connection."""
        try:
            return self._inside.request("GET", f"{self._url}{path}").is_success
        except httpx.TransportError:
            return False

    def page(self, workload: str) -> str:
        """What PagerDuty sends when an incident about the workload begins; the id of the task that it became."""
        kind, namespace, name = workload.split("/")
        details = {"namespace": namespace, kind.lower(): name}
        data: dict[str, Any] = {
            "id": f"Q{uuid4().hex[:12].upper()}",
            "type": "incident",
            "status": "triggered",
            "title": f"{name} does not start",
        }
        data |= {"body": {"type": "incident_body", "details": details}}
        event = {"id": uuid4().hex, "event_type": "incident.triggered", "resource_type": "incident", "occurred_at": "2026-01-09T15:16:27Z"}
        body = json.dumps({"event": event | {"data": data}}).encode()
        signature = f"v1={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"
        headers = {"Content-Type": "application/json", "X-Webhook-Id": uuid4().hex, "X-PagerDuty-Signature": signature}
        answer = self._inside.request("POST", f"{self._url}/webhooks/pagerduty", content=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["taskId"])

    def question(self, task: str) -> dict[str, Any]:
        """The proposal of a task, once it stands."""
        self.until(f"task {task} waits for an answer", lambda: self._status(task) == "waiting")
        found: dict[str, Any] = self.ask("GET", f"/tasks/{task}/approval")
        return found

    def approve(self, task: str) -> None:
        self.ask("POST", f"/tasks/{task}/approve", {"digest": self.question(task)["proposal"]["digest"], "reason": "looks right"})

    def completed(self, task: str) -> dict[str, Any]:
        """The task, once it is done."""
        self.until(f"task {task} is completed", lambda: self._status(task) == "completed")
        found: dict[str, Any] = self.ask("GET", f"/tasks/{task}")
        return found

    def break_app(self, file: str, shows: str) -> None:
        """Apply one of the broken apps, and wait until its own pods show it: a word of their status."""
        path = ROOT / "deploy/broken" / file
        rig.kubectl("apply", "-f", path)
        broken = next(one for one in yaml.safe_load_all(path.read_text()) if one["kind"] == "Deployment")
        app = f"app={broken['spec']['selector']['matchLabels']['app']}"  # other apps may show the same word for longer
        self.until(f"{file} shows {shows}", lambda: shows in rig.kubectl("get", "pods", "-n", BROKEN, "-l", app, "-o", "json"))

    def kill(self, pod: str, container: str) -> None:
        """SIGKILL a container of ours, and wait until the kubelet has started another in its place, and that one is ready."""
        before = self._restarts(pod)
        assert any(kill_container(number, pod, container) for number in rig.nodes()), f"{pod} runs nowhere"
        self.until(f"{pod} is restarted", lambda: self._restarts(pod) > before)
        rig.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "-n", NAMESPACE, "--timeout=180s")

    def _restarts(self, pod: str) -> int:
        return int(rig.kubectl("get", "pod", pod, "-n", NAMESPACE, "-o", "jsonpath={.status.containerStatuses[0].restartCount}"))

    def until(self, what: str, holds: Callable[[], bool], within: float = 120.0) -> None:
        deadline = time.monotonic() + within
        while not holds():
            assert time.monotonic() < deadline, f"not within {within:.0f} s: {what}\n{describe()}"
            time.sleep(0.2)

    def close(self) -> None:
        self._inside.close()

    def _status(self, task: str) -> str:
        found = self.ask("GET", f"/tasks/{task}")
        assert found["status"] not in ("error", "cancelled"), found
        return str(found["status"])


def install(folder: Path) -> Installation:
    """Raises: RigError, with what the cluster says when it does not come up."""
    for number in rig.nodes():
        tag(number, BASE, PUBLIC_IMAGE)
    registry.answer_for("docker.io")
    git = GitServer(folder)
    git.seed(ROOT / "deploy/broken", "apps/broken")
    rig.kubectl("apply", "-f", ROOT / "deploy/broken/namespace.yaml")
    rig.kubectl("create", "namespace", NAMESPACE)
    keys = (f"--from-literal=tokens=ops:approver={TOKEN}", f"--from-literal=secret={SECRET}")
    rig.kubectl("create", "secret", "generic", "door", "-n", NAMESPACE, *keys)
    try:
        helm("install", "suture", ROOT / "charts/suture", "--namespace", NAMESPACE, "--values", "-", "--wait", "--timeout", "5m")
    except RigError as error:
        raise RigError(f"{error}\n{describe()}") from None
    return Installation(git)


def helm(*arguments: str | Path) -> str:
    return sh(*inside(1, BIN / "helm", "--kubeconfig", rig.ADMIN, *arguments), input=json.dumps(_VALUES)).stdout


def describe() -> str:
    """What a person would look at first: the pods, the last warnings, the last lines of each process."""
    pods = rig.kubectl("get", "pods", "-A", "-o", "wide")
    warnings = rig.kubectl("get", "events", "-A", "--field-selector=type=Warning", "--sort-by=.lastTimestamp")
    logs = rig.kubectl("logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=suture", "--tail=8", "--prefix", "--ignore-errors")
    return "\n".join((pods, *warnings.splitlines()[-12:], logs))
