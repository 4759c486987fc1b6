"""Values: what a node means to the API server, which reads YAML 1.1 as Go does, and when two values are the same.

Merge keys and aliases are followed, within a budget. Knows nothing of where a value stands (see `tree`, `walk`), nor when the evidence may
differ from the file (see `agreement`).
"""

import json
import re

from pydantic import JsonValue

from suture.errors import ManifestUnreadable
from suture.remediation.manifest.tree import NODES, Node, deref

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"), False),
}
_INT = re.compile(r"([-+]?)(?:0b([01_]+)|0o?([0-7_]+)|0x([0-9a-fA-F_]+)|(0|[1-9][0-9_]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
ODD = re.compile(
    r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|<<|="
)
"""Read as another type by some reader: infinity, base 60, dates, the merge key. Text to us; quoted when written."""


def typed(node: Node) -> JsonValue:
    """The value of a scalar: quotes and tags make it text."""
    if node.style or node.tag.endswith((":str", ":binary")):
        return node.text
    return resolved(node.text)


def resolved(text: str) -> JsonValue:
    """What a plain scalar is read as."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if found := _INT.fullmatch(text):
        sign, *digits = found.groups()
        base, number = next((b, d) for b, d in zip((2, 8, 16, 10), digits, strict=True) if d is not None)
        bare = number.replace("_", "")
        return int(sign + bare, base) if bare else text
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def value_of(node: Node, budget: list[int] | None = None) -> JsonValue:
    """The whole value, aliases written out. Raises: ManifestUnreadable where they would stand for too many."""
    budget = [NODES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0:
        raise ManifestUnreadable(f"The aliases at line {node.line} stand for more than {NODES:,} values: write them out.")
    match node.kind:
        case "alias":
            return value_of(node.target, budget) if node.target else None
        case "scalar":
            return typed(node)
        case "seq":
            return [value_of(item, budget) for item in node.items]
        case "map":
            own = {key.text: value_of(value, budget) for key, value in node.entries if not is_merge(key)}
            return {**{k: value_of(v, budget) for k, v in inherited(node).items()}, **own}


def is_merge(key: Node) -> bool:
    """Whether the key is `<<`, unquoted."""
    return key.text == "<<" and not key.style


def inherited(node: Node, known: dict[int, dict[str, Node]] | None = None) -> dict[str, Node]:
    """What the node inherits by `<<`; each source is looked at once, however often it is merged."""
    known = {} if known is None else known
    if id(node) not in known:
        found: dict[str, Node] = {}
        for source in [value for key, value in node.entries if is_merge(key)]:
            for target in map(deref, source.items if source.kind == "seq" else [source]):
                if target is not None and target.kind == "map":
                    own = {key.text: value for key, value in target.entries if not is_merge(key)}
                    found = {**inherited(target, known), **own, **found}
        known[id(node)] = found
    return known[id(node)]


def same(one: object, other: object) -> bool:
    """Equal in value and type: 1 is neither True nor 1.0 nor "1"."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)  # noqa: PLR0124 (NaN alone differs from itself)


def quoted(value: JsonValue) -> str:
    """The value as a message shows it, clipped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"
