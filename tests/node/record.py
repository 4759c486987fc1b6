"""Records the failures of `suture demo` on the rig: what a real kubelet, scheduler and registry say of them.

    python -m tests.node.rig up --nodes 2
    python -m tests.node.record [CASE ...]

Each case lies in src/cli/demo_cases/CASE: `before/` (if it is a change that broke it) is applied and waited for, then `repo/`; when the
failure shows, the evidence replaces `recording/`. Left out or altered: managed fields, images and ids of the nodes, values of Secrets,
root certificates; the folders and the host name of this machine stand as the usual ones. The programs are in apps/.
"""

import argparse
import json
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from suture.clients.cluster_reading import CLUSTER, EVENTS, NAMESPACED
from tests.node import images, registry, rig
from tests.node.machine import RUN, RigError, until
from tests.node.worker_node import tag

CASES = Path(__file__).resolve().parents[2] / "src/cli/demo_cases"
APPS = Path(__file__).resolve().parent / "apps"
APPS_IMAGE = "localhost/suture-apps:test"
REGISTRY = "registry.example.com"
STEADY = 3.0  # seconds that a failure is left to itself before it is recorded: its last events are written behind it

Pods = list[dict[str, Any]]


def waiting(reason: str, restarts: int = 0) -> Callable[[Pods], bool]:
    """Whether a container waits for `reason`, with so many restarts at least."""
    return lambda pods: any(
        s["state"].get("waiting", {}).get("reason") == reason and s["restartCount"] >= restarts for s in _statuses(pods)
    )


FAILED: dict[str, Callable[[Pods], bool]] = {
    "image-tag": waiting("ImagePullBackOff"),
    "oom": lambda pods: any(s["ready"] and s["lastState"].get("terminated", {}).get("reason") == "OOMKilled" for s in _statuses(pods)),
    "config-key": waiting("CreateContainerConfigError"),
    "probe-port": lambda pods: sum(s["restartCount"] for s in _statuses(pods)) >= 3,
    "cpu-request": lambda pods: any(
        c["type"] == "PodScheduled" and c["status"] == "False" for p in pods for c in p["status"].get("conditions", ())
    ),
    "missing-env": waiting("CrashLoopBackOff", restarts=2),
}


def record(case: str) -> None:
    """Make one case fail and write what is seen.

    Raises: RigError.
    """
    folder = CASES / case
    namespace = json.loads((folder / "case.json").read_text())["workload"]["namespace"]
    states = [state for state in (folder / "before", folder / "repo") if state.is_dir()]
    _provide_images(states[0])
    try:
        told = ""
        for state in states:
            told = rig.kubectl("apply", "-R", "-f", state)
            if state.name == "before":
                rig.kubectl("rollout", "status", "deployment", "-n", namespace, "--timeout=60s")
        started = time.monotonic()
        until(f"the failure of {case}", lambda: FAILED[case](_pods(namespace)), within=180)
        seconds = time.monotonic() - started
        time.sleep(STEADY)
        _write(folder / "recording", namespace, told, seconds)
    finally:
        rig.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait=true", "--timeout=90s")


def _provide_images(state: Path) -> None:
    """Let the nodes have what the healthy state asks for; what it does not name, the registry does not have."""
    for path in state.rglob("*.yaml"):
        for image in re.findall(rf'image:\s*"?({re.escape(REGISTRY)}/[^\s"]+)', path.read_text()):
            for number in rig.nodes():
                tag(number, APPS_IMAGE, image)


