"""The outer door: every request passes it first and every answer last. Limits the body before anything reads it, counts, adds the
headers that all answers carry, and masks what nobody foresaw. Knows nothing of paths or callers.
"""

import asyncio
import logging
import time
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suture.api.metrics import Traffic
from suture.api.problems import response_of, response_of_crash
from suture.errors import InvalidRequest, PayloadTooLarge, SutureError

log = logging.getLogger(__name__)

READ_LIMIT = 30.0  # seconds for the whole body: who sends slower holds a connection for nothing

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # `no-referrer` would also blank the Origin of our own forms
    (b"cache-control", b"no-store"),
)


class Door:
    def __init__(self, app: ASGIApp, *, body_limit: int, traffic: Traffic) -> None:
        self._app, self._limit, self._traffic = app, body_limit, traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer, started = _Answer(send), time.monotonic()
        try:
            await self._pass(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            self._traffic.answered(scope["method"], route, answer.status, time.monotonic() - started)

    async def _pass(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        try:
            body = await _read(scope, receive, self._limit)
        except SutureError as error:
            answer.closing = True  # the rest of the body is not read
            await response_of(error)(scope, receive, answer.send)
            return
        try:
            await self._app(scope, _Replay(body, receive).receive, answer.send)
        except Exception:  # the border of the process: what nobody foresaw is logged whole and answered masked
            log.exception("a request crashed", extra={"method": scope["method"], "route": getattr(scope.get("route"), "path", "")})
            if not answer.started:
                await response_of_crash()(scope, receive, answer.send)


class _Answer:
    """The way back to the caller: notes the status, adds headers."""

    def __init__(self, send: Send) -> None:
        self._send, self.status, self.started, self.closing = send, 500, False, False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.started = message["status"], True
            own = {name for name, _ in message.get("headers", ())}
            added = [(name, value) for name, value in _HEADERS if name not in own]
            message["headers"] = [*message.get("headers", ()), *added, *([(b"connection", b"close")] if self.closing else [])]
        await self._send(message)


class _Replay:
    """Gives the body that was read before once more, then what follows it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def receive(self) -> MutableMapping[str, Any]:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Raises: PayloadTooLarge as soon as it is sure, by the announced length or by what came. InvalidRequest for a sender too slow."""
    announced = dict(scope["headers"]).get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > limit:
        raise PayloadTooLarge(int(announced), limit)
    try:
        async with asyncio.timeout(READ_LIMIT):
            return await _collect(receive, limit)
    except TimeoutError:
        raise InvalidRequest(f"The body did not arrive within {READ_LIMIT:g} seconds.") from None


async def _collect(receive: Receive, limit: int) -> bytes:
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > limit:
            raise PayloadTooLarge(size, limit)
        parts.append(part)
    return b"".join(parts)
