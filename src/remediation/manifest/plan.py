"""The plan: one change becomes the smallest edits that make it, so that comments and order around them stay.

Decides on values alone and touches no text; refuses where the file is not what the evidence shows. Neighbours: `walk` finds the place,
`proof` makes the edits one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from suture.errors import EditRefused
from suture.remediation.manifest.agreement import DEFAULTS, agrees
from suture.remediation.manifest.tree import TEMPLATE, Node, entry
from suture.remediation.manifest.values import is_merge, quoted, same, value_of
from suture.remediation.manifest.walk import walk
from suture.remediation.paths import Field, Index, New, Path, Pick, Step, join

Operation = Literal["set", "add", "remove"]


class Edit(NamedTuple):
    """One change of one place, from the root of a document."""

    operation: Operation
    path: Path
    value: JsonValue = None


def plan(root: Node, wanted: Edit, before: JsonValue) -> list[Edit]:
    """The edits in the order in which they can be made; none when the change stands there already. Raises: EditRefused."""
    operation, path, value = wanted
    nodes, missing = walk(root, path)
    if operation == "remove":
        return _plan_remove(nodes[-1], path, missing, before)
    if missing:
        return _plan_missing(nodes[-1], missing, wanted, before)
    node = nodes[-1]
    found = value_of(node)
    if same(found, value):
        return []
    _refuse_template(node, path)
    if before is not None and not agrees(found, before, path):
        raise EditRefused(
            f"{join(*path)} is {quoted(found)} at line {node.line}, not {quoted(before)}: diagnose again, it was changed since."
        )
    if operation == "add" and before is None and node.kind != "map" and found is not None:
        raise EditRefused(f"{join(*path)} is there already, at line {node.line}, and is {quoted(found)}: set it instead.")
    edits = list(_difference(node, value, path, keep=operation == "add" and before is None))
    # Removal comes last and from the end: nothing is empty in between, and no index moves under an edit that follows.
    return [e for e in edits if e.operation != "remove"] + [e for e in edits if e.operation == "remove"][::-1]


def _plan_remove(last: Node, path: Path, missing: Path, before: JsonValue) -> list[Edit]:
    if any(not isinstance(step, Field) for step in missing[:-1]):
        raise EditRefused(f"{join(*path[: len(path) - len(missing) + 1])} is not in the file.")
    if missing:
        return []
    if before is not None and not agrees(value_of(last), before, path):
        raise EditRefused(f"{join(*path)} is {quoted(value_of(last))} at line {last.line}, not {quoted(before)}: diagnose again.")
    return [Edit("remove", path)]


def _plan_missing(last: Node, missing: Path, wanted: Edit, before: JsonValue) -> list[Edit]:
    operation, path, value = wanted
    known = path[: len(path) - len(missing)]
    if isinstance(missing[0], New) and any(same(value_of(item), value) for item in last.items):
        return []
    if before is not None and not same(_default(missing[-1]), before):
        raise EditRefused(f"{join(*path)} is not in the file, but the cluster says {quoted(before)}: something else sets it.")
    if operation == "set" and any(isinstance(step, Pick | Index) for step in missing):
        raise EditRefused(f"{join(*path)} is not in the file: there is no {join(*missing)} below {join(*known) or 'the document'}.")
    if last.kind == "scalar":  # an empty value: it becomes the first of what is missing
        return [Edit("set", known, _nest(missing, value, path))]
    first = missing[0]
    return [
        Edit("add", (*known, first), _item(first, missing[1:], value, path) if isinstance(first, Pick) else _nest(missing[1:], value, path))
    ]


def _default(step: Step) -> JsonValue:
    return DEFAULTS.get(step.name) if isinstance(step, Field) else None


def _nest(steps: Path, value: JsonValue, path: Path) -> JsonValue:
    if not steps:
        return value
    match steps[0]:
        case Field(name):
            return {name: _nest(steps[1:], value, path)}
        case New():
            return [value]
        case Pick() as pick:
            return [_item(pick, steps[1:], value, path)]
        case Index():
            raise EditRefused(f"{join(*path)} is not in the file: a list item is added with [+], or named by [field=value].")


def _item(pick: Pick, steps: Path, value: JsonValue, path: Path) -> JsonValue:
    inner = _nest(steps, value, path)
    if not isinstance(inner, dict):
        raise EditRefused(f"{join(*path)} cannot be added: the new item must be a map.")
    return {pick.field: pick.value, **inner}


def _difference(node: Node, value: JsonValue, path: Path, *, keep: bool) -> Iterator[Edit]:
    found = value_of(node)
    if same(found, value):
        return
    merged = any(is_merge(key) for key, _ in node.entries)
    if node.kind == "map" and isinstance(value, dict) and value and node.entries and not merged:
        yield from _map_difference(node, value, path, keep=keep)
    elif keep and found is not None and found != {}:
        raise EditRefused(f"{join(*path)} is there already, at line {node.line}, and is {quoted(found)}: set it instead.")
    elif node.kind == "seq" and isinstance(value, list) and value and node.items:
        yield from _list_difference(node, value, path)
    else:
        yield Edit("set", path, value)


def _map_difference(node: Node, value: Mapping[str, JsonValue], path: Path, *, keep: bool) -> Iterator[Edit]:
    for key, wanted in value.items():
        child = entry(node, key)
        step = Field(key)
        if child is None:
            yield Edit("add", (*path, step), wanted)
        else:
            yield from _difference(child, wanted, (*path, step), keep=keep)
    if not keep:
        yield from (Edit("remove", (*path, Field(key.text))) for key, _ in node.entries if key.text not in value)


def _list_difference(node: Node, value: Sequence[JsonValue], path: Path) -> Iterator[Edit]:
    found = [value_of(item) for item in node.items]
    kept, at = [], 0
    for index, item in enumerate(found):
        if at < len(value) and same(item, value[at]):
            kept.append(index)
            at += 1
    if len(found) <= len(value):
        for index, (child, wanted) in enumerate(zip(node.items, value, strict=False)):
            yield from _difference(child, wanted, (*path, Index(index)), keep=False)
        yield from (Edit("add", (*path, New()), item) for item in value[len(found) :])
    elif at == len(value):
        yield from (Edit("remove", (*path, Index(i))) for i in range(len(found)) if i not in kept)
    else:
        yield Edit("set", path, list(value))


def _refuse_template(node: Node, path: Path) -> None:
    if node.kind == "scalar" and TEMPLATE.search(node.text) and "\n" not in node.text:
        raise EditRefused(f"{join(*path)} is the template {node.text!r} at line {node.line}: the change belongs into its values.")
