"""Payloads: values to the text of a JSONB column and back, exactly. Pure.

JSONB cannot hold a NUL character, a lone surrogate, NaN or an infinity, and it forgets that 1e22 was a float and -0.0 negative. At the
door such an input is refused with its place. A result of work that is already done is never refused: what JSONB cannot hold travels as a
tagged object {"$suture": kind, "text": …}.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from suture.errors import InvalidRequest, PayloadTooLarge, PayloadUnfit

LIMIT = 1 << 20
"""Bytes of JSON that one payload may have. A result larger than this belongs into a table or a bucket of its own."""

DEPTH = 200
"""Levels that a payload from outside may be nested. Deep enough for any document, and far from where Python and Postgres give up."""

NAME_LIMIT = 512
"""Characters of a name or a key: an index entry must fit into a third of a page."""

_TAG = "$suture"
_QUOTED = f'"{_TAG}"'
# In the text of json.dumps: an escaped NUL or surrogate, an exponent, a negative zero, or our own tag. Only then the slow way is needed.
_SPECIAL = re.compile(r'\\u0000|\\ud[89a-f]|\d[eE]\+?\d|-0\.0|"\$suture"')
_EXACT = 1 << 53
_SHORT = 4_000  # characters: no number in it has more digits than Python writes and reads
_DECIMAL_BITS = 14_000  # an int of up to 4,300 decimal digits; Python refuses to write or read longer ones
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")


_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def encode(value: object, *, limit: int = LIMIT) -> str:
    """The JSON text of `value`; `decode` gives an equal value back, whatever it holds.

    Raises: PayloadTooLarge. PayloadUnfit for what is no JSON value at all.
    """
    if value is None:  # what most steps return, and the encoder takes longer for it than all the rest
        return "null"
    if type(value) is int and -_EXACT < value < _EXACT:
        return str(value)
    try:
        text = _dumps(value)
        if text is None or _SPECIAL.search(text):
            text = json.dumps(_tagged(value), ensure_ascii=True, separators=(",", ":"))
    except RecursionError:
        raise PayloadUnfit(f"The payload is nested too deeply: up to {DEPTH} levels are safe. Flatten it.") from None
    return _bounded(text, limit)


def decode(text: str) -> Any:
    """The value that `encode` was given.

    Raises: RecursionError for what no `encode` has written.
    """
    decoder = _TAG_DECODER if _QUOTED in text else _DECODER
    value, _ = decoder.raw_decode(text)  # which looks for no space around it: neither `encode` nor Postgres writes any
    return value


def admit(value: object, *, what: str = "input", limit: int = LIMIT) -> str:
    """The JSON text of a value that comes from outside.

    Raises: PayloadUnfit with the place of a NUL, a lone surrogate, or a number that is none. PayloadTooLarge.
    """
    text = _plainly_fit(value)
    if text is not None:
        return _bounded(text, limit)
    complaint = _complaint(value, what)
    if complaint:
        raise PayloadUnfit(complaint)
    return encode(value, limit=limit)


@lru_cache(maxsize=4096)
def admit_name(name: str, what: str) -> str:
    """A name or key that goes into columns, indexes and log lines.

    Raises: InvalidRequest.
    """
    found = _CONTROL.search(name)
    if found or not 0 < len(name) <= NAME_LIMIT:
        wrong = f"has a control character at {found.start()}" if found else f"has {len(name)} characters"
        raise InvalidRequest(f"The {what} {name[:40]!r} {wrong}: use 1 to {NAME_LIMIT} characters of text.")
    return name


def admit_keys(keys: Sequence[str | None], count: int) -> list[str | None]:
    """The concurrency keys of `count` inputs, one for each. Raises: InvalidRequest."""
    if len(keys) != count:
        raise InvalidRequest(f"There are {len(keys)} concurrency keys for {count} inputs: give one for each, None where there is none.")
    return [None if key is None else admit_name(key, f"concurrency key {number}") for number, key in enumerate(keys)]


def digest(text: str) -> bytes:
    """SHA-256 of a payload, the same for the same content in whatever order its keys came."""
    return hashlib.sha256(json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")).encode()).digest()


def _plainly_fit(value: object) -> str | None:
    """The JSON text where the text alone shows that nothing can be wrong, as it nearly always does; None: look closer."""
    try:
        text = _dumps(value)
    except RecursionError:
        return None
    if text is None or len(text) > _SHORT or text.count("{") + text.count("[") > DEPTH or _SPECIAL.search(text):
        return None
    return text


def _dumps(value: object) -> str | None:
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return None  # NaN, infinity, or a number too long for Python to write in decimal
    except TypeError as error:
        raise PayloadUnfit(f"The payload is not JSON: {error}. Return a pydantic model or plain JSON values.") from None


def _bounded(text: str, limit: int) -> str:
    if len(text) > limit:
        raise PayloadTooLarge(len(text), limit)
    return text


def _tagged(value: Any) -> Any:
    match value:
        case str() if "\0" in value or _SURROGATE.search(value):
            return {_TAG: "text", "text": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()}
        case float() | int():
            return _tagged_number(value)
        case dict() if _TAG in value or any("\0" in k or _SURROGATE.search(k) for k in map(str, value)):
            return {_TAG: "object", "text": [[_tagged(k), _tagged(v)] for k, v in sorted((_key(k), v) for k, v in value.items())]}
        case dict():
            return {k: _tagged(v) for k, v in value.items()}
        case list() | tuple():
            return [_tagged(v) for v in value]
    return value


def _tagged_number(value: Any) -> Any:
    if isinstance(value, float):
        odd = not math.isfinite(value) or (value.is_integer() and abs(value) >= 1e15) or str(value) == "-0.0"
        return {_TAG: "float", "text": repr(value)} if odd else value
    return {_TAG: "int", "text": hex(value)} if value.bit_length() > _DECIMAL_BITS else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(json.loads(json.dumps({key: 0}).split(":")[0].lstrip("{")))


def _untagged(found: dict[str, Any]) -> Any:
    try:
        match found.get(_TAG):
            case "text":
                return base64.b64decode(found["text"]).decode("utf-8", "surrogatepass")
            case "float":
                return float(found["text"])
            case "int":
                return int(found["text"], 16)
            case "object":
                return dict(found["text"])
    except (KeyError, TypeError, ValueError):
        return found  # written by hand: no value of ours has this form
    return found


_DECODER, _TAG_DECODER = json.JSONDecoder(), json.JSONDecoder(object_hook=_untagged)


def _complaint(value: Any, place: str, depth: int = 0) -> str | None:
    if depth > DEPTH:
        return f"{place[:80]}… is nested deeper than {DEPTH} levels. Flatten it, or send it as text."
    match value:
        case str():
            return _text_complaint(value, place)
        case float() | int():
            return _number_complaint(value, place)
        case dict():
            parts = [(f"{place}.{k}", v) for k, v in value.items()]
            keys = next(filter(None, (_text_complaint(str(k), f"a key of {place}") for k in value)), None)
            return keys or next(filter(None, (_complaint(v, p, depth + 1) for p, v in parts)), None)
        case list() | tuple():
            return next(filter(None, (_complaint(v, f"{place}[{i}]", depth + 1) for i, v in enumerate(value))), None)
    return None


def _number_complaint(value: float, place: str) -> str | None:
    if isinstance(value, int):
        return f"{place} is a number of more than 4,200 digits. Send it as text." if value.bit_length() > _DECIMAL_BITS else None
    return None if math.isfinite(value) else f"{place} is {value!r}, and JSON has no such number. Leave it out or send a string."


def _text_complaint(text: str, place: str) -> str | None:
    if (at := text.find("\0")) >= 0:
        return f"{place} has a NUL character at {at}, which Postgres cannot keep. Remove it, or send the text as base64."
    if found := _SURROGATE.search(text):
        return f"{place} has half of a surrogate pair at {found.start()}, which is no text. Remove it, or send the text as base64."
    return None
