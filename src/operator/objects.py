"""The Task objects on the API server: read, list, write status, guard, tell. The operator's own requests; kopf makes those of the watch.

Every write names the uid and the resourceVersion that it was decided on: an object that moved on, or another one of the same name, is a
Conflict and nothing is written. Decides nothing.
"""

import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import aiohttp
import yaml
from kubernetes.aio import client, config

from suture.errors import AccessDenied, ConfigError, Conflict, InvalidRequest, NotFound, RateLimited, ServiceUnavailable
from suture.operator.resource import FINALIZER, GROUP, KIND, MANAGER, PLURAL, VERSION, Task

PAGE: Final = 250
"""Tasks a page of a list: 250 inputs of ordinary size stay within a few MiB."""

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)  # a black-holed API server ends here
_WATCHING = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=90)  # bookmarks come each minute
_API_VERSION = f"{GROUP}/{VERSION}"
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


class Objects:
    """The Tasks of one cluster. `namespaces` limits what `everywhere` lists; empty: all."""

    def __init__(self, api: client.ApiClient, *, namespaces: tuple[str, ...] = ()) -> None:
        self._api, self.namespaces = api, namespaces
        self._cluster_id: str | None = None

    @classmethod
    @asynccontextmanager
    async def connect(cls, *, namespaces: tuple[str, ...] = ()) -> AsyncIterator[Self]:
        """The cluster that this pod runs in, else the one that kubectl would take. Nothing is sent yet.

        Raises: ConfigError.
        """
        async with client.ApiClient(configuration=await configuration()) as api:
            yield cls(api, namespaces=namespaces)

    def serves(self, namespace: str) -> bool:
        """Whether the namespace is one of ours."""
        return bool(namespace) and (not self.namespaces or namespace in self.namespaces)

    async def cluster_id(self) -> str:
        """What tells this cluster's rows from those of another that shares the database: the uid of its kube-system namespace.

        Raises: AccessDenied, ServiceUnavailable, RateLimited.
        """
        if self._cluster_id is None:
            found = await self.request("GET", "/api/v1/namespaces/kube-system")
            self._cluster_id = str(found["metadata"]["uid"])
        return self._cluster_id

    async def get(self, namespace: str, name: str) -> Task:
        """Raises: NotFound, AccessDenied, ServiceUnavailable, RateLimited."""
        return Task.read(await self.request("GET", _path(namespace, name)))

    async def everywhere(self) -> AsyncIterator[list[Task]]:
        """All Tasks, a page at a time.

        Raises: NotFound when the resource is not installed. AccessDenied, ServiceUnavailable, RateLimited.
        """
        for namespace in self.namespaces or (None,):
            following = ""
            while True:
                query = [("limit", str(PAGE)), *([("continue", following)] if following else [])]
                page = await self.request("GET", _path(namespace), query)
                yield [Task.read(item) for item in page["items"]]
                following = page["metadata"].get("continue", "")
                if not following:
                    break

    async def apply_status(self, task: Task, status: Mapping[str, Any], surplus: Mapping[str, Any]) -> Task:
        """Make `status` the Task's by server-side apply, over any other hand; `surplus` is a merge patch that goes first.

        Raises: Conflict when the Task moved on. NotFound, AccessDenied, InvalidRequest, ServiceUnavailable, RateLimited.
        """
        path = _path(task.meta.namespace, task.meta.name) + "/status"
        if surplus:
            body = {"metadata": _identity(task), "status": surplus}
            task = Task.read(await self.request("PATCH", path, [("fieldManager", MANAGER)], body=body, content=_MERGE))
        whole = {"apiVersion": _API_VERSION, "kind": KIND, "metadata": _identity(task), "status": status}
        query = [("fieldManager", MANAGER), ("force", "true")]
        return Task.read(await self.request("PATCH", path, query, body=whole, content=_APPLY))

    async def guard(self, task: Task, *, guarded: bool = True) -> Task:
        """Add or remove our finalizer; those of others stay.

        Raises: as `apply_status`.
        """
        others = [name for name in task.meta.finalizers if name != FINALIZER]
        body = {"metadata": _identity(task) | {"finalizers": [*others, FINALIZER] if guarded else others}}
        path = _path(task.meta.namespace, task.meta.name)
        return Task.read(await self.request("PATCH", path, [("fieldManager", MANAGER)], body=body, content=_MERGE))

    async def tell(self, task: Task, reason: str, message: str, *, warning: bool, about: str) -> None:
        """Add a Kubernetes Event to the Task; the same `about` and `reason` make one event, however often and by whom they are told.

        Raises: as `apply_status`, but for Conflict.
        """
        meta = task.meta
        digest = hashlib.sha256(f"{meta.uid}/{meta.generation}/{about}/{reason}".encode()).hexdigest()[:16]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"name": f"{meta.name[:200].rstrip('.-')}.{digest}", "namespace": meta.namespace},
            "involvedObject": {
                "apiVersion": _API_VERSION,
                "kind": KIND,
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason[:128],
            "message": message[:1000],  # the server takes 1024
            "source": {"component": MANAGER},
            "reportingComponent": MANAGER,
            "reportingInstance": os.uname().nodename[:128],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            await self.request("POST", f"/api/v1/namespaces/{meta.namespace}/events", body=event)
        except Conflict:
            return  # it was told before

    async def request(
        self, method: str, path: str, query: Iterable[tuple[str, str]] = (), *, body: object = None, content: str = "application/json"
    ) -> dict[str, Any]:
        """The object that one request answers.

        Raises: NotFound, Conflict, AccessDenied, InvalidRequest, ServiceUnavailable, RateLimited.
        """
        headers = {"Accept": "application/json", "Content-Type": content}
        call = await self._api.param_serialize(method, path, {}, list(query), headers, body, auth_settings=["BearerToken"])
        try:
            response = (await self._api.call_api(*call, _request_timeout=_TIMEOUT)).response
            async with response:
                text, status, patience = await response.read(), response.status, response.headers.get("Retry-After", "")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise self._away(error) from None
        if status < 300:
            found: dict[str, Any] = json.loads(text)
            return found
        raise _refusal(status, f"{method} {path}: {_said(text, status)}", timedelta(seconds=int(patience)) if patience.isdigit() else None)

    async def stream(self, path: str, query: Iterable[tuple[str, str]]) -> AsyncIterator[dict[str, Any]]:
        """The lines of a watch, until the server ends it.

        Raises: as `request`; ServiceUnavailable also when nothing comes for longer than bookmarks take.
        """
        call = await self._api.param_serialize("GET", path, {}, list(query), {"Accept": "application/json"}, auth_settings=["BearerToken"])
        try:
            response = (await self._api.call_api(*call, _request_timeout=_WATCHING)).response
            async with response:
                if response.status >= 300:
                    raise _refusal(response.status, f"GET {path}: {_said(await response.read(), response.status)}", None)
                rest = b""
                async for chunk in response.content.iter_any():  # not by lines: one of them may be longer than the reader's buffer
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        yield json.loads(line)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: something between us that speaks no JSON
            raise self._away(error) from None

    def _away(self, error: Exception) -> ServiceUnavailable:
        return ServiceUnavailable(
            f"The API server at {self._api.configuration.host} does not answer: {str(error) or type(error).__name__}."
        )


async def configuration() -> client.Configuration:
    """How to reach the cluster: as the ServiceAccount of this pod, else by the kubeconfig that kubectl would take.

    Raises: ConfigError.
    """
    found = client.Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(client_configuration=found, persist_config=False)  # type: ignore[no-untyped-call]
    except (config.ConfigException, OSError, yaml.YAMLError) as error:
        raise ConfigError(f"No cluster to talk to: {error}. Set KUBECONFIG, or run in a pod with a ServiceAccount.") from None
    found.retries = 0  # the next tick and the resync try again; a retry in here would only hide how the server is
    return found


def _path(namespace: str | None, name: str | None = None) -> str:
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{GROUP}/{VERSION}{place}/{PLURAL}" + (f"/{name}" if name else "")


def _identity(task: Task) -> dict[str, Any]:
    meta = task.meta
    return {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid, "resourceVersion": meta.resource_version}


def _refusal(status: int, message: str, delay: timedelta | None) -> Exception:
    match status:
        case 401 | 403:
            return AccessDenied(message)
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 429:
            return RateLimited(message, delay=delay)
        case _ if status >= 500:
            return ServiceUnavailable(message, delay=delay)
    return InvalidRequest(message)


def _said(text: bytes, status: int) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode("utf-8", "replace")[:500].strip() or f"status {status}"
