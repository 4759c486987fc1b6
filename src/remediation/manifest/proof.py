"""The proof: one edit is spliced, the result parsed again and compared, node by node, with what was meant.

Aliases are never expanded while comparing, so their number cannot hurt. Neighbours: `surgeon` cuts, `editing` strings the edits together.
"""

from typing import Any, NamedTuple

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.manifest.plan import Edit
from suture.remediation.manifest.surgeon import Surgeon
from suture.remediation.manifest.tree import Node, Tree, parse
from suture.remediation.manifest.values import same, typed
from suture.remediation.manifest.walk import indices
from suture.remediation.paths import join


def apply(text: str, tree: Tree, document: int, change: Edit) -> tuple[str, Tree]:
    """The text with the one edit made, and its tree. Raises: EditRefused where anything else would change."""
    root = tree.roots[document]
    spliced = Surgeon(text, root).operate(change, tree)
    try:
        after = parse(spliced)
    except ManifestUnreadable as error:
        raise EditRefused(f"{join(*change.path)} cannot be changed here without breaking the file: {error}") from None
    expected = [_plain(each) for each in tree.roots]
    expected[document] = _mutated(expected[document], indices(root, change.path), change)
    if not same(expected, [_plain(each) for each in after.roots]):
        raise EditRefused(
            f"{join(*change.path)} cannot be changed here alone: the file would differ in another place too. Edit it by hand."
        )
    return spliced, after


class _Alias(NamedTuple):
    name: str
    ordinal: int


def _plain(node: Node) -> Any:
    match node.kind:
        case "alias":
            return _Alias(node.text, node.ordinal)
        case "scalar":
            return typed(node)
        case "seq":
            return [_plain(item) for item in node.items]
        case "map":
            return {key.text: _plain(value) for key, value in node.entries}


def _mutated(value: Any, places: list[str | int], change: Edit) -> Any:
    if not places:
        return change.value
    holder = value
    for place in places[:-1]:
        holder = holder[place]
    last = places[-1]
    if change.operation == "remove":
        del holder[last]
    elif last == -1:
        holder.append(change.value)
    else:
        holder[last] = change.value
    return value
