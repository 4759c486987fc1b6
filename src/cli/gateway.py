"""The command line's way to the gateway: one request an answer, and its problem as one of our errors. See `door` for when it is taken."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx

from suture.errors import (
    AccessDenied,
    Conflict,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    PayloadUnfit,
    ServiceUnavailable,
    SutureError,
    UnknownWorkflow,
)
from suture.settings import Settings

_ERRORS: dict[int, type[SutureError]] = {
    401: AccessDenied,
    403: AccessDenied,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    422: InvalidRequest,
}
_REASONS = {kind.reason: kind for kind in (IllegalTransition, UnknownWorkflow, PayloadUnfit)}
"""Where the problem says more than its status."""


class Gateway:
    """The gateway as a door; the token of SUTURE_CLIENT_TOKEN says who asks."""

    def tasks(self, *, status: str, type: str, queue: str, workload: str, limit: int) -> Any:  # noqa: A002
        query = {"status": status, "type": type, "queue": queue, "workload": workload, "limit": limit}
        return _items(call("GET", "/tasks", query=query))

    def task(self, task: UUID) -> Any:
        return call("GET", f"/tasks/{task}")

    def timeline(self, task: UUID) -> Any:
        return _items(call("GET", f"/tasks/{task}/timeline"))

    def steps(self, task: UUID) -> Any:
        return _items(call("GET", f"/tasks/{task}/steps"))

    def cancel(self, task: UUID, *, reason: str) -> Any:
        return call("POST", f"/tasks/{task}/cancel", body={"reason": reason} if reason else {})

    def requeue(self, task: UUID, *, from_step: str) -> Any:
        return call("POST", f"/tasks/{task}/retry", body={"fromStep": from_step})

    def fork(self, task: UUID, *, from_step: str) -> Any:
        return call("POST", f"/tasks/{task}/fork", body={"fromStep": from_step})

    def dead_letters(self, *, state: str, type: str, queue: str, limit: int) -> Any:  # noqa: A002
        return _items(call("GET", "/dead-letters", query={"state": state, "type": type, "queue": queue, "limit": limit}))

    def discard(self, task: UUID, *, reason: str) -> Any:
        return call("POST", f"/dead-letters/{task}/discard", body={"reason": reason})

    def workers(self) -> Any:
        return call("GET", "/workers")

    def queues(self) -> Any:
        return call("GET", "/queues")

    def pause_queue(self, name: str, *, reason: str) -> Any:
        return call("POST", f"/queues/{quote(name, safe='')}/pause", body={"reason": reason})

    def resume_queue(self, name: str, *, reason: str) -> Any:
        return call("POST", f"/queues/{quote(name, safe='')}/resume", body={"reason": reason})

    def limit_queue(self, name: str, changes: Mapping[str, Any], *, reason: str) -> Any:
        return call("POST", f"/queues/{quote(name, safe='')}/limits", body={**changes, "reason": reason})

    def pauses(self) -> Any:
        return call("GET", "/pauses")

    def pause_steps(self, step: str, *, workflow: str, reason: str) -> Any:
        return call("POST", "/pauses", body={"step": step, "workflow": workflow, "reason": reason})

    def resume_steps(self, step: str, *, workflow: str) -> Any:
        return call("POST", "/pauses/end", body={"step": step, "workflow": workflow})

    def schedules(self) -> Any:
        return call("GET", "/schedules")

    def pause_schedule(self, name: str) -> Any:
        return call("POST", f"/schedules/{quote(name, safe='')}/pause", body={})

    def resume_schedule(self, name: str) -> Any:
        return call("POST", f"/schedules/{quote(name, safe='')}/resume", body={})

    def run_schedule(self, name: str) -> Any:
        return call("POST", f"/schedules/{quote(name, safe='')}/run", body={})

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
        yield lambda: asyncio.to_thread(call, "GET", "/glance")


def _items(found: Any) -> Any:
    return found["items"] if isinstance(found, dict) else found


def call(method: str, path: str, *, query: dict[str, Any] | None = None, body: object = None) -> Any:
    """The gateway's answer as JSON.

    Raises: SutureError of the kind that the gateway's problem has; ServiceUnavailable when it does not answer.
    """
    client = Settings.read(os.environ).client
    headers = {"Authorization": f"Bearer {client.token.get_secret_value()}"} if client.token else {}
    wanted = {name: value for name, value in (query or {}).items() if value not in (None, "")}
    try:
        answer = httpx.request(method, client.url.rstrip("/") + path, params=wanted, json=body, headers=headers, timeout=15)
        return _read(answer)
    except httpx.InvalidURL as error:
        raise InvalidRequest(f"SUTURE_CLIENT_URL {client.url!r} is no address: {error}.") from None
    except httpx.TransportError as error:
        raise ServiceUnavailable(
            f"The gateway at {client.url} does not answer ({type(error).__name__}). Set SUTURE_CLIENT_URL to where it is."
        ) from None


def _read(answer: httpx.Response) -> Any:
    try:
        found = answer.json()
    except ValueError:
        raise ServiceUnavailable(f"{answer.url.copy_with(query=None)} answered {answer.status_code}, and not as a gateway does.") from None
    if answer.is_success:
        return found
    detail = str(found.get("detail") or found.get("title") or "no details") if isinstance(found, dict) else "no details"
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        detail += " Set SUTURE_CLIENT_TOKEN_FILE to a file with your token."
    reason = str(found.get("reason")) if isinstance(found, dict) else ""
    raise _REASONS.get(reason, _ERRORS.get(answer.status_code, ServiceUnavailable))(detail)
