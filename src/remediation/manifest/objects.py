"""Objects: which Kubernetes object stands in which document of a file, the items of a List included.

Finds them by address; what is in them is not looked at. Neighbours: `tree` reads the file, `editing` and `source` ask for objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from suture.errors import EditRefused
from suture.remediation.manifest.address import split_address
from suture.remediation.manifest.tree import Node, decode, deref, entry, parse
from suture.remediation.manifest.values import typed
from suture.remediation.paths import Field, Index, Path


@dataclass(frozen=True, slots=True)
class Document:
    """One Kubernetes object in a file: its document, and where it stands in it (the items of a List are objects)."""

    index: int
    prefix: Path
    api: str
    kind: str
    namespace: str
    name: str
    line: int


def find(data: bytes, address: str) -> Document:
    """The one object in the file that `address` (Kind/namespace/name) names; one without a namespace fits any.

    Raises: ManifestUnreadable, EditRefused.
    """
    kind, namespace, name = split_address(address)
    named = [d for d in documents(data) if (d.kind, d.name) == (kind, name)]
    fit = [d for d in named if d.namespace == namespace] or [d for d in named if not d.namespace]
    if len(fit) == 1:
        return fit[0]
    if not fit:
        raise EditRefused(f"{address} is not defined in this file.")
    lines = ", ".join(str(d.line) for d in fit)
    raise EditRefused(f"{address} is defined {len(fit)} times in this file, at lines {lines}: remove the copies that are not meant.")


def documents(data: bytes) -> list[Document]:
    """Every object of the file, in order; what has no kind and name is left out. Raises: ManifestUnreadable."""
    found = []
    for index, root in enumerate(parse(decode(data)).roots):
        for prefix, node in _objects(root):
            api, kind = _scalar_at(node, "apiVersion"), _scalar_at(node, "kind")
            metadata = deref(entry(node, "metadata"))
            name = _scalar_at(metadata, "name") if metadata else ""
            if kind:
                namespace = _scalar_at(metadata, "namespace") if metadata else ""
                found.append(Document(index, prefix, api, kind, namespace, name, node.line))
    return found


def _objects(root: Node) -> Iterator[tuple[Path, Node]]:
    items = entry(root, "items") if root.kind == "map" else None
    if items is not None and items.kind == "seq" and _scalar_at(root, "kind").endswith("List"):
        for index, item in enumerate(items.items):
            if item.kind == "map":
                yield (Field("items"), Index(index)), item
    elif root.kind == "map":
        yield (), root


def _scalar_at(node: Node, key: str) -> str:
    found = deref(entry(node, key))
    return found.text if found is not None and found.kind == "scalar" and typed(found) is not None else ""
