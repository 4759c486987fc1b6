"""Reading: what a file says, as values. Changes nothing; neighbours: `editing` changes, `walk` finds the place."""

from pydantic import JsonValue

from suture.remediation.manifest.tree import decode, parse
from suture.remediation.manifest.values import value_of
from suture.remediation.manifest.walk import value_at, walk
from suture.remediation.paths import Path


def load(data: bytes) -> list[JsonValue]:
    """The values of every document, as the API server would read them. Raises: ManifestUnreadable."""
    return [value_of(root) for root in parse(decode(data)).roots]


def read(data: bytes, *, document: int, path: Path) -> JsonValue:
    """What stands at `path`; None where nothing does."""
    return value_at(parse(decode(data)).roots[document], path)


def holds(data: bytes, *, document: int, path: Path) -> bool:
    """Whether something stands at `path`, inherited values (`<<`) included."""
    return walk(parse(decode(data)).roots[document], path)[1] == ()
