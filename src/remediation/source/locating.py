"""Locating: the one place where a change belongs. Kustomizations are asked first, then plain manifests, then charts.

More than one place is refused, and none is, with the files that could not be read. Neighbours: `proposing` makes the change.
"""

from suture.errors import EditRefused
from suture.remediation.incident import Change
from suture.remediation.manifest.address import split_address
from suture.remediation.manifest.immutability import immutable
from suture.remediation.manifest.objects import Document
from suture.remediation.source.helm import charted
from suture.remediation.source.kustomize import Kustomize
from suture.remediation.source.place import Place, in_document
from suture.remediation.source.repository import MANIFEST, Files, Repository


def locate(files: Files, change: Change) -> str:
    """The path of the file where `change` belongs. Raises: EditRefused, ManifestUnreadable."""
    return place(files, change).path


def place(files: Files, change: Change) -> Place:
    """The file, and the way to change it. Raises: EditRefused, ManifestUnreadable."""
    if reason := immutable(change):
        raise EditRefused(f"{change.path} of {change.object} cannot be changed: {reason}")
    split_address(change.object)
    tree = Repository(files)
    layered = Kustomize(tree)
    places = layered.places(change) or _plain(tree, change, besides=layered.reached()) or charted(tree, change)
    if len({(each.path, each.key) for each in places}) == 1:
        return places[0]
    if not places:
        raise EditRefused(f"No file of the repository defines {change.object}.{tree.complaints(change)}")
    where = ", ".join(sorted({each.path for each in places}))
    raise EditRefused(f"{change.object} is defined more than once, in {where}: which one is deployed cannot be told.")


def _plain(tree: Repository, change: Change, *, besides: set[str]) -> list[Place]:
    """Files that no kustomization and no chart holds."""
    kind, namespace, name = split_address(change.object)
    found: list[tuple[str, Document]] = []
    for path in tree.files:
        if path.endswith(MANIFEST) and path not in besides and not tree.chart_of(path) and tree.mentions(path, kind, name):
            found += [(path, d) for d in tree.documents(path) if (d.kind, d.name) == (kind, name) and d.namespace in (namespace, "")]
    exact = [(path, d) for path, d in found if d.namespace == namespace] or found
    return [in_document(path, d, change) for path, d in exact]
