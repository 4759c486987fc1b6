"""A field with real workers that may create Jobs, and what the Job controller and the kubelet would write, which nobody does here."""

import json
import subprocess
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from suture.engine import Execution
from tests.cluster.apiserver import eventually
from tests.cluster.operating import Field, bind_to

# The rights that the chart gives to workers in the namespaces of `jobs.namespaces`.
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "delete"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


def worker(made: Field, **settings: str) -> "subprocess.Popen[bytes]":
    """`suture worker` with the rights for Jobs in the field's namespace."""
    bind_to(made, "worker", "Role", {"namespace": made.namespace}, "suture-jobs", RULES)
    kubeconfig = made.apiserver.kubeconfig_for(f"{made.namespace}/worker")
    own = {
        "KUBECONFIG": str(kubeconfig),
        "SUTURE_JOBS_NAMESPACES": made.namespace,
        "SUTURE_REPOSITORY_URL": str(made.logs),
        "SUTURE_EVIDENCE_SOURCE": "recording",
        "SUTURE_EVIDENCE_RECORDING": str(made.logs),
        "SUTURE_WORKER_HEALTH_ADDRESS": "",
        "SUTURE_WORKER_POLL": "0.2",
        "SUTURE_WORKER_DRAIN": "1",
    }
    return made.suture("worker", **own | settings)


def enqueue(made: Field, **fields: Any) -> UUID:
    simple = {} if "template" in fields else {"image": "app:1", "command": ["run"]}
    asked = {"namespace": made.namespace} | simple | fields
    found: UUID = made.ask(lambda engine: engine.enqueue("kubernetes-job", asked, actor="test")).execution.id
    return found


def row(made: Field, id_: UUID) -> Execution:
    found: Execution = made.ask(lambda engine: engine.get(id_))
    return found


def reached(made: Field, id_: UUID, status: str) -> Execution:
    eventually(f"{id_} is {status}", lambda: row(made, id_).status == status)
    return row(made, id_)


def jobs(made: Field) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(made.kubectl("get", "jobs", "-o", "json"))["items"]
    return found


def created(made: Field, id_: UUID) -> dict[str, Any]:
    """The Job of the execution, once it is there."""
    eventually(f"the Job of {id_}", lambda: any(j["metadata"]["name"] == f"suture-{id_}" for j in jobs(made)))
    return next(j for j in jobs(made) if j["metadata"]["name"] == f"suture-{id_}")


def finish(made: Field, job: dict[str, Any], *, code: int = 0, message: str = "") -> None:
    """Write what the kubelet writes of a container that ended, and the controller of its Job."""
    moment, name, owner = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), job["metadata"]["name"], job["metadata"]
    terminated = {"exitCode": code, "message": message, "reason": "Error" if code else "Completed"}
    labels = {"batch.kubernetes.io/job-name": name, **job["spec"]["template"]["metadata"]["labels"]}
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": owner["uid"], "controller": True}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-x", "namespace": made.namespace, "labels": labels, "ownerReferences": [reference]},
        "spec": job["spec"]["template"]["spec"],
        "status": {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [
                {"name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": terminated}}
            ],
        },
    }
    made.apiserver.apply(pod)
    kinds = ("FailureTarget", "Failed") if code else ("SuccessCriteriaMet", "Complete")
    reason = {"reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit"} if code else {}
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": moment, **reason} for kind in kinds]
    status: dict[str, Any] = {"startTime": moment, "conditions": conditions}
    status |= {"failed": 1} if code else {"succeeded": 1, "completionTime": moment}
    made.kubectl("patch", "job", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
