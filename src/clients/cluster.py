"""The cluster: what the API server knows of a failing workload, and what it would say of a change.

Besides `operator` the only importer of `kubernetes`. Reads plain JSON as the API prints it and hands out plain data; judges nothing (see
`remediation`). A value of a ConfigMap or a Secret is dropped before it leaves this file; other secrets are masked by who freezes evidence.
What may not or cannot be read becomes a note; only an API server that does not answer is a failure. What is read is in `cluster_reading`.
"""

import asyncio
import json
import os
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import aiohttp
import yaml
from kubernetes.aio import client, config

from suture.clients.cluster_reading import (
    CLUSTER,
    EVENTS,
    NAMESPACED,
    Collected,
    Life,
    Log,
    Object,
    Reading,
    Source,
    family,
    is_unheard,
    lives,
    needs_room,
    trimmed,
)
from suture.errors import AccessDenied, ConfigError, RateLimited, ServiceUnavailable, SutureError

MANAGER = "suture"
"""Field manager of what is tried by dry-run."""

PAGE = 500
"""Objects a page: the size that kubectl uses."""

LOG_TAIL = 256 << 10
"""Bytes of a log that are kept, from its end; evidence keeps as much."""

LOG_LINES = 5_000
"""Lines that the kubelet is asked for: bounds what travels when lines are short."""

LOG_READ = 16 << 20
"""Bytes that are read of one log at most, however long its lines are."""

PAUSE = timedelta(seconds=3)
"""Before a container that restarts again and again is asked once more for its log; programs take so long to say why they end."""

_TIMEOUT = aiohttp.ClientTimeout(total=30, sock_connect=5)
_AT_ONCE = 8
"""Requests under way at the same time: kind to an API server that may be in trouble itself."""


_UNFIT = "failed to create typed patch object"
"""Begins the API server's answer to an apply with a field that its schema does not have; its status is 500 all the same."""


class Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: float | None
    cut: bool = False
    """Whether the body is only the end of what there was."""


class Cluster:
    """One cluster. Use it as an async context manager, or `close` it."""

    def __init__(self, api: client.ApiClient, *, pause: timedelta = PAUSE) -> None:
        self._api = api
        self._pause = pause.total_seconds()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, context: str | None = None, *, pause: timedelta = PAUSE) -> Self:
        """The cluster of `kubeconfig`; with none named, the one that this pod runs in; else the one that kubectl would take.

        Nothing is sent yet. Raises: ConfigError.
        """
        settings = client.Configuration()
        try:
            if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
            else:
                path = str(kubeconfig) if kubeconfig else None
                load = config.load_kube_config(config_file=path, context=context, client_configuration=settings, persist_config=False)  # type: ignore[no-untyped-call]
                await load
        except (config.ConfigException, OSError, yaml.YAMLError) as error:
            raise ConfigError(f"No cluster to talk to: {error}. Set KUBECONFIG, or run in a pod with a ServiceAccount.") from None
        settings.retries = 0  # the engine retries steps; a retry in here would only hide how the server is
        return cls(client.ApiClient(configuration=settings), pause=pause)

    async def close(self) -> None:
        await self._api.close()  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def collect(self, namespace: str, kind: str, name: str) -> Collected:
        """All that bears on a workload: itself, its owners and pods, their logs, and what surrounds them.

        Shape: objects as the API printed them, each with kind and apiVersion; what could not be read is a note.
        Raises: ServiceUnavailable, RateLimited, AccessDenied (of the whole cluster: the token is void).
        """
        reading = Reading()
        sources = [*(source._replace(namespace=namespace) for source in NAMESPACED), *CLUSTER]
        await _all(self._list(source, reading) for source in sources)
        await self._list(EVENTS._replace(namespace=namespace), reading)
        await self._read(Source("Namespace", "v1", "namespaces"), namespace, reading)
        members = family(reading.objects, (kind, namespace, name))
        if not members:
            reading.note(f"{kind}/{namespace}/{name}", "is not in the cluster, or is of a kind that is not read")
        if any(map(needs_room, members)):
            await self._list(Source("Pod", "v1", "pods", slim=True), reading)
        await self._logs(members, reading)
        return reading.collected(members)

    async def dry_run(self, manifest: Mapping[str, Any]) -> list[str]:
        """What the API server, its admission and its webhooks have against the manifest; nothing is changed. Empty: it would be accepted.

        Server-side apply of the fields that the manifest names, as `MANAGER`, over those of other managers.
        Raises: AccessDenied, ServiceUnavailable, RateLimited.
        """
        path = await self._path(manifest)
        if path is None:
            return [f"the cluster serves no {manifest.get('kind')} in {manifest.get('apiVersion')}"]
        query = [("dryRun", "All"), ("fieldManager", MANAGER), ("force", "true"), ("fieldValidation", "Strict")]
        answer = await self.request("PATCH", path, query, body=dict(manifest), content="application/apply-patch+yaml")
        if answer.status < 300:
            return []
        if answer.status == 403 and "is forbidden: User " in said(answer):  # RBAC; an admission's refusal reads otherwise
            raise AccessDenied(said(answer))
        return _complaints(answer)

    async def _list(self, source: Source, reading: Reading) -> None:
        """Read every page of a list into `reading`."""
        query: list[tuple[str, str]] = [("limit", str(PAGE))]
        while True:
            answer = await self.request("GET", source.path, query)
            if answer.status != 200:
                return reading.note(source.title, said(answer))
            page = json.loads(answer.body)
            kept = [trimmed({"kind": source.kind, "apiVersion": source.version} | item, slim=source.slim) for item in page["items"]]
            if not reading.add(source, kept):
                return None
            following = page["metadata"].get("continue")
            if not following:
                return None
            query = [("limit", str(PAGE)), ("continue", following)]

    async def _read(self, source: Source, name: str, reading: Reading) -> None:
        answer = await self.request("GET", f"{source.path}/{quote(name, safe='')}")
        if answer.status == 200:
            reading.add(source, [trimmed(json.loads(answer.body))])
        else:
            reading.note(f"{source.kind}//{name}", said(answer))

    async def _logs(self, members: Sequence[Object], reading: Reading) -> None:
        await _all(self._log(life, reading) for life in lives(members))
        if unheard := [life for life in lives(members) if is_unheard(life, members, reading.logs)]:
            # It has just been started again: the new life has said nothing yet, and the kubelet has cleared the last one away.
            await asyncio.sleep(self._pause)
            await _all(self._log(life, reading) for life in unheard)

    async def _log(self, life: Life, reading: Reading) -> None:
        namespace, pod, container, previous = life
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        query = [("container", container), ("previous", str(previous).lower()), ("tailLines", str(LOG_LINES))]
        answer = await self.request("GET", path, query, tail=LOG_TAIL)
        if answer.status == 200:
            reading.logs[life] = Log(*life, answer.body)
        else:
            reading.note(f"log/{namespace}/{pod}/{container}/{'previous' if previous else 'current'}", said(answer))

    async def _path(self, manifest: Mapping[str, Any]) -> str | None:
        """The address of the manifest's object; None when the cluster does not serve its kind."""
        version, kind = str(manifest.get("apiVersion", "")), manifest.get("kind")
        metadata: Mapping[str, Any] = manifest.get("metadata") or {}
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answer = await self.request("GET", root)
        served = json.loads(answer.body)["resources"] if answer.status == 200 else []
        resource = next((r for r in served if r["kind"] == kind and "/" not in r["name"]), None)
        if resource is None:
            return None
        place = f"/namespaces/{quote(str(metadata.get('namespace', 'default')), safe='')}" if resource["namespaced"] else ""
        return f"{root}{place}/{resource['name']}/{quote(str(metadata.get('name', '')), safe='')}"

    async def request(
        self,
        method: str,
        path: str,
        query: Iterable[tuple[str, str]] = (),
        *,
        body: object = None,
        content: str = "application/json",
        tail: int | None = None,
    ) -> Answer:
        """One request; any answer but those that speak of the server itself is returned. `tail`: only so many last bytes are kept.

        Raises: AccessDenied (the token is void), ServiceUnavailable, RateLimited.
        """
        headers = {"Accept": "application/json", "Content-Type": content} if tail is None else {}
        call = await self._api.param_serialize(method, path, {}, list(query), headers, body, auth_settings=["BearerToken"])
        async with self._slots:
            try:
                response = (await self._api.call_api(*call, _request_timeout=_TIMEOUT)).response
                async with response:
                    content_read, cut = await _tail(response, tail) if tail else (await response.read(), False)
                    answer = Answer(response.status, content_read, _seconds(response.headers.get("Retry-After")), cut)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise ServiceUnavailable(f"The API server at {self._api.configuration.host} does not answer: {_cause(error)}.") from None
        _refuse(answer, expect_kubelet=tail is not None)
        return answer


