"""Proposing: every file that a set of changes touches, with all of them made, or none. The story of this package."""

from collections.abc import Sequence

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.incident import Change, FileChange
from suture.remediation.source.locating import place
from suture.remediation.source.repository import Files


def propose_files(files: Files, changes: Sequence[Change]) -> tuple[FileChange, ...]:
    """Every file that the changes touch, by path: all of them made, or none.

    Raises: EditRefused (also where the repository holds them already), ManifestUnreadable; the message names the file.
    """
    now = dict(files)
    for change in changes:
        found = place(now, change)
        try:
            now[found.path] = found.rewrite(now[found.path])
        except (EditRefused, ManifestUnreadable) as error:
            raise type(error)(f"{found.path}: {error}") from None
    touched = tuple(FileChange(path=path, before=files[path], after=after) for path, after in sorted(now.items()) if files[path] != after)
    if not touched:
        what = ", ".join(f"{change.path} of {change.object}" for change in changes) or "nothing"
        raise EditRefused(f"The repository holds this already ({what}): what runs is older than it. Look at the last sync.")
    return touched
