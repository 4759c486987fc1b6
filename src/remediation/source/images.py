"""Images: what the `images:` of the layers make of an image, and the entries to change for another one.

Neighbour: `kustomize` collects the entries that fit, innermost first.
"""

from collections.abc import Sequence

from suture.errors import EditRefused
from suture.remediation.incident import Change
from suture.remediation.manifest.editing import edit_at
from suture.remediation.source.layers import Layer
from suture.remediation.source.place import Place, spot
from suture.remediation.source.tables import Table, word


def split_image(image: str) -> tuple[str, str, str]:
    """Name, tag and digest; empty where there is none.

    >>> split_image("registry:5000/a/b:1@sha256:0")
    ('registry:5000/a/b', '1', 'sha256:0')
    """
    rest, _, digest = image.partition("@")
    name, colon, tag = rest.rpartition(":")
    return (name, tag, digest) if colon and "/" not in tag else (rest, "", digest)


_IMAGE: tuple[str, ...] = ("newName", "newTag", "digest")
Entry = tuple[Layer, int, Table]
"""An entry of `images:`: its layer, its place, and what it says."""


def image_place(written: str, matched: Sequence[Entry], change: Change) -> Place:
    """The one kustomization whose entries decide what changes in the image. Raises: EditRefused."""
    path = matched[-1][0].path
    if change.operation == "remove" or not isinstance(change.value, str):
        raise EditRefused(f"{change.path} is set by images: in {path}: only another image can be written there.")
    now, source = _image_now(written, matched)
    seen = now["newName"] + (f":{now['newTag']}" if now["newTag"] else "") + (f"@{now['digest']}" if now["digest"] else "")
    wanted = dict(zip(_IMAGE, split_image(change.value), strict=True))
    if change.before not in (None, seen) and seen != change.value:
        raise EditRefused(f"{path} makes {change.path} {seen!r}, not {change.before!r}: diagnose again, it was changed since.")
    changed = [key for key in _IMAGE if now[key] != wanted[key]]
    owners = {source[key][0].path for key in changed} or {path}
    if len(owners) > 1:
        raise EditRefused(f"{change.path} is set by images: in {' and '.join(sorted(owners))}: change them by hand.")
    edits = [(source[key], key, wanted[key]) for key in changed]
    return Place(owners.pop(), "images", lambda data: _image_edits(data, edits))


def _image_now(written: str, matched: Sequence[Entry]) -> tuple[dict[str, str], dict[str, Entry]]:
    """The image that the overlays make of `written`, and which entry decides each of its parts."""
    now = dict(zip(_IMAGE, split_image(written), strict=True))
    source = dict.fromkeys(_IMAGE, matched[-1])
    for found in matched:
        says = found[2]
        for key in (key for key in _IMAGE if key in says):
            now[key], source[key] = word(says[key]), found
        if "newTag" in says and "digest" not in says:
            now["digest"] = ""
        if "digest" in says:  # kustomize writes the digest in the tag's place
            now["newTag"] = ""
    return now, source


def _image_edits(data: bytes, edits: Sequence[tuple[Entry, str, str]]) -> bytes:
    for (_, index, says), key, value in edits:
        at = spot("images", index, key)
        if value:
            data = edit_at(data, document=0, path=at, operation="set" if key in says else "add", value=value)
        elif key in says:
            data = edit_at(data, document=0, path=at, operation="remove", value=None)
        else:
            raise EditRefused(f"The image loses its {key.removeprefix('new').lower()}, and images: cannot take the base's away.")
    return data
