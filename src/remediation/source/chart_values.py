"""The values of a chart: which values file an environment uses, and the one place in it.

A value that other templates read too is not changed, nor one whose environment cannot be told. Neighbour: `helm` finds the value.
"""

import posixpath
import re

from suture.errors import EditRefused, SutureError
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path, split_address
from suture.remediation.manifest.agreement import agrees
from suture.remediation.manifest.editing import edit_at
from suture.remediation.manifest.immutability import fixed
from suture.remediation.manifest.reading import holds, read
from suture.remediation.manifest.values import same
from suture.remediation.paths import Field, Path, fields, join
from suture.remediation.source.place import Place
from suture.remediation.source.repository import Repository
from suture.remediation.source.tables import table


class ChartValues:
    """The values that one template of a chart is rendered with."""

    def __init__(self, tree: Repository, folder: str, template: str) -> None:
        self._tree, self._folder, self._path = tree, folder, template

    def place(self, at: Path, change: Change) -> Place:
        """Where `change`, made to the value at `at`, belongs. Raises: EditRefused."""
        self._refuse_reuse(at)
        default = posixpath.join(self._folder, "values.yaml")
        files = self._environments(default)
        fit = [path for path in files if self._fits(path, default, at, change)]
        if files and len(fit) != 1:
            raise EditRefused(
                f"{join(*at)} is a value of {self._folder}, and which of {', '.join(files)} this environment uses cannot be told."
            )
        own = fit[0] if fit else default
        if default not in self._tree.files and not fit:
            raise EditRefused(f"{self._folder} has no values file in this repository: {join(*at)} is set elsewhere.")
        if own != default and not _holds(self._tree.files[own], at) and not self._empty(default, at):
            # Nobody but this environment uses the chart: its default is where the value stands.
            own = default if len(files) == 1 else own
        operation = change.operation if change.operation == "remove" or _holds(self._tree.files[own], at) else "add"
        if reason := fixed(split_address(change.object)[0], operation, parse_path(change.path)):
            raise EditRefused(f"{change.path} of {change.object} cannot be changed: {reason}")
        before = change.before if operation != "add" else None
        return Place(
            own, join(*at), lambda data: edit_at(data, document=0, path=at, operation=operation, value=change.value, before=before)
        )

    def _refuse_reuse(self, at: Path) -> None:
        """A value that other templates read too would change more than the field."""
        name = re.compile(re.escape(".Values." + fields(at)[0]) + r"\b")
        exact = ".Values." + ".".join(fields(at))
        users = [
            p
            for p in self._tree.files
            if p != self._path and self._tree.chart_of(p) == self._folder and name.search(_utf8(self._tree.files[p]))
        ]
        used = [p for p in users if re.search(re.escape(exact) + r"(?![\w.])", _utf8(self._tree.files[p]))]
        if used:
            raise EditRefused(f"{exact} is read by {', '.join(sorted(used))} too: a change would reach there. Edit the values by hand.")

    def _environments(self, default: str) -> list[str]:
        """Values files beside the chart's own: no kind, and a key that the chart knows."""
        known = table(self._tree.files.get(default, b""))
        inside = posixpath.join(self._folder, "")
        found = []
        for path, data in sorted(self._tree.files.items()):
            mine = path.startswith(inside) and path != default and re.match(r"values[-.].*ya?ml", path.removeprefix(inside))
            beside = not any(path.startswith(posixpath.join(folder, "")) for folder in self._tree.charts) and path.endswith(
                (".yaml", ".yml")
            )
            says = table(data) if mine or beside else {}
            if says and "kind" not in says and "apiVersion" not in says and (says.keys() & known.keys()):
                found.append(path)
        return found

    def _fits(self, path: str, default: str, at: Path, change: Change) -> bool:
        if change.before is None:
            return True
        files = self._tree.files
        source = path if _holds(files[path], at) else default
        seen = read(files[source], document=0, path=at) if source in files and _holds(files[source], at) else None
        return agrees(seen, change.before, at) or same(seen, change.value)

    def _empty(self, default: str, at: Path) -> bool:
        data = self._tree.files.get(default, b"")
        return not data or not _holds(data, at) or read(data, document=0, path=at) in (None, "", [], {})


def _holds(data: bytes, at: Path) -> bool:
    try:
        return holds(data, document=0, path=at)
    except (SutureError, IndexError):
        return False


def value_path(text: str) -> Path:
    """The path of `.a.b`, as templates write it."""
    return tuple(Field(name) for name in text.split(".") if name)


def _utf8(data: bytes) -> str:
    return data.decode(errors="replace")
