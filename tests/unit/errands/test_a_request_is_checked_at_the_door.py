"""An input is a row that many may read: secrets are refused in it, and what cannot be sent is refused before anything is."""

from typing import Any

import pytest

from suture.engine import Workflows
from suture.errands.http_request import http_request
from suture.errors import InvalidRequest

known = Workflows()
known.add(http_request)
WORKFLOW = known.get("http-request")
URL = "https://api.example/things"


def read(**fields: Any) -> Any:
    return WORKFLOW.read_input({"url": URL} | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "https://me:hunter2@api.example/"},
        {"url": "https://api.example/?token=hunter2hunter2"},
        {"headers": {"Authorization": "Basic bWU6aHVudGVyMg=="}},
        {"headers": {"X-Api-Key": "hunter2"}},
        {"headers": {"X-Gitlab-Token": "hunter2"}},
        {"headers": {"Cookie": "hunter2"}},
        {"headers": {"X-Anything": "Bearer hunter2hunter2"}},
        {"headers": {"X-Anything": "ghp_hunter2hunter2hunter2hunter2"}},
    ],
    ids=str,
)
def test_a_secret_is_refused_unseen(fields: dict[str, Any]):
    with pytest.raises(InvalidRequest, match="mounted secret") as told:
        read(**fields)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"url": "ftp://api.example"}, "url"),
        ({"url": "file:///etc/passwd"}, "url"),
        ({"url": "https:///things"}, "url"),
        ({"url": "https://api.example/a b"}, "url"),
        ({"url": "https://api.example/\r\nX: y"}, "url"),
        ({"url": "https://api.example/#part"}, "fragment"),
        ({"method": "TRACE"}, "method"),
        ({"headers": {"Host": "other.example"}}, "Host"),
        ({"headers": {"Content-Length": "7"}}, "Content-Length"),
        ({"headers": {"a b": "c"}}, "a b"),
        ({"headers": {"X-A": "b\r\nX-C: d"}}, "X-A"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "twice"),
        ({"headers": {"X-A": {"secret": "../../etc/passwd"}}}, "secret"),
        ({"headers": {"idempotency-key": "mine"}}, "idempotencyHeader"),
        ({"idempotencyHeader": "Transfer-Encoding"}, "Transfer-Encoding"),
        ({"json": {"a": 1}, "body": "a=1"}, "keep one"),
        ({"keepHeaders": ["Set-Cookie"]}, "Set-Cookie"),
        ({"maxBytes": 10_000_000}, "maxBytes"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"retry": {"attempts": 0}}, "retry.attempts"),
        ({"follow": True}, "follow"),
    ],
    ids=str,
)
def test_what_cannot_be_sent_is_refused_by_its_name(fields: dict[str, Any], names: str):
    with pytest.raises(InvalidRequest, match=names):
        read(**fields)


def test_what_can_be_sent_is_read():
    asked = read(
        method="POST",
        headers={"Authorization": {"secret": "forge", "prefix": "Bearer "}, "X-Trace": "a1"},
        json=None,
        retry={"attempts": 3, "initialSeconds": 0.5},
    )
    assert asked.has_json
    assert not read().has_json
    assert asked.headers["Authorization"].secret == "forge"
    assert asked.retry.initial_seconds == 0.5
