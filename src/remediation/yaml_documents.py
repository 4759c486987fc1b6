"""YAML as kubectl prints it, into plain JSON values: no tags, no anchors, no dates, bounded depth.

A loader of its own, on the events of libyaml: common loaders turn times into dates, `on` into true, and expand anchors without a bound.
Editing YAML is another duty (see `manifests`).
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml


class Unfit(ValueError):
    """The text is not YAML that kubectl prints."""


MOST_NODES = 3_000_000

_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,20}\.[0-9]{0,20}|\.[0-9]{1,20}|[0-9]{1,20}(?=[eE]))(?:[eE][-+]?[0-9]{1,2})?")
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_TRUTH = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def load_yaml(content: str, *, deepest: int) -> list[Any]:
    """All documents of `content`.

    Raises: Unfit.
    """
    try:
        return list(_documents(_events(content), deepest))
    except (yaml.YAMLError, UnicodeError) as error:
        raise Unfit(_short(error)) from None


def _events(content: str) -> Iterator[yaml.Event]:
    for number, event in enumerate(yaml.parse(content, Loader=yaml.CSafeLoader)):
        if number > MOST_NODES:
            raise Unfit(f"it has more than {MOST_NODES:,} nodes")
        if isinstance(event, yaml.AliasEvent):
            raise Unfit(f"it uses the alias *{event.anchor}; kubectl prints none, and some expand without end")
        yield event


def _documents(events: Iterator[yaml.Event], deepest: int) -> Iterator[Any]:
    for event in events:
        if isinstance(event, yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent):
            yield _node(event, events, deepest)


def _node(event: yaml.Event, events: Iterator[yaml.Event], deepest: int) -> Any:
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event)
    if deepest == 0:
        raise Unfit("it is nested too deeply")
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(events, deepest - 1)
    return _mapping(events, deepest - 1)


def _sequence(events: Iterator[yaml.Event], deepest: int) -> list[Any]:
    items = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_node(event, events, deepest))
    return items


def _mapping(events: Iterator[yaml.Event], deepest: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        if not isinstance(event, yaml.ScalarEvent):
            raise Unfit("it has a key that is no word")
        found[event.value] = _node(next(events), events, deepest)
    return found


def _scalar(event: yaml.ScalarEvent) -> Any:
    word: str = event.value
    if not event.implicit[0] or event.tag not in (None, "!"):
        return word
    if word in _WORDS:
        return None
    if word in _TRUTH:
        return _TRUTH[word]
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word


def _short(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "a character that YAML does not allow"
    return f"{problem}, line {mark.line + 1}" if mark is not None else str(problem)
