"""Layers: the kustomizations of a repository, one a folder, and the chains that they build, from an overlay to its bases.

Reads what a kustomization says of names and references; which layer decides a field is asked by `kustomize`.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from suture.remediation.source.repository import Repository
from suture.remediation.source.tables import Table, items, word

KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "Kustomization")


@dataclass(frozen=True, slots=True)
class Layer:
    """One kustomization."""

    folder: str
    path: str
    says: Table

    def names(self, key: str) -> list[str]:
        return [item for item in items(self.says.get(key)) if isinstance(item, str)]

    def tables(self, key: str) -> list[tuple[int, Table]]:
        return [(index, item) for index, item in enumerate(items(self.says.get(key))) if isinstance(item, dict)]

    def resolve(self, reference: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, reference)) if "://" not in reference else ""

    def references(self) -> list[str]:
        return [*self.names("resources"), *self.names("bases"), *self.names("components")]

    def rename(self, name: str) -> str:
        return f"{word(self.says.get('namePrefix'))}{name}{word(self.says.get('nameSuffix'))}"


Chain = tuple[Layer, ...]
"""From the outermost overlay to the innermost base."""


def layers(tree: Repository) -> dict[str, Layer]:
    """The kustomizations, by folder."""
    return {layer.folder: layer for path in tree.files if (layer := _layer(tree, path))}


def _layer(tree: Repository, path: str) -> Layer | None:
    if posixpath.basename(path) not in KUSTOMIZATION:
        return None
    says = tree.load(path)
    # A Flux Kustomization has the same file name at times, and a spec: it builds nothing.
    fits = len(says) == 1 and isinstance(says[0], dict) and "spec" not in says[0]
    return Layer(posixpath.dirname(path), path, says[0]) if fits and isinstance(says[0], dict) else None


def chains(found: dict[str, Layer]) -> list[Chain]:
    """What each outermost overlay builds."""
    referenced = {layer.resolve(reference) for layer in found.values() for reference in layer.references()}
    return [chain for folder, layer in found.items() if folder not in referenced for chain in _walk((layer,), found)]


def _walk(chain: Chain, found: dict[str, Layer]) -> Iterator[Chain]:
    yield chain
    for reference in chain[-1].references():
        inner = found.get(chain[-1].resolve(reference))
        if inner and inner not in chain:
            yield from _walk((*chain, inner), found)


def namespace_of(chain: Chain) -> str:
    """The namespace that the chain sets; empty where it leaves each object's own."""
    return next((found for layer in chain if (found := word(layer.says.get("namespace")))), "")


def renamed(chain: Chain, name: str) -> str:
    """The name with the prefixes and suffixes of the chain."""
    for layer in reversed(chain):
        name = layer.rename(name)
    return name
