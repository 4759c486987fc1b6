"""Results: what a step or a workflow returns, to JSON and back into its declared type. Pure.

Checked before it is kept: a result that could not be read back would fail every later run. Text that is no Unicode and numbers that
are none are kept as they are (see `payload`): logs hold such bytes, and work that is done must not fail for them.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from suture.errors import InvalidRequest, PayloadUnfit, ReplayMismatch

_NONE: dict[str, Any] = {}


def returned(function: Callable[..., Any]) -> TypeAdapter[Any]:
    """The type that `function` says it returns; anything when it does not say.

    Raises: PayloadUnfit for a type that is none of JSON's and no model.
    """
    target = getattr(function, "func", function)  # functools.partial
    hint = getattr(target, "__annotations__", _NONE).get("return", Any)
    if isinstance(hint, str):  # written as text: resolving it costs more than all the rest of a step
        try:
            hint = get_type_hints(target, include_extras=True).get("return", Any)
        except (NameError, TypeError):  # it names what can't be found from here
            return _adapter(Any)
    return adapter(hint)


def adapter(hint: Any) -> TypeAdapter[Any]:
    """Raises: PayloadUnfit for a type that is none of JSON's and no model."""
    try:
        return _adapter(hint)
    except TypeError:  # not hashable: Annotated with a list, for one
        return TypeAdapter(hint)
    except PydanticUserError:
        raise PayloadUnfit(
            f"A {getattr(hint, '__name__', hint)} cannot be kept as JSON: return plain JSON values or a pydantic model."
        ) from None


@lru_cache(maxsize=1024)
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def plain(declared: TypeAdapter[Any], value: Any, *, what: str) -> Any:
    """The JSON value of a result of `what`.

    Raises: PayloadUnfit when it is none, or does not fit the declared type.
    """
    return checked(declared, value, what=what)[0]


def checked(declared: TypeAdapter[Any], value: Any, *, what: str) -> tuple[Any, Any]:
    """As `plain`, and with it the result as every later run will read it from there."""
    try:
        kept = value if _is_plain(value) else declared.dump_python(value, mode="json", warnings="error")
        return kept, _read(declared, kept)
    except (ValueError, TypeError, RecursionError):
        # The driver of the message is a person who reads it in a row: the value itself may be a secret and stays out.
        raise PayloadUnfit(
            f"The result of {what}, a {type(value).__name__}, cannot be kept as JSON of its declared type: "
            "return plain JSON values or a pydantic model, and annotate the function with what it returns."
        ) from None


def restored(declared: TypeAdapter[Any], kept: Any, *, what: str) -> Any:
    """A kept result of `what` in its declared type. Raises: ReplayMismatch when the type has changed and it does not fit."""
    try:
        return _read(declared, kept)
    except ValidationError as error:
        raise ReplayMismatch(f"The recorded result of {what} does not fit the code's type any more: {_wrong(error)}.") from None


def received(declared: TypeAdapter[Any], payload: Any, *, event: str) -> Any:
    """An event's payload in the type that is waited for. Raises: InvalidRequest that names each wrong field."""
    try:
        return _read(declared, payload)
    except ValidationError as error:
        raise InvalidRequest(f"The payload of the event {event} does not fit: {_wrong(error)}.") from None


def _read(declared: TypeAdapter[Any], kept: Any) -> Any:
    try:
        return declared.validator.validate_python(kept)
    except ValidationError as error:
        if all(e["type"] == "string_unicode" for e in error.errors(include_input=False, include_url=False)):
            return kept  # half of a surrogate pair: Python calls it a str, pydantic does not
        raise


def _wrong(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'it'}: {e['msg']}" for e in found)


def _is_plain(value: Any) -> bool:
    """Whether it is JSON as it stands; pydantic would turn a NaN of no declared type into null, and half a surrogate pair into `?`."""
    kind = type(value)
    if kind is dict:
        return all(type(k) is str and _is_plain(v) for k, v in value.items())
    if kind is list:
        return all(map(_is_plain, value))
    return value is None or kind in (str, int, float, bool)
