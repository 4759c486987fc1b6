"""`http-request`: one call to somebody's API, made to happen in spite of lost connections, lost workers and servers that are busy.

Every try carries the same idempotency key, which is written before the first one: a server that knows the key does it once. What may be
reached is decided by `clients.http`; what is asked and answered stands in `requests`.
"""

import base64
import codecs
import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID

from suture.clients.http import Call, Outbound, Reply, Secret
from suture.engine import Retry, Run, workflow
from suture.errands.requests import HTTP_REQUEST, HttpAnswer, HttpRequest, Retrying
from suture.errors import RateLimited, ServiceUnavailable, TemporaryError, UnexpectedAnswer
from suture.redaction import redact_text

_SAID = 300  # characters of an unexpected answer that a person is shown
_HEADER = 2048  # characters of a kept header
_DEPTH = 100  # levels of a JSON body; deeper ones are kept as text
_MARGIN = timedelta(seconds=30)  # the step ends after the call has ended itself


@workflow(HTTP_REQUEST, version=1)
async def http_request(run: Run, request: HttpRequest) -> HttpAnswer:
    """One call, and what it answered."""
    # A step of its own: requeued from the failed step, the next execution carries the same key; from the start, another.
    key = await run.step("key", choose_key, run.id)
    within = timedelta(seconds=request.timeout_seconds)
    return await run.step("call", call, run.resources[Outbound], request, key, retry=_policy(request.retry), timeout=within + _MARGIN)


async def choose_key(execution: UUID) -> str:
    return f"{execution}-call"


async def call(outbound: Outbound, request: HttpRequest, key: str) -> HttpAnswer:
    """Send once.

    Raises: ServiceUnavailable and RateLimited for what a later try may mend; UnexpectedAnswer for what it does not.
    """
    keep = request.max_bytes if request.keep_body else 0
    reply = await outbound.send(_call(request, key), within=timedelta(seconds=request.timeout_seconds), keep=max(keep, _SAID))
    if reply.status in request.expected or (not request.expected and 200 <= reply.status < 300):
        return answer(request, reply, keep=keep)
    raise refusal(request, reply, now=datetime.now(UTC))


def answer(request: HttpRequest, reply: Reply, *, keep: int) -> HttpAnswer:
    """What of the reply is kept."""
    headers = {name: redact_text(reply.headers[name])[:_HEADER] for name in request.keep_headers if name in reply.headers}
    if not request.keep_body:
        return HttpAnswer(status=reply.status, headers=headers)
    body, cut = reply.body[:keep], reply.cut or len(reply.body) > keep
    form, value = _read(body, cut=cut)
    return HttpAnswer.model_validate({"status": reply.status, "headers": headers, "form": form, "body": value, "truncated": cut})


def refusal(request: HttpRequest, reply: Reply, *, now: datetime) -> Exception:
    """What an answer that was not expected means: try again, when, or never."""
    said = f"The answer to {request.method} {_origin(request)} is {reply.status}{_where(reply)}{_words(reply)}"
    if reply.status != 429 and reply.status < 500:
        return UnexpectedAnswer(said)
    pause = patience(reply.headers, now=now)
    if pause is not None and pause.total_seconds() > request.retry.patience_seconds:
        longest = f"{request.retry.patience_seconds:g} s (retry.patienceSeconds)"
        return UnexpectedAnswer(f"{said} It asks to come again in {pause.total_seconds():.0f} s, and {longest} is the longest.")
    kind: type[TemporaryError] = RateLimited if reply.status == 429 else ServiceUnavailable
    return kind(said, delay=pause)


def patience(headers: Mapping[str, str], *, now: datetime) -> timedelta | None:
    """The pause that a Retry-After asks for, in seconds or as a date by the server's own clock; None when it asks for none.

    >>> patience({"retry-after": "120"}, now=datetime(2026, 1, 1, tzinfo=UTC))
    datetime.timedelta(seconds=120)
    """
    asked = headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return timedelta(seconds=min(int(asked[:12]), 10**9))
    moment = _date(asked)
    return None if moment is None else max(moment - (_date(headers.get("date", "")) or now), timedelta(0))


def _policy(asked: Retrying) -> Retry:
    return Retry(
        attempts=asked.attempts,
        initial=timedelta(seconds=asked.initial_seconds),
        factor=asked.factor,
        maximum=timedelta(seconds=asked.maximum_seconds),
    )


def _call(request: HttpRequest, key: str) -> Call:
    headers: dict[str, str | Secret] = {
        name: value if isinstance(value, str) else Secret(value.secret, value.prefix) for name, value in request.headers.items()
    }
    if request.idempotency_header:
        headers[request.idempotency_header] = key
    body = request.body.encode() if request.body is not None else None
    if request.has_json:
        body = json.dumps(request.json_, separators=(",", ":"), ensure_ascii=False).encode()
        if "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = "application/json"
    return Call(request.method, request.url, headers, body)


def _read(body: bytes, *, cut: bool) -> tuple[str, Any]:
    """The form of a body and its value: a JSON value where it is a whole one, else text, else base64."""
    if not body:
        return "none", None
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(body, final=not cut)  # the cut may go through a character
    except UnicodeDecodeError:
        return "base64", base64.b64encode(body).decode()
    if not cut:
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return "text", text
        if _is_kept_exactly(value, _DEPTH):
            return "json", value
    return "text", text


def _is_kept_exactly(value: object, depth: int) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict | list):
        return depth > 0 and all(_is_kept_exactly(v, depth - 1) for v in (value.values() if isinstance(value, dict) else value))
    return True


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _origin(request: HttpRequest) -> str:
    """The address without its query, which may be long."""
    return request.url.partition("?")[0]


def _where(reply: Reply) -> str:
    """Where a redirect points, which is not followed: the address there would be nobody's choice."""
    place = reply.headers.get("location", "")
    return (
        f" to {redact_text(place.partition('?')[0])[:200]}, and redirects are not followed" if 300 <= reply.status < 400 and place else ""
    )


def _words(reply: Reply) -> str:
    text = " ".join(redact_text(reply.body[:_SAID].decode("utf-8", "replace")).split())
    return f": {text}" if text else "."