def _write(recording: Path, namespace: str, told: str, seconds: float) -> None:
    shutil.rmtree(recording, ignore_errors=True)
    for source in (*NAMESPACED, EVENTS):
        _write_list(recording / namespace / f"{source.plural}.json", ("-n", namespace, f"{source.plural}.{_group(source.version)}"))
    for source in CLUSTER:
        _write_list(recording / "cluster" / f"{source.plural}.json", (f"{source.plural}.{_group(source.version)}",))
    _write_list(recording / "cluster/namespaces.json", ("namespaces", "--field-selector", f"metadata.name={namespace}"))
    for pod, container, previous in _lives(namespace):
        _write_log(recording / namespace / "logs", namespace, pod, container, previous)
    (recording / "commands.txt").write_text(f"$ apply of this revision\n{told}")
    version = json.loads(rig.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
    taken = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    meta = {"taken": taken, "seconds_from_apply_to_failure": round(seconds, 1), "kubernetes": version}
    (recording / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


def _write_list(path: Path, what: tuple[str, ...]) -> None:
    items = [_trimmed(item) for item in json.loads(rig.kubectl("get", *what, "-o", "json"))["items"]]
    kept = [item for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]
    if kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": kept}, indent=1)
        path.write_text(_usual(text) + "\n")


def _write_log(folder: Path, namespace: str, pod: str, container: str, previous: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{pod}.{container}{'.previous' if previous else ''}"
    try:
        content = rig.kubectl("logs", "-n", namespace, pod, "-c", container, *(("--previous",) if previous else ()))
    except RigError as error:
        (folder / f"{name}.error").write_text(_usual(str(error).partition(": ")[2]) + "\n")
    else:
        (folder / f"{name}.log").write_text(content)


def _lives(namespace: str) -> Iterator[tuple[str, str, bool]]:
    for pod in _pods(namespace):
        for status in _statuses([pod]):
            yield pod["metadata"]["name"], status["name"], False
            if status["restartCount"]:
                yield pod["metadata"]["name"], status["name"], True


def _trimmed(item: dict[str, Any]) -> dict[str, Any]:
    metadata = item["metadata"]
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations", {})
    annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    if not annotations:
        metadata.pop("annotations", None)
    if item["kind"] == "Secret":
        item["data"] = dict.fromkeys(item.get("data", {}), "")
    if item["kind"] == "Pod":
        asked = {container["name"]: container["image"] for container in item["spec"]["containers"]}
        for status in _statuses([item]):  # one image serves all programs here, and the kubelet names it by its first name
            status["image"] = asked[status["name"]]
    if item["kind"] == "Node":
        item["status"].pop("images", None)
        item["status"]["nodeInfo"] |= dict.fromkeys(("bootID", "machineID", "systemUUID"), "00000000-0000-0000-0000-000000000000")
    return item


def _usual(text: str) -> str:
    """This machine's folders and name, as any other machine would print them."""
    text = re.sub(rf"{re.escape(str(RUN))}/node\d+/(kubelet|pod-logs|containerd)", _place, text)
    return text.replace(f"default-scheduler-{socket.gethostname()}", "default-scheduler-control-plane")


def _place(found: re.Match[str]) -> str:
    return {"kubelet": "/var/lib/kubelet", "pod-logs": "/var/log/pods", "containerd": "/var/lib/containerd"}[found[1]]


def _group(version: str) -> str:
    """The form in which kubectl tells kinds of equal names apart: PLURAL.VERSION.GROUP."""
    group, _, number = version.rpartition("/")
    return f"{number}.{group}"


def _pods(namespace: str) -> Pods:
    found: Pods = json.loads(rig.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    return found


def _statuses(pods: Pods) -> list[dict[str, Any]]:
    return [status for pod in pods for status in pod["status"].get("containerStatuses", ())]


def prepare() -> None:
    """Bring the programs of the cases onto the nodes, and the registry that does not have the rest."""
    images.base()
    archive = images.layered(APPS_IMAGE, {"/app": APPS})
    rig.load_everywhere(archive)
    if not (RUN / "registry.pid").exists():
        registry.answer_for(REGISTRY)


def main() -> None:
    parser = argparse.ArgumentParser(prog="record", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(FAILED))
    chosen = parser.parse_args().cases
    try:
        prepare()
        for case in chosen:
            record(case)
            print(f"recorded {case}", flush=True)
    except RigError as error:
        sys.exit(f"record: {error}")


if __name__ == "__main__":
    main()
