"""Jobs of Kubernetes: create, look, delete, and what their pods said. Only in the namespaces that a setting names.

Objects go in and out as the API prints them; what they mean is said elsewhere (see `errands`). The requests are `cluster`'s.
"""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from suture.clients.cluster import LOG_LINES, Answer, Cluster, said
from suture.errors import AccessDenied, Conflict, InvalidRequest, NotFound, ServiceUnavailable

Object = dict[str, Any]
"""A Kubernetes object as the API printed it."""

EXECUTION = "suture.dev/execution"
"""Label of a Job and its pods: the id of the execution that they belong to."""

PAGE = 250

_OF_A_JOB = "batch.kubernetes.io/job-name"


class Jobs:
    def __init__(self, cluster: Cluster | None, *, namespaces: Iterable[str]) -> None:
        self._cluster, self.namespaces = cluster, tuple(namespaces)

    def permitted(self, namespace: str | None) -> str:
        """The namespace, where Jobs may be created in it.

        Raises: AccessDenied that says which setting would allow it; InvalidRequest without a namespace.
        """
        if not namespace:
            raise InvalidRequest("input.namespace is missing: name the namespace of the Job.")
        if namespace not in self.namespaces or self._cluster is None:
            allowed = ", ".join(self.namespaces) or "none"
            raise AccessDenied(f"No Job may be created in the namespace {namespace!r}: SUTURE_JOBS_NAMESPACES allows {allowed}.")
        return namespace

    async def find(self, namespace: str, name: str) -> Object | None:
        """Raises: AccessDenied, ServiceUnavailable, RateLimited."""
        answer = await self._ask("GET", _path(namespace, name))
        return None if answer.status == 404 else _object(answer)

    async def create(self, manifest: Mapping[str, Any]) -> Object:
        """Create the Job; the one of this name that is there already comes back in its place.

        Raises: InvalidRequest for what the API server does not take. NotFound without the namespace. AccessDenied, ServiceUnavailable,
        RateLimited.
        """
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        answer = await self._ask("POST", _path(namespace), [("fieldValidation", "Strict")], body=dict(manifest))
        if answer.status == 409 and (found := await self.find(namespace, name)) is not None:
            return found
        return _object(answer)

    async def delete(self, namespace: str, name: str, *, uid: str) -> None:
        """Delete this very Job, its pods after it; one that is gone, or another of the name, is left.

        Raises: AccessDenied, ServiceUnavailable, RateLimited.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": {"uid": uid}}
        answer = await self._ask("DELETE", _path(namespace, name), body=options)
        if answer.status not in (404, 409):
            _object(answer)

    async def pods(self, job: Object) -> list[Object]:
        """The pods that the Job has made, as far as they are still there, oldest first."""
        namespace, name, uid = (job["metadata"][key] for key in ("namespace", "name", "uid"))
        answer = await self._ask("GET", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", [("labelSelector", f"{_OF_A_JOB}={name}")])
        found = [pod for pod in _object(answer)["items"] if uid in {o["uid"] for o in pod["metadata"].get("ownerReferences", ())}]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    async def log(self, namespace: str, pod: str, container: str, *, limit: int) -> tuple[bytes, bool]:
        """The last `limit` bytes of a container's log, from the start of a line, and whether there was more.

        Raises: NotFound when there is none. AccessDenied, RateLimited, ServiceUnavailable; of the kubelet, too.
        """
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        answer = await self._ask("GET", path, [("container", container), ("tailLines", str(LOG_LINES))], tail=limit)
        if answer.status >= 500:
            raise ServiceUnavailable(f"The kubelet gives no log of {namespace}/{pod}: {said(answer)}")
        if answer.status == 204:
            raise NotFound(f"The pod {namespace}/{pod} was never on a node.")
        if answer.status != 200:
            _object(answer)
        return answer.body, answer.cut or answer.body.count(b"\n") >= LOG_LINES

    async def ours(self, namespace: str) -> AsyncIterator[Object]:
        """All Jobs in the namespace that belong to an execution, whichever."""
        following = ""
        while True:
            query = [("labelSelector", EXECUTION), ("limit", str(PAGE)), *([("continue", following)] if following else [])]
            page = _object(await self._ask("GET", _path(namespace), query))
            for item in page["items"]:
                yield item
            following = page["metadata"].get("continue", "")
            if not following:
                break

    async def _ask(self, method: str, path: str, query: Iterable[tuple[str, str]] = (), **rest: Any) -> Answer:
        if self._cluster is None:
            raise AccessDenied("No Job may be touched: SUTURE_JOBS_NAMESPACES is empty.")
        return await self._cluster.request(method, path, query, **rest)


def has_ended(job: Object) -> bool:
    """Whether the Job's controller is done with it.

    >>> has_ended({"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    True
    """
    return ending(job) is not None


def ending(job: Object) -> Object | None:
    """The condition that ended the Job: of type Complete or Failed."""
    conditions = job.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


def _path(namespace: str, name: str | None = None) -> str:
    root = f"/apis/batch/v1/namespaces/{quote(namespace, safe='')}/jobs"
    return f"{root}/{quote(name, safe='')}" if name else root


def _object(answer: Answer) -> Object:
    if answer.status < 300:
        found: Object = json.loads(answer.body)
        return found
    match answer.status:
        case 403:
            raise AccessDenied(f"{said(answer)}. Does the worker's role hold this verb there?")
        case 404:
            raise NotFound(said(answer))
        case 409:
            raise Conflict(said(answer))
    raise InvalidRequest(f"The API server does not take it: {said(answer)}")
