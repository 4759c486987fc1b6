"""Tables: what a YAML file of options says, whatever shape it has; what has the wrong type is as good as absent.

For kustomizations, charts and values; objects of Kubernetes are read by `manifest.objects`.
"""

from pydantic import JsonValue

from suture.errors import ManifestUnreadable
from suture.remediation.manifest.reading import load

Table = dict[str, JsonValue]


def items(value: JsonValue) -> list[JsonValue]:
    """The items of a list; none of anything else."""
    return value if isinstance(value, list) else []


def word(value: JsonValue) -> str:
    """A scalar as text; empty for null, maps and lists."""
    return value if isinstance(value, str) else "" if value is None or isinstance(value, dict | list) else str(value)


def table(data: bytes) -> Table:
    """The one map of a file; empty for any other file."""
    try:
        found = load(data) if data.strip() else []
    except ManifestUnreadable:
        return {}
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else {}
