"""What a Job is made of and what became of it: from a request to a manifest, and from its objects to a result. Pure; asks nobody."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from suture.clients.jobs import EXECUTION, Object, ending
from suture.errands.requests import JobRequest, JobResult
from suture.redaction import redact_text

TASK = "suture.dev/task"
"""Label that names the Task resource, where there is one."""

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_MESSAGE = 4096  # characters: the kubelet keeps as many bytes of a termination message


def job_name(execution: UUID) -> str:
    """The same for each try of one execution: by it a Job is found that an earlier try has made."""
    return f"suture-{execution}"


def manifest(request: JobRequest, *, namespace: str, execution: UUID, task: str | None = None) -> Object:
    """The Job to create."""
    labels = {"app.kubernetes.io/managed-by": "suture", EXECUTION: str(execution)}
    if task and _LABEL.fullmatch(task):
        labels[TASK] = task
    spec = dict(request.template) if request.template is not None else _spec(request)
    pod: dict[str, Any] = dict(spec["template"])  # the request's own check has seen that it is there
    of_pod: dict[str, Any] = pod.get("metadata") or {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": namespace, "name": job_name(execution), "labels": labels},
        "spec": {
            **spec,
            "ttlSecondsAfterFinished": request.ttl_seconds,
            "activeDeadlineSeconds": min(_number(spec.get("activeDeadlineSeconds")) or request.timeout_seconds, request.timeout_seconds),
            "template": {
                **pod,
                "metadata": {**of_pod, "labels": {**(of_pod.get("labels") or {}), **labels}},
                "spec": {"restartPolicy": "Never", **pod["spec"]},
            },
        },
    }


def result(job: Object, pods: list[Object]) -> JobResult:
    """How the Job ended; the log is added by who can read it."""
    end = ending(job) or {}
    succeeded = end.get("type") == "Complete"
    pod, container = _telling(pods, succeeded=succeeded)
    terminated = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
    words = terminated.get("message") or end.get("message") or ""
    return JobResult(
        namespace=job["metadata"]["namespace"],
        job=job["metadata"]["name"],
        succeeded=succeeded,
        reason="" if succeeded else end.get("reason") or "Failed",
        exit_code=terminated.get("exitCode"),
        message=redact_text(words)[:_MESSAGE],
        pod=pod["metadata"]["name"] if pod else None,
    )


def told_by(pods: list[Object], *, succeeded: bool) -> tuple[str, str] | None:
    """The pod and the container whose log tells the end."""
    pod, container = _telling(pods, succeeded=succeeded)
    if pod is None:
        return None
    return pod["metadata"]["name"], container.get("name") or pod["spec"]["containers"][0]["name"]


def gone(namespace: str, name: str) -> JobResult:
    """The result of a Job that was deleted before its end was seen."""
    message = "Somebody deleted the Job before its end was seen."
    return JobResult(namespace=namespace, job=name, succeeded=False, reason="JobGone", message=message)


def sentence(failed: JobResult) -> str:
    """The failure, for people."""
    code = f", exit code {failed.exit_code}" if failed.exit_code is not None else ""
    last = failed.message.strip() or next((line for line in reversed(failed.log.splitlines()) if line.strip()), "")
    words = " ".join(last.split())[:500]
    return f"The Job {failed.namespace}/{failed.job} failed ({failed.reason}{code}){f': {words}' if words else '.'}"


def _spec(request: JobRequest) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": request.image,
        "command": request.command,
        "args": request.args,
        "env": [{"name": name, "value": value} for name, value in request.env.items()],
        "resources": request.resources,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,  # what only runs a program needs no way into the API
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"backoffLimit": request.backoff_limit, "template": {"spec": pod}}


def _telling(pods: list[Object], *, succeeded: bool) -> tuple[Object | None, Object]:
    """The youngest pod that ended as the Job did, and the status of its container that counts: of a failure the one that failed."""
    phase = "Succeeded" if succeeded else "Failed"
    pod = next((p for p in reversed(pods) if p.get("status", {}).get("phase") == phase), pods[-1] if pods else None)
    if pod is None:
        return None, {}
    status: Mapping[str, Any] = pod.get("status", {})
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    failed = [c for c in containers if (c.get("state", {}).get("terminated") or {}).get("exitCode")]
    own = [c for c in containers if c["name"] == pod["spec"]["containers"][0]["name"]]
    return pod, next(iter([*([] if succeeded else failed), *own]), {})


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
