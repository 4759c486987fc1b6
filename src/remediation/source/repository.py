"""The repository: its files, each read once, and what could not be read. Which of them decides is asked elsewhere."""

import posixpath
from collections.abc import Mapping

from pydantic import JsonValue

from suture.errors import ManifestUnreadable
from suture.remediation.incident import Change
from suture.remediation.manifest.address import split_address
from suture.remediation.manifest.objects import Document, documents
from suture.remediation.manifest.reading import load

Files = Mapping[str, bytes]
"""By path in the repository."""
MANIFEST = (".yaml", ".yml", ".json")
"""How the name of a manifest ends."""


class Repository:
    """The files of one commit."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._documents: dict[str, list[Document]] = {}
        self._unreadable: dict[str, str] = {}
        self.charts = {posixpath.dirname(path): path for path in files if posixpath.basename(path) == "Chart.yaml"}

    def documents(self, path: str) -> list[Document]:
        """The objects of a file; none where it cannot be read."""
        if path not in self._documents:
            try:
                self._documents[path] = documents(self.files[path])
            except ManifestUnreadable as error:
                self._documents[path], self._unreadable[path] = [], str(error)
        return self._documents[path]

    def load(self, path: str) -> list[JsonValue]:
        """The values of a file; none where it cannot be read."""
        try:
            return load(self.files[path])
        except ManifestUnreadable as error:
            self._unreadable[path] = str(error)
            return []

    def complaints(self, change: Change) -> str:
        """Files that may define it and cannot be read."""
        kind, _, name = split_address(change.object)
        fit = [path for path in self._unreadable if self.mentions(path, kind, name)]
        return "".join(f" {path} may, but: {self._unreadable[path]}" for path in sorted(fit)[:3])

    def mentions(self, path: str, *words: str) -> bool:
        """Spares the parser the files that cannot hold it."""
        return all(word.encode() in self.files[path] for word in words)

    def chart_of(self, path: str) -> str | None:
        """The folder of the chart whose template the file is."""
        return next((folder for folder in self.charts if path.startswith(posixpath.join(folder, "templates/"))), None)
