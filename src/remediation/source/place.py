"""Places: the file to change, and the ways to change it. Who decides which place it is: `kustomize`, `helm`, `locating`."""

from collections.abc import Callable
from dataclasses import dataclass

from suture.errors import EditRefused
from suture.remediation.incident import Change
from suture.remediation.manifest.editing import edit, edit_at
from suture.remediation.manifest.objects import Document
from suture.remediation.manifest.reading import read
from suture.remediation.paths import Field, Index, Path, join
from suture.remediation.source.tables import word


@dataclass(frozen=True, slots=True)
class Place:
    """The file to change, and how; `key` tells two places in one file apart."""

    path: str
    key: str
    rewrite: Callable[[bytes], bytes]


def in_document(path: str, document: Document, change: Change) -> Place:
    """The object itself, whatever name and namespace the file gives it."""
    inner = change.model_copy(update={"object": f"{document.kind}/{document.namespace}/{document.name}"})
    return Place(path, f"{document.index}{join(*document.prefix)}", lambda data: edit(data, inner))


def in_file(path: str, change: Change) -> Place:
    """The object that `change` names, in a patch file."""
    return Place(path, change.object, lambda data: edit(data, change))


def in_field(path: str, at: Path, change: Change) -> Place:
    """One field of a file of options."""
    return Place(
        path,
        join(*at),
        lambda data: edit_at(data, document=0, path=at, operation=change.operation, value=change.value, before=change.before),
    )


def in_text(path: str, at: Path, change: Change) -> Place:
    """A manifest that is the text of one field, as a patch inside a kustomization."""

    def rewrite(data: bytes) -> bytes:
        inner = edit(word(read(data, document=0, path=at)).encode(), change)
        return edit_at(data, document=0, path=at, operation="set", value=inner.decode())

    return Place(path, join(*at), rewrite)


def whole(path: str, change: Change) -> Place:
    """The file is the value."""
    return Place(path, "", lambda data: _rewritten(data, change))


def _rewritten(data: bytes, change: Change) -> bytes:
    if not isinstance(change.value, str):
        raise EditRefused(f"{change.path} is a whole file: its new text is needed.")
    if change.before is not None and change.before not in (change.value, data.decode(errors="replace")) and data != change.value.encode():
        raise EditRefused("The file is not what the evidence shows: diagnose again, it was changed since.")
    return change.value.encode()


def spot(*parts: str | int) -> Path:
    """A path of keys and of places in lists."""
    return tuple(Field(part) if isinstance(part, str) else Index(part) for part in parts)
