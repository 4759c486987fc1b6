"""How a change says where: the address of an object and the path of a field, read or refused.

The grammar of paths is `paths`'; here what is no path becomes a refusal of the edit. Neighbours: `objects` finds the object in a file,
`walk` the field in the object.
"""

from suture.errors import EditRefused
from suture.remediation.paths import Path, parse


def split_address(address: str) -> tuple[str, str, str]:
    """Kind, namespace and name of `Kind/namespace/name`."""
    parts = address.split("/")
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise EditRefused(f"{address!r} names no object: write Kind/namespace/name.")
    return parts[0], parts[1], parts[2]


def parse_path(text: str) -> Path:
    """The steps of `text`. Raises: EditRefused."""
    try:
        return parse(text)
    except ValueError as error:
        raise EditRefused(f"The change has no path that can be read. {error}") from None
