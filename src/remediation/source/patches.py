"""Patches: whether a patch of a kustomization sets a field, and the place where it does.

Strategic merge patches are edited, in files and inside the kustomization; what a JSON patch sets is refused, as is what cannot be told.
Neighbour: `kustomize` asks layer by layer.
"""

import re
from collections.abc import Iterator

from pydantic import JsonValue

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path, split_address
from suture.remediation.manifest.objects import Document, documents
from suture.remediation.manifest.reading import holds, load
from suture.remediation.paths import Index, Path, fields, join
from suture.remediation.source.layers import Layer
from suture.remediation.source.place import Place, in_file, in_text, spot
from suture.remediation.source.repository import Files
from suture.remediation.source.tables import Table, word


def patched(files: Files, layer: Layer, names: set[str], change: Change) -> Place | None:
    """The patch of `layer` that sets the field, for an object known by any of `names`. Raises: EditRefused."""
    kind = split_address(change.object)[0]
    steps = parse_path(change.path)
    for where, content, target in patches(files, layer):
        aimed = target is not None and _aims(target, kind, names)
        try:
            found = [d for d in documents(content) if d.kind == kind and (d.name in names or aimed)]
            loaded = load(content) if target is not None and aimed else []
        except ManifestUnreadable as error:
            raise EditRefused(f"A patch in {layer.path} cannot be read, and it may set {change.path}: {error}") from None
        for operations in loaded:
            _refuse_json_patch(operations, steps, layer.path)
        for document in found:
            _refuse_place(content, document, steps, layer.path)
            if not holds(content, document=document.index, path=document.prefix + steps):
                continue
            inner = change.model_copy(update={"object": f"{kind}/{document.namespace}/{document.name}"})
            return in_file(where, inner) if isinstance(where, str) else in_text(layer.path, where, inner)
    return None


def patches(files: Files, layer: Layer) -> Iterator[tuple[str | Path, bytes, Table | None]]:
    """Where each patch stands (a file, or a place in the kustomization), its text and its target."""
    for index, entry in layer.tables("patches"):
        target = entry.get("target")
        path, text = layer.resolve(word(entry.get("path"))), entry.get("patch")
        if isinstance(text, str):
            yield spot("patches", index, "patch"), text.encode(), target if isinstance(target, dict) else None
        elif path in files:
            yield path, files[path], target if isinstance(target, dict) else None
    for index, text in enumerate(layer.names("patchesStrategicMerge")):
        path = layer.resolve(text)
        yield (path, files[path], None) if path in files else (spot("patchesStrategicMerge", index), text.encode(), None)
    for _, entry in layer.tables("patchesJson6902"):
        path, target = layer.resolve(word(entry.get("path"))), entry.get("target")
        yield path, files.get(path, word(entry.get("patch")).encode()), target if isinstance(target, dict) else {}


def _aims(target: Table, kind: str, names: set[str]) -> bool:
    # kustomize anchors both as regular expressions; a pattern that Python cannot read may fit.
    try:
        fits = [re.fullmatch(word(target.get("kind")) or ".*", kind), *(re.fullmatch(word(target.get("name")) or ".*", n) for n in names)]
    except re.error:
        return True
    return fits[0] is not None and any(fits[1:])


def _refuse_json_patch(operations: JsonValue, steps: Path, path: str) -> None:
    keys = fields(steps)
    for operation in operations if isinstance(operations, list) else ():
        pointer = word(operation.get("path")) if isinstance(operation, dict) else ""
        parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:] if not re.fullmatch(r"\d+|-", part)]
        if parts and parts == keys[: len(parts)]:
            raise EditRefused(f"The JSON patch of {pointer} in {path} sets {join(*steps)}: edit that patch by hand.")


def _refuse_place(content: bytes, document: Document, steps: Path, path: str) -> None:
    """A patch merges its lists by name: which of its items the third one of the cluster is cannot be told."""
    at = next((at for at, step in enumerate(steps) if isinstance(step, Index)), None)
    if at is not None and holds(content, document=document.index, path=document.prefix + steps[:at]):
        raise EditRefused(f"A patch in {path} touches {join(*steps[:at])}: name the item by its name, not by its place.")
