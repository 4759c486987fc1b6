"""The failures that `suture demo` shows: each a folder with a GitOps repository, a recording of what a real cluster said, and a webhook."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from suture.errors import NotFound
from suture.remediation.incident import Workload


@dataclass(frozen=True, slots=True)
class Line:
    """A changed line of the expected change, without its end."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    workload: Workload
    code: str
    """Code of the expected cause."""
    change: tuple[Line, ...]
    """The expected change, whole; empty where no change is safe and a report is the right end."""
    folder: Path

    @property
    def recording(self) -> Path:
        return self.folder / "recording"

    @property
    def webhook(self) -> bytes:
        return (self.folder / "webhook.json").read_bytes()

    @property
    def commits(self) -> Sequence[Path]:
        """Contents of the repository, oldest first; each folder lies over the one before."""
        return [folder for folder in (self.folder / "before", self.folder / "repo") if folder.is_dir()]


def names() -> list[str]:
    """Every case, the default first."""
    found = sorted(p.name for p in _root().iterdir() if (p / "case.json").is_file())
    return sorted(found, key=lambda name: name != DEFAULT)


DEFAULT = "image-tag"


def load(name: str) -> Case:
    """Raises: NotFound that lists the cases."""
    if name not in names():
        raise NotFound(f"There is no case {name!r}. There are: {', '.join(names())}.")
    folder = _root() / name
    told = json.loads((folder / "case.json").read_text())
    return Case(
        name=name,
        title=told["title"],
        workload=Workload.model_validate(told["workload"]),
        code=told["code"],
        change=tuple(Line(**line) for line in told["change"]),
        folder=folder,
    )


def _root() -> Path:
    return Path(str(files("suture.cli"))) / "demo_cases"