def _refuse(answer: Answer, *, expect_kubelet: bool) -> None:
    """Raise what concerns the whole server. A 5xx in place of a log is the kubelet's trouble: evidence, not failure."""
    delay = timedelta(seconds=answer.retry_after) if answer.retry_after is not None else None
    if answer.status == 401:
        raise AccessDenied("The API server does not know the token or certificate that it was shown; renew the credentials.")
    if answer.status == 429:
        raise RateLimited("The API server asks for patience.", delay=delay)
    if answer.status >= 500 and not expect_kubelet and not said(answer).startswith(_UNFIT):
        raise ServiceUnavailable(f"The API server answers {answer.status}: {said(answer)}", delay=delay)


async def _tail(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """The last `limit` bytes, holding hardly more than that, and whether there were more; cut at the start of a line where there is one."""
    kept: deque[bytes] = deque()
    size = total = 0
    async for chunk in response.content.iter_chunked(64 << 10):
        kept.append(chunk)
        size, total = size + len(chunk), total + len(chunk)
        while size - len(kept[0]) >= limit:
            size -= len(kept.popleft())
        if total >= LOG_READ:
            break
    content = b"".join(kept)
    if total <= limit:
        return content, False
    end = content[-limit:]
    return end[end.find(b"\n") + 1 :], True


async def _all(tasks: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(task)
    except ExceptionGroup as failed:  # not `except*`: before Python 3.11.4 what is raised there comes out as a group again
        ours, others = failed.split(SutureError)
        if ours is None or others:
            raise
        raise ours.exceptions[0] from None


def _complaints(answer: Answer) -> list[str]:
    """One sentence a complaint: the causes that the server lists, or what it says as a whole."""
    causes = _status(answer).get("details", {}).get("causes") or []
    named = [f"{cause['field']}: {cause['message']}" for cause in causes if cause.get("field") and cause.get("message")]
    return named or [said(answer)]


def said(answer: Answer) -> str:
    """What the server said, in its own words."""
    return str(_status(answer).get("message") or answer.body.decode("utf-8", "replace")[:1000].strip() or f"status {answer.status}")


def _status(answer: Answer) -> dict[str, Any]:
    """The Status object of an answer; empty when a proxy or a kubelet answered in its own words."""
    try:
        document = json.loads(answer.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isascii() and header.isdigit() else None


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__
