"""Each of our errors has one form over HTTP, and what is not ours says nothing."""

import json
from datetime import timedelta

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from suture import errors
from suture.api.problems import headers_of, problem_of, response_of, response_of_crash, response_of_http, response_of_validation
from suture.errors import ConfigError, PayloadTooLarge, PermanentError, RateLimited, SutureError, TemporaryError, Unauthenticated

KINDS = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SutureError)), key=lambda kind: kind.__name__
)


def make(kind: type[SutureError]) -> SutureError:
    return PayloadTooLarge(2, 1) if kind is PayloadTooLarge else kind("the value 7 is wrong, send 8")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_a_problem_with_its_reason_and_status(kind):
    error = make(kind)

    answer = response_of(error)

    body = json.loads(answer.body)
    assert answer.media_type == "application/problem+json"
    assert answer.status_code == body["status"] == kind.http_status >= 400
    assert (body["reason"], body["type"]) == (kind.reason, f"urn:suture:problem:{kind.reason}")
    assert body["title"]
    assert not body["title"].endswith(".")
    assert ("Retry-After" in answer.headers) == issubclass(kind, TemporaryError)
    assert ("WWW-Authenticate" in answer.headers) == (kind is Unauthenticated)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if issubclass(kind, TemporaryError | PermanentError)], ids=lambda kind: kind.__name__
)
def test_the_sentence_reaches_the_caller(kind):
    assert problem_of(make(kind)).detail == make(kind).message


def test_a_wrong_setting_stays_in_the_log():
    assert "postgresql" not in problem_of(ConfigError("SUTURE_DATABASE_URL is postgresql://user:secret@host")).detail


def test_the_pause_that_an_error_asks_for_is_passed_on():
    assert headers_of(RateLimited(delay=timedelta(seconds=1.2))) == {"Retry-After": "2"}


def test_what_the_framework_refuses_has_the_same_form():
    answer = response_of_http(HTTPException(405, headers={"Allow": "GET"}))

    assert json.loads(answer.body)["reason"] == "MethodNotAllowed"
    assert answer.headers["Allow"] == "GET"


def test_a_wrong_parameter_is_named_and_not_repeated():
    error = RequestValidationError([{"loc": ("query", "limit"), "msg": "Input should be a number", "input": "s3cret", "type": "int"}])

    body = json.loads(response_of_validation(error).body)

    assert body["detail"] == "query.limit: Input should be a number."
    assert body["reason"] == "InvalidRequest"


def test_a_crash_says_nothing_of_itself():
    assert json.loads(response_of_crash().body) == {
        "type": "urn:suture:problem:Internal",
        "title": "Something unforeseen happened",
        "status": 500,
        "detail": "The cause is in the log of the gateway.",
        "reason": "Internal",
    }
