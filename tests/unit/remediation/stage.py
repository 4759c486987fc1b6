"""A small stage for evidence that no recording holds: objects and events as the API server would print them."""

from typing import Any

from suture.remediation.diagnosis import diagnose
from suture.remediation.evidence import Evidence, Log
from suture.remediation.incident import Diagnosis

HASH = "6d5f8c9b7d"
POD = f"Pod/shop/web-{HASH}-abcde"


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "app", "image": "registry.example.com/shop/web:2.0.0", "resources": {}, **fields}


def template(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": list(containers) or [container()], **spec}}


def deployment(*containers: dict[str, Any], replicas: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                 "template": template(*containers, **spec)},
    }  # fmt: skip


def replica_set(
    *containers: dict[str, Any], name: str = f"web-{HASH}", revision: int = 2, replicas: int = 1, there: int = 1, **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"namespace": "shop", "name": name, "annotations": {"deployment.kubernetes.io/revision": str(revision)},
                     "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}]},
        "spec": {"replicas": replicas, "template": template(*containers, **spec)}, "status": {"replicas": there},
    }  # fmt: skip


def pod(
    *containers: dict[str, Any],
    status: dict[str, Any] | None = None,
    phase: str = "Running",
    node: str = "node1",
    name: str = f"web-{HASH}-abcde",
    conditions: list[dict[str, Any]] | None = None,
    reason: str = "",
    init: list[dict[str, Any]] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    made = list(containers) or [container()]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": name, "labels": {"app": "web", "pod-template-hash": HASH},
                     "ownerReferences": [{"kind": "ReplicaSet", "name": f"web-{HASH}", "controller": True}]},
        "spec": {"containers": made, **({"nodeName": node} if node else {}), **({"initContainers": init} if init else {}), **spec},
        "status": {"phase": phase, "conditions": conditions or [], **({"reason": reason} if reason else {}),
                   "containerStatuses": [{"name": made[0]["name"], "ready": False, "restartCount": 0, **(status or {})}]},
    }  # fmt: skip


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, **({"message": message} if message else {})}}}


def crashed(code: int = 1, reason: str = "Error", **more: Any) -> dict[str, Any]:
    end = {"terminated": {"exitCode": code, "reason": reason}}
    return {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end, "restartCount": 4, **more}


def event(
    message: str, reason: str = "Failed", about: str = POD, *, container: str = "app", kind: str = "Warning", at: int = 0
) -> dict[str, Any]:
    what, namespace, name = about.split("/")
    field = {"fieldPath": f"spec.containers{{{container}}}"} if what == "Pod" and container else {}
    return {
        "apiVersion": "v1", "kind": "Event", "type": kind, "reason": reason, "message": message, "count": 3,
        "metadata": {"namespace": namespace or "default", "name": f"{name}.{abs(hash((message, reason, at))):x}"},
        "lastTimestamp": f"2026-01-01T00:{at:02}:00Z", "involvedObject": {"kind": what, "namespace": namespace, "name": name, **field},
    }  # fmt: skip


def node(
    name: str = "node1", *, cpu: str = "4", memory: str = "16Gi", labels: dict[str, str] | None = None, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}, "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": memory}, "nodeInfo": {"architecture": "amd64"},
                   "conditions": [{"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}]},
    }  # fmt: skip


def unschedulable(message: str) -> dict[str, Any]:
    return {"phase": "Pending", "node": "", "status": {"state": {}},
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}  # fmt: skip


def log(content: bytes, *, previous: bool = True, container: str = "app") -> Log:
    return Log("shop", f"web-{HASH}-abcde", container, previous, content)


def verdict(*objects: dict[str, Any], logs: tuple[Log, ...] = ()) -> Diagnosis:
    return diagnose(Evidence(objects, logs))


def codes(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings]
