"""Problems: what an error looks like over HTTP (RFC 9457). One table for all errors; knows nothing of what the doors do.

A problem names the value that was wrong and the way out. It never holds a traceback; what is not ours is masked.
"""

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil
from typing import Any

from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from suture.errors import InvalidRequest, PermanentError, SutureError, TemporaryError, Unauthenticated

MEDIA_TYPE = "application/problem+json"

RETRY_AFTER = 5  # seconds, when the error itself does not say: an outage of Postgres mostly lasts a restart


class Problem(BaseModel):
    """An error, as RFC 9457 wants it."""

    type: str = Field(examples=["urn:suture:problem:NotFound"])
    title: str
    status: int
    detail: str
    reason: str = Field(examples=["NotFound"])
    """Stable, for programs."""


def problem_of(error: SutureError) -> Problem:
    """What the caller is told.

    >>> problem_of(InvalidRequest("body.type: Field required")).reason
    'InvalidRequest'
    """
    title = (type(error).__doc__ or error.reason).strip().splitlines()[0].rstrip(".")
    # The text of an error that nobody foresaw for a caller (a wrong setting) stays in the log.
    detail = error.message if isinstance(error, PermanentError | TemporaryError) else "The cause is in the log of the gateway."
    return Problem(type=f"urn:suture:problem:{error.reason}", title=title, status=error.http_status, detail=detail, reason=error.reason)


def headers_of(error: SutureError) -> dict[str, str]:
    """What the status asks for beside the body."""
    match error:
        case Unauthenticated():
            return {"WWW-Authenticate": 'Bearer realm="suture"'}
        case TemporaryError():
            return {"Retry-After": str(ceil(error.delay.total_seconds()) if error.delay else RETRY_AFTER)}
    return {}


def response_of(error: SutureError) -> Response:
    return _response(problem_of(error), headers_of(error))


def response_of_http(error: HTTPException) -> Response:
    """Of what the framework itself refuses: no such path, no such method."""
    phrase = HTTPStatus(error.status_code).phrase
    reason = phrase.title().replace(" ", "").replace("-", "")
    detail = {404: "There is nothing at this address.", 405: "This address does not take this method."}.get(error.status_code, phrase)
    problem = Problem(type=f"urn:suture:problem:{reason}", title=phrase, status=error.status_code, detail=detail, reason=reason)
    return _response(problem, error.headers or {})


def response_of_validation(error: RequestValidationError) -> Response:
    """Of a parameter that does not fit its declaration; the value itself is not repeated."""
    return response_of(InvalidRequest(complaint(error.errors())))


def response_of_crash() -> Response:
    """Of an error that is not ours: the caller learns nothing of it, the log all."""
    return _response(
        Problem(
            type="urn:suture:problem:Internal",
            title="Something unforeseen happened",
            status=500,
            detail="The cause is in the log of the gateway.",
            reason="Internal",
        )
    )


def complaint(errors: Any) -> str:
    """Each wrong field with what is wrong about it, one sentence."""
    wrong = (f"{'.'.join(str(part) for part in e['loc']) or 'body'}: {e['msg'].removeprefix('Value error, ')}" for e in errors)
    return "; ".join(wrong) + "."


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a door may answer with, for its OpenAPI description."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}} for status in statuses}


def plainly(media_type: str) -> dict[int | str, dict[str, Any]]:
    """A good answer that is no JSON, for the same description."""
    return {200: {"content": {media_type: {}}}}


def _response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(jsonable_encoder(problem), status_code=problem.status, headers=dict(headers or {}), media_type=MEDIA_TYPE)
