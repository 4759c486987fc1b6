"""Editing: a file's bytes with one change made, every other byte as it was.

The story: find the object, plan the edits, ask whether the API server would take each, splice and prove them one by one, read back what
stands there. Pure. Which file it is, is `source`'s question; whether the change is wise, that of the causes.
"""

from collections.abc import Callable

from pydantic import JsonValue

from suture.errors import EditRefused
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path
from suture.remediation.manifest.immutability import fixed, immutable
from suture.remediation.manifest.objects import find
from suture.remediation.manifest.plan import Edit, Operation, plan
from suture.remediation.manifest.proof import apply
from suture.remediation.manifest.tree import decode, parse
from suture.remediation.manifest.values import quoted, same
from suture.remediation.manifest.walk import value_at
from suture.remediation.paths import Path, join


def edit(data: bytes, change: Change) -> bytes:
    """The file with `change` made, every other byte as it was; the same bytes when the change stands there already.

    Raises: ManifestUnreadable, EditRefused.
    """
    document = find(data, change.object)
    reason = immutable(change)
    if reason:
        raise EditRefused(f"{change.path} of {change.object} cannot be changed: {reason}")
    wanted = Edit(change.operation, document.prefix + parse_path(change.path), change.value)

    def allow(each: Edit) -> None:
        if reason := fixed(document.kind, each.operation, each.path[len(document.prefix) :]):
            raise EditRefused(f"{join(*each.path)} of {change.object} cannot be changed: {reason}")

    return _edited(data, document.index, wanted, before=change.before, allow=allow)


def edit_at(data: bytes, *, document: int, path: Path, operation: Operation, value: JsonValue, before: JsonValue = None) -> bytes:
    """`edit`, for a place that the caller has found: the document's number and the path from its root."""
    return _edited(data, document, Edit(operation, path, value), before=before)


def _edited(data: bytes, document: int, wanted: Edit, *, before: JsonValue, allow: Callable[[Edit], None] | None = None) -> bytes:
    text = decode(data)
    bom = text[:1] == "\ufeff"
    text = text.removeprefix("\ufeff")
    tree = parse(text)
    edits = plan(tree.roots[document], wanted, before)
    for each in edits:
        if allow is not None:
            allow(each)
        text, tree = apply(text, tree, document, each)
    if wanted.operation == "set" and edits and not same(value_at(tree.roots[document], wanted.path), wanted.value):
        raise EditRefused(f"{join(*wanted.path)} cannot be written so that it reads as {quoted(wanted.value)}.")
    return ("\ufeff" * bom + text).encode()
