r"""Paths into Kubernetes objects: `spec.template.spec.containers[name=app].image`. One grammar for evidence and for files.

A dot separates fields; `\.` is a dot inside a key, which may also be quoted: `annotations["a.b/c"]`; `[name=app]` or `[name="a]b"]` picks
the list item whose field has this value, `[3]` the fourth, `[+]` at the end stands for a new item. Reads and prints paths, and looks them
up in JSON; where a path leads in a file of YAML is the duty of `manifest.walk`. Neighbours: `citations` looks quoted values up,
`evidence` builds paths. The readers at the end never trust the shape of a document: what has the wrong type is as good as absent.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Object = Mapping[str, Any]
"""A Kubernetes object as JSON gave it: untrusted, so read it with `text`, `mapping`, `maps` and `whole`."""

LONGEST = 4_096


@dataclass(frozen=True)
class Field:
    """A key of a mapping."""

    name: str


@dataclass(frozen=True)
class Pick:
    """The first list item whose `field` prints as `value`."""

    field: str
    value: str


@dataclass(frozen=True)
class Index:
    """A list item by its place."""

    place: int


@dataclass(frozen=True)
class New:
    """A list item that does not exist yet."""


Step = Field | Pick | Index | New
Path = tuple[Step, ...]


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""What `lookup` answers where nothing stands; null is a value, absence is none."""

_FIELD = re.compile(r"(?:[^.\[\]\\]|\\.)+")
_BRACKET = re.compile(
    r"""\[(?: (?P<new>\+) | (?P<place>[0-9]{1,9}) | "(?P<key>(?:[^"\\]|\\.)+)"
      | (?P<field>[A-Za-z0-9_./-]+) = (?: "(?P<exact>(?:[^"\\]|\\.)*)" | (?P<value>(?!")[^\]]*) ) )\]""",
    re.VERBOSE | re.DOTALL,
)


def parse(path: str) -> Path:
    r"""The steps of `path`, outermost first.

    >>> parse('data["a.b"]') == parse(r"data.a\.b") == (Field("data"), Field("a.b"))
    True

    Raises: ValueError, naming the place that is no path.
    """
    if len(path) > LONGEST:
        raise ValueError(f"The path has {len(path):,} characters and the limit is {LONGEST:,}.")
    steps: list[Step] = []
    at = 0
    while at < len(path):
        if steps and isinstance(steps[-1], New):
            raise ValueError(f"In the path {path!r}, something follows [+]: a new item is added whole.")
        if path[at] == "[":
            step, at = _bracket(path, at)
        else:
            step, at = _field(path, at, first=not steps)
        steps.append(step)
    if not steps:
        raise ValueError("The path is empty. A path names a field, like spec.replicas.")
    return tuple(steps)


def _bracket(path: str, at: int) -> tuple[Step, int]:
    found = _BRACKET.match(path, at)
    if found is None:
        raise ValueError(f'In the path {path!r}, what begins at character {at} is none of [name=x], [3], ["key"] and [+].')
    if found["new"]:
        return New(), found.end()
    if found["place"]:
        return Index(int(found["place"])), found.end()
    if found["key"]:
        return Field(_unescaped(found["key"])), found.end()
    value = found["value"] if found["exact"] is None else _unescaped(found["exact"])
    return Pick(found["field"], value), found.end()


def _field(path: str, at: int, *, first: bool) -> tuple[Step, int]:
    if not first and path[at] != ".":
        raise ValueError(f"In the path {path!r}, a dot or a bracket is missing at character {at}.")
    found = _FIELD.match(path, at if first else at + 1)
    if found is None:
        raise ValueError(f"In the path {path!r}, a field name is missing at character {at}.")
    return Field(_unescaped(found[0])), found.end()


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def join(*parts: str | Step) -> str:
    """One path of sub-paths and steps; empty parts are left out."""
    path = ""
    for part in parts:
        piece = part if isinstance(part, str) else _printed(part)
        path += piece if not path or not piece or piece.startswith("[") else f".{piece}"
    return path


def _printed(step: Step) -> str:
    match step:
        case Field(name):
            return re.sub(r"([.\[\]\\])", r"\\\1", name)
        case Pick(field, value):
            return f"[{field}={_value(value)}]"
        case Index(place):
            return f"[{place}]"
        case New():
            return "[+]"


def _value(value: str) -> str:
    """Quoted only where it would not be read back as it is."""
    if "]" not in value and not value.startswith('"'):
        return value
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


def fields(path: Path) -> list[str]:
    """The keys on the way, without the list items between them."""
    return [step.name for step in path if isinstance(step, Field)]


def lookup(document: object, path: str) -> Any:
    """What stands at `path`, or ABSENT.

    Raises: ValueError, where `path` is no path.
    """
    found: Any = document
    for step in parse(path):
        found = _take(found, step)
        if found is ABSENT:
            break
    return found


def _take(document: Any, step: Step) -> Any:
    match step:
        case Field(name) if isinstance(document, Mapping):
            return document.get(name, ABSENT)
        case Pick(field, value) if isinstance(document, list):
            chosen = (item for item in document if isinstance(item, Mapping) and plain(item.get(field)) == value)
            return next(chosen, ABSENT)
        case Index(place) if isinstance(document, list) and place < len(document):
            return document[place]
        case _:
            return ABSENT


def plain(value: object) -> str | None:
    """A scalar as YAML prints it; None for what is no scalar."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def mapping(document: object, *keys: str) -> Object:
    """The mapping below `keys`; empty where there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) else {}


def maps(document: object, *keys: str) -> list[Object]:
    """The mappings in the list below `keys`; other items are left out."""
    *outer, last = keys
    found = mapping(document, *outer).get(last)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def text(document: object, *keys: str) -> str:
    """The text below `keys`; empty where there is none."""
    *outer, last = keys
    found = mapping(document, *outer).get(last)
    return found if isinstance(found, str) else ""


def texts(document: object, *keys: str) -> list[str]:
    """The texts in the list below `keys`."""
    *outer, last = keys
    found = mapping(document, *outer).get(last)
    return [item for item in found if isinstance(item, str)] if isinstance(found, list) else []


def whole(document: object, *keys: str) -> int | None:
    """The whole number below `keys`; None where there is none."""
    *outer, last = keys
    found = mapping(document, *outer).get(last)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
