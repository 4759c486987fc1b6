"""Bodies: bytes from outside to a value that everything behind the door can take. Pure, but for the one function that reads a request.

What Postgres cannot keep, or what would exhaust the stack, is refused here with its place, before anything was written.
"""

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from suture.api.problems import complaint
from suture.engine.payload import admit
from suture.errors import InvalidRequest

DEPTH = 64
"""Levels of nesting that a body may have: far more than anybody writes, far less than a recursion can take."""

M = TypeVar("M", bound=BaseModel)


def json_of(model: type[M]) -> Callable[[Request], Awaitable[M]]:
    """A dependency that reads the body as `model`; an empty body is an empty object.

    It runs after the caller was identified: a stranger learns nothing about the form of a request.
    """

    async def read(request: Request) -> M:
        return fit(model, parse(await request.body()))

    return read


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """What `json_of` reads, for the OpenAPI description of a door."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": model.model_json_schema(by_alias=True)}}}}


def parse(raw: bytes) -> Any:
    """The JSON value in `raw`, which Postgres can keep.

    Raises: InvalidRequest, or PayloadUnfit for a text or number that Postgres cannot keep, with the place of what is wrong.
    """
    value = decode(raw)
    admit(value, what="body", limit=max(len(raw) * 6, 1 << 10))  # of its complaints alone: escapes make a text six times as long
    return value


def decode(raw: bytes) -> Any:
    """The JSON value in `raw`; no bytes are an empty object.

    >>> decode(b'{"a": [1, 2]}')
    {'a': [1, 2]}

    Raises: InvalidRequest.
    """
    try:
        value = json.loads(raw.decode()) if raw.strip() else {}
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8: byte {error.start} is not text.") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.") from None
    except ValueError:
        raise InvalidRequest("The body holds a number with more digits than can be read. Send it as a string.") from None
    except RecursionError:
        raise _too_deep() from None
    if _depth(value) > DEPTH:
        raise _too_deep()
    return value


def fit(model: type[M], value: object) -> M:
    """Raises: InvalidRequest that names each wrong field."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"The body must be a JSON object, not {type(value).__name__}.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise InvalidRequest(complaint(error.errors(include_input=False, include_url=False))) from None


def _depth(value: object) -> int:
    # A loop, not a recursion: depth is what it protects from.
    level, depth = _containers([value]), 0
    while level and depth <= DEPTH:
        level, depth = _containers(child for parent in level for child in _children(parent)), depth + 1
    return depth


def _containers(values: Iterable[object]) -> list[dict[str, Any] | list[Any]]:
    return [value for value in values if isinstance(value, dict | list)]


def _children(parent: dict[str, Any] | list[Any]) -> Iterable[object]:
    return parent.values() if isinstance(parent, dict) else parent


def _too_deep() -> InvalidRequest:
    return InvalidRequest(f"The body is nested deeper than {DEPTH} levels. Flatten it, or send the inner part as a string.")
