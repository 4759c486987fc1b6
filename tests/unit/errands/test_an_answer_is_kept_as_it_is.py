"""What of an answer is kept, and what an unexpected one means."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from suture.clients.http import Reply
from suture.engine.payload import LIMIT, encode
from suture.errands.http_request import answer, patience, refusal
from suture.errands.requests import BODY_LIMIT, HttpRequest
from suture.errors import RateLimited, ServiceUnavailable, UnexpectedAnswer

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def asked(**fields: Any) -> HttpRequest:
    return HttpRequest.model_validate({"url": "https://api.example/things?page=7"} | fields)


def kept(body: bytes, **fields: Any) -> Any:
    request = asked(**fields)
    limit = request.max_bytes
    return answer(request, Reply(200, {}, body[:limit], cut=len(body) > limit), keep=limit)


@pytest.mark.parametrize(
    ("body", "form", "value"),
    [
        (b'{"id": 7, "list": [1.5, null]}', "json", {"id": 7, "list": [1.5, None]}),
        (b'"word"', "json", "word"),
        (b"good morning", "text", "good morning"),
        (b"", "none", None),
        (b"\xff\xfe\x00", "base64", "//4A"),
        (b'{"a": NaN}', "text", '{"a": NaN}'),
        (b'{"a": 1e999}', "text", '{"a": 1e999}'),
        (b"[" * 5000 + b"]" * 5000, "text", "[" * 5000 + "]" * 5000),
        (b"9" * 5000, "text", "9" * 5000),
    ],
    ids=lambda v: str(v)[:20],
)
def test_a_body_is_kept_as_json_text_or_bytes(body: bytes, form: str, value: Any):
    found = kept(body)
    assert (found.form, found.body, found.truncated) == (form, value, False)


def test_a_body_that_is_cut_is_text_up_to_its_last_whole_character():
    found = kept("zwölf".encode(), maxBytes=3)
    assert (found.form, found.body, found.truncated) == ("text", "zw", True)


@pytest.mark.parametrize(
    "unit", [b"\x01", b"\xff", b"-0.0,", b"1e16,", "\U0001f600".encode(), b'"\\u0000",', b'{"$suture":0},', b"\0"], ids=str
)
def test_the_largest_body_fits_into_a_row(unit: bytes):
    inner = unit * ((BODY_LIMIT - 2) // len(unit))
    for body in (inner, b"[" + inner.rstrip(b",") + b"]"):
        found = kept(body, maxBytes=BODY_LIMIT)
        assert len(encode(found.model_dump(mode="json"))) < LIMIT


def test_chosen_headers_are_kept_without_what_looks_like_a_secret():
    told = {"etag": '"7"', "location": "https://me:hunter2@api.example/", "x-other": "no"}
    found = answer(asked(keepHeaders=["ETag", "Location", "X-None"]), Reply(201, told, b"", cut=False), keep=0)
    assert found.headers["etag"] == '"7"'
    assert "hunter2" not in found.headers["location"]
    assert set(found.headers) == {"etag", "location"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "120"}, 120),
        ({"retry-after": " 0 "}, 0),
        ({"retry-after": "Fri, 01 May 2026 12:05:00 GMT"}, 300),
        # by the server's clock, which may be wrong
        ({"retry-after": "Fri, 01 May 2026 15:00:30 GMT", "date": "Fri, 01 May 2026 15:00:00 GMT"}, 30),
        ({"retry-after": "Fri, 01 May 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 400}, 10**9),
        ({"retry-after": "²"}, None),
    ],
)
def test_a_retry_after_is_understood(headers: dict[str, str], seconds: float | None):
    found = patience(headers, now=NOW)
    assert (found.total_seconds() if found is not None else None) == seconds


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        *((status, UnexpectedAnswer) for status in (200, 302, 400, 404, 409, 499)),
        *((status, ServiceUnavailable) for status in (500, 503, 599)),
        (429, RateLimited),
    ],
)
def test_only_what_a_later_try_may_mend_is_tried_again(status: int, meaning: type[Exception]):
    told = refusal(asked(expected=[201]), Reply(status, {"retry-after": "9"}, b"no", cut=False), now=NOW)
    assert type(told) is meaning
    assert str(status) in str(told)
    assert "page=7" not in str(told)
    if not isinstance(told, UnexpectedAnswer):
        assert told.delay == timedelta(seconds=9)  # type: ignore[attr-defined]


def test_more_patience_than_was_granted_ends_the_request():
    told = refusal(asked(retry={"patienceSeconds": 60}), Reply(503, {"retry-after": "61"}, b"", cut=False), now=NOW)
    assert isinstance(told, UnexpectedAnswer)
    assert "61 s" in str(told)
    assert "patienceSeconds" in str(told)


def test_an_unexpected_answer_is_told_in_a_line_without_secrets():
    told = refusal(asked(), Reply(400, {}, b"no:\n password=hunter2 " + b"x" * 5000, cut=True), now=NOW)
    assert "hunter2" not in str(told)
    assert "\n" not in str(told)
    assert len(str(told)) < 500
