"""The walk along a path through a tree: the nodes on the way, and the steps that lead nowhere yet.

What is shared with other places (an alias, a merged map) is not entered. Reads only; neighbours: `plan` decides by it, `surgeon` cuts
there.
"""

from pydantic import JsonValue

from suture.errors import EditRefused
from suture.remediation.manifest.tree import Node, deref, entry
from suture.remediation.manifest.values import inherited, quoted, typed, value_of
from suture.remediation.paths import Field, Index, New, Path, Pick, Step, join


def walk(root: Node, path: Path) -> tuple[list[Node], Path]:
    """The nodes along the path, and the steps that lead nowhere yet."""
    nodes = [root]
    for at, step in enumerate(path):
        node = nodes[-1]
        if node.kind == "alias":
            raise EditRefused(
                f"{join(*path[:at])} is the alias *{node.text} (line {node.line}), shared with other places: write it out first."
            )
        found = _child(node, step, path[: at + 1])
        if found is None:
            return nodes, path[at:]
        if found.kind != "scalar" and at + 1 < len(path) and isinstance(step, Field) and entry(node, step.name) is None:
            raise EditRefused(
                f"{join(*path[: at + 1])} comes from a merged anchor (line {node.line}), shared with other places: write it out."
            )
        nodes.append(found)
    return nodes, ()


def _child(node: Node, step: Step, path: Path) -> Node | None:
    if node.kind == "scalar":
        if typed(node) is None:
            return None
        raise EditRefused(f"{join(*path[:-1])} is {quoted(typed(node))} at line {node.line}: {join(*path[-1:])} cannot be in it.")
    if isinstance(step, Field) != (node.kind == "map"):
        raise EditRefused(
            f"{join(*path[:-1])} is a {'map' if node.kind == 'map' else 'list'} (line {node.line}): {join(*path[-1:])} cannot be in it."
        )
    match step:
        case Field(name):
            return entry(node, name) or inherited(node).get(name)
        case Index(place):
            return node.items[place] if place < len(node.items) else None
        case Pick(field, value):
            fit = [item for item in node.items if _field(item, field) == value]
            if len(fit) > 1:
                raise EditRefused(f"{join(*path)} fits {len(fit)} items, at lines {', '.join(str(i.line) for i in fit)}: name them apart.")
            return fit[0] if fit else None
        case New():
            return None


def _field(item: Node, name: str) -> str | None:
    node = deref(item)
    found = deref(entry(node, name) or inherited(node).get(name)) if node is not None and node.kind == "map" else None
    return found.text if found is not None and found.kind == "scalar" else None


def value_at(root: Node, path: Path) -> JsonValue:
    """What stands at `path`; None where nothing does."""
    nodes, missing = walk(root, path)
    return None if missing else value_of(nodes[-1])


def indices(root: Node, path: Path) -> list[str | int]:
    """The path as keys and places of lists; -1 is an item that is not there yet."""
    places: list[str | int] = []
    node: Node | None = root
    for at, step in enumerate(path):
        child = _child(node, step, path[: at + 1]) if node is not None else None
        if isinstance(step, Field):
            places.append(step.name)
        else:
            places.append(node.items.index(child) if node is not None and child is not None else -1)
        node = child
    return places
