"""Kustomize: the layer that decides a field, outermost first; else the base, if no other overlay shares it.

Renders nothing: it follows names, namespaces and references. Neighbours: `layers` reads the kustomizations, `images` and `patches` know
two of the ways in which a layer sets a field; `locating` asks.
"""

import posixpath
import re

from suture.errors import EditRefused
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path, split_address
from suture.remediation.manifest.objects import Document
from suture.remediation.manifest.reading import read
from suture.remediation.paths import Field, Path, Step, fields, join
from suture.remediation.source.images import Entry, image_place, split_image
from suture.remediation.source.layers import Chain, Layer, chains, layers, namespace_of, renamed
from suture.remediation.source.patches import patched, patches
from suture.remediation.source.place import Place, in_document, in_field, spot, whole
from suture.remediation.source.repository import Repository
from suture.remediation.source.tables import Table, items, word

_HASH = re.compile(r"-[a-z0-9]{10}")


class Kustomize:
    """Every kustomization of a repository."""

    def __init__(self, tree: Repository) -> None:
        self._tree = tree
        self._layers = layers(tree)
        self._chains = chains(self._layers)

    def reached(self) -> set[str]:
        """The files that kustomizations use, and they themselves."""
        used = {leaf for chain in self._chains for leaf in self._leaves(chain[-1])} | {layer.path for layer in self._layers.values()}
        stand = (where for layer in self._layers.values() for where, _, _ in patches(self._tree.files, layer))
        return used | {where for where in stand if isinstance(where, str)}

    def places(self, change: Change) -> list[Place]:
        """Where the kustomizations decide the field; those of the very namespace come before those without one."""
        kind, namespace, name = split_address(change.object)
        found: list[tuple[bool, Place]] = []
        for chain in self._chains:
            renames = renamed(chain, "") != ""
            for path in self._leaves(chain[-1]):
                for document in self._tree.documents(path) if self._tree.mentions(path, kind, "" if renames else name) else ():
                    lands = namespace_of(chain) or document.namespace
                    if (document.kind, renamed(chain, document.name)) == (kind, name) and lands in (namespace, ""):
                        found.append((lands == namespace, self._decide(chain, path, document, change)))
            lands = namespace_of(chain)
            if kind == "ConfigMap" and lands in (namespace, "") and (place := self._generated(chain, name, change)):
                found.append((lands == namespace, place))
        return [place for exact, place in found if exact] or [place for _, place in found]

    def _decide(self, chain: Chain, path: str, document: Document, change: Change) -> Place:
        """The overlay that sets the field, outermost first; else the base, if no other overlay shares it."""
        steps = parse_path(change.path)
        if place := self._image(chain, path, document, change):
            return place
        for depth, layer in enumerate(chain):
            names = {document.name, renamed(chain[depth:], document.name), renamed(chain[depth + 1 :], document.name)}
            if place := self._replicas(layer, names, change) or patched(self._tree.files, layer, names, change):
                if change.operation == "remove":
                    raise EditRefused(
                        f"{place.path} patches {change.path}: without the patch the base's value would show. Edit it by hand."
                    )
                return place
            _refuse_replacement(layer, steps)
        others = sorted({c[0].path for c in self._chains if path in self._leaves(c[-1])} - {chain[0].path})
        if others:
            shared = ", ".join(others)
            raise EditRefused(f"{path} is shared with {shared}: a change would reach there too. Patch {change.path} in {chain[0].path}.")
        return in_document(path, document, change)

    def _image(self, chain: Chain, path: str, document: Document, change: Change) -> Place | None:
        steps = parse_path(change.path)
        if len(steps) < 3 or steps[-1] != Field("image") or not _holds_containers(steps[-3]):
            return None
        written = read(self._tree.files[path], document=document.index, path=document.prefix + steps)
        name = split_image(word(written))[0]
        matched: list[Entry] = []
        for layer in reversed(chain):
            for index, entry in layer.tables("images"):
                if word(entry.get("name")) == name:
                    matched.append((layer, index, entry))
                    name = word(entry.get("newName")) or name
        return image_place(word(written), matched, change) if matched else None

    def _replicas(self, layer: Layer, names: set[str], change: Change) -> Place | None:
        for index, entry in layer.tables("replicas") if change.path == "spec.replicas" else ():
            if word(entry.get("name")) in names:
                return in_field(layer.path, spot("replicas", index, "count"), change)
        return None

    def _generated(self, chain: Chain, name: str, change: Change) -> Place | None:
        match parse_path(change.path):
            case (Field("data"), Field(key)) if change.operation == "set":
                pass
            case _:
                return None
        for index, entry in chain[-1].tables("configMapGenerator"):
            own = renamed(chain, word(entry.get("name")))
            hashed = name.startswith(own) and _HASH.fullmatch(name, len(own))
            if (name == own or hashed) and (place := self._source(chain[-1], index, entry, key, change)):
                return place
        return None

    def _source(self, layer: Layer, index: int, entry: Table, key: str, change: Change) -> Place | None:
        """The literal, or the file, that a generator takes the key from."""
        for at, literal in enumerate(items(entry.get("literals"))):
            if isinstance(literal, str) and literal.startswith(f"{key}="):
                before = None if change.before is None else f"{key}={change.before}"
                wanted = change.model_copy(update={"value": f"{key}={change.value}", "before": before})
                return in_field(layer.path, spot("configMapGenerator", index, "literals", at), wanted)
        for reference in items(entry.get("files")):
            left, _, right = word(reference).rpartition("=")
            path = layer.resolve(right)
            if (left or posixpath.basename(right)) == key and path in self._tree.files:
                return whole(path, change)
        return None

    def _leaves(self, layer: Layer) -> list[str]:
        return [path for reference in layer.references() if (path := layer.resolve(reference)) in self._tree.files]


def _holds_containers(step: Step) -> bool:
    return isinstance(step, Field) and step.name.lower().endswith("containers")


def _refuse_replacement(layer: Layer, steps: Path) -> None:
    keys = ".".join(fields(steps))
    for _, entry in layer.tables("replacements"):
        for target in items(entry.get("targets")):
            for field in items(target.get("fieldPaths")) if isinstance(target, dict) else ():
                if re.sub(r"\.?\[[^\]]*\]|\.\d+(?=\.|$)", "", word(field)) == keys:
                    raise EditRefused(f"A replacement in {layer.path} sets {join(*steps)}: change what it copies from.")
