"""Helm: a field that is one value. The templates of a chart are read with marks in the place of their actions, never rendered.

What a template computes is refused. Neighbours: `chart_values` knows which values file an environment uses, `locating` asks.
"""

import posixpath
import re

from pydantic import JsonValue

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.incident import Change
from suture.remediation.manifest.address import parse_path, split_address
from suture.remediation.manifest.objects import Document, documents
from suture.remediation.manifest.reading import load, read
from suture.remediation.paths import Path
from suture.remediation.source.chart_values import ChartValues, value_path
from suture.remediation.source.images import split_image
from suture.remediation.source.place import Place
from suture.remediation.source.repository import MANIFEST, Repository
from suture.remediation.source.tables import word

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_VALUE = re.compile(r"\$?\.Values((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(?:\s*\|\s*(?:quote|squote|int|toString|trim))*")
_YAML = re.compile(r"toYaml\s+(\$?\.Values(?:\.\w+)+|\.)(?:\s*\|\s*(?:nindent|indent)\s+\d+)?")
_OPENING = ("if", "with", "range", "define", "block")
_CONTROL = (*_OPENING, "end", "else", "template", "fail")
_MARK = re.compile(r"zq(\d+)qz")


def charted(tree: Repository, change: Change) -> list[Place]:
    """Where charts decide the field. Raises: EditRefused."""
    kind = split_address(change.object)[0].encode()
    places = []
    for path in sorted(tree.files):
        folder = tree.chart_of(path)
        if folder is not None and kind in tree.files[path] and path.endswith((*MANIFEST, ".tpl")):
            places += _Template(tree, folder, path).places(change)
    return places


class _Template:
    """One template of a chart, its actions replaced by marks so that it reads as YAML."""

    def __init__(self, tree: Repository, folder: str, path: str) -> None:
        self._tree, self._folder, self._path = tree, folder, path
        self._values = ChartValues(tree, folder, path)
        self._actions: list[str] = []
        self._scopes: list[str] = []
        chart = load(tree.files[tree.charts[folder]])
        self._chart = word(chart[0].get("name")) if chart and isinstance(chart[0], dict) else ""
        source = tree.files[path].decode(errors="replace")
        self._text = _ACTION.sub(lambda found: self._mark(found, source), source)

    def places(self, change: Change) -> list[Place]:
        kind, _, name = split_address(change.object)
        try:
            found = [d for d in documents(self._text.encode()) if d.kind == kind and self._named(d.name, name)]
        except ManifestUnreadable:
            found = []
            if re.search(rf"^kind:\s*{re.escape(kind)}\s*$", self._text, re.MULTILINE):
                raise EditRefused(
                    f"{self._path} is a template that cannot be read without rendering it: edit its values by hand."
                ) from None
        if found:
            self._refuse_elsewhere()
        return [self._resolved(document, change) for document in found]

    def _refuse_elsewhere(self) -> None:
        """Values that come from the chart around this one, or from an object of Flux or Argo CD, win over every file that is seen here."""
        parent, kind = posixpath.split(posixpath.dirname(self._folder))
        if kind == "charts" and parent in self._tree.charts:
            raise EditRefused(f"{self._folder} is a part of the chart {parent or 'above'}, which sets its values: edit them by hand.")
        for path, data in sorted(self._tree.files.items()):
            if re.search(rb"^kind:\s*(HelmRelease|Application|ApplicationSet|HelmChart)\b", data, re.MULTILINE) and self._names_us(data):
                raise EditRefused(f"{path} deploys the chart {self._chart} and may set its values: edit them there by hand.")

    def _names_us(self, data: bytes) -> bool:
        return any(
            re.search(rb"(?<![\w-])" + re.escape(name.encode()) + rb"(?![\w-])", data) for name in {self._chart, self._folder} if name
        )

    def _mark(self, found: re.Match[str], source: str) -> str:
        action = found[1]
        word = action.split(None, 1)[0] if action else ""
        if word in _OPENING:
            self._scopes.append(action.removeprefix("with").strip() if word == "with" else "" if word == "range" else "if")
        if word == "end" and self._scopes:
            self._scopes.pop()
        if word in _CONTROL or action.startswith("/*") or re.match(r"\$\w*\s*:?=", action):
            return ""
        self._actions.append(self._absolute(action))
        mark = f"zq{len(self._actions) - 1}qz"
        ahead, behind = source[: found.start()], source[found.end() :]
        alone = not ahead[ahead.rfind("\n") + 1 :].strip() and behind[:1] in ("", "\n", "\r")
        # On a line of its own it is the value of the key above, or a part of a map that only rendering shows.
        return mark if not alone or ahead.rstrip().endswith(":") else f"{mark}: 0"

    def _absolute(self, action: str) -> str:
        scope = next((scope for scope in reversed(self._scopes) if scope != "if"), None)
        return re.sub(r"^toYaml\s+\.(?=\s|$)", f"toYaml {scope}", action) if scope else action

    def _named(self, template: str, name: str) -> bool:
        parts = re.split(r"(zq\d+qz)", template)
        pattern = "".join(self._pattern(part) if _MARK.fullmatch(part) else re.escape(part) for part in parts)
        return re.fullmatch(pattern, name) is not None

    def _pattern(self, mark: str) -> str:
        action = self._action(mark)
        return re.escape(self._chart) if action == ".Chart.Name" else "[a-z0-9.-]+"

    def _action(self, mark: str) -> str:
        found = _MARK.fullmatch(mark)
        return self._actions[int(found[1])] if found else ""

    def _resolved(self, document: Document, change: Change) -> Place:
        """The value behind the field."""
        data, steps = self._text.encode(), parse_path(change.path)
        for depth in range(len(steps), 0, -1):
            found = _soft(data, document, steps[:depth])
            if not isinstance(found, str):
                continue
            return self._valued(found, steps[depth:], change)
        raise EditRefused(f"{self._path} is a template and does not show {change.path}: edit the chart or its values by hand.")

    def _valued(self, written: str, rest: Path, change: Change) -> Place:
        action = self._action(written)
        block = _YAML.fullmatch(action)
        if block and block[1] != ".":
            at = (*value_path(block[1].removeprefix("$").removeprefix(".Values")), *rest)
            return self._values.place(at, change)
        plain = _VALUE.fullmatch(action)
        if plain and not rest:
            return self._values.place(value_path(plain[1]), change)
        parts = written.split(":")
        if not rest and len(parts) == 2 and isinstance(change.value, str) and change.path.endswith(".image") and change.operation == "set":
            return self._image(parts, change, change.value)
        raise EditRefused(
            f"{self._path} builds {change.path} from {action or written!r}: edit the chart or its values by hand.".replace("zq", "")
        )

    def _image(self, parts: list[str], change: Change, value: str) -> Place:
        wanted, _, digest = value.partition("@")
        name, tag, _ = split_image(wanted)
        seen = split_image(word(change.before)) if isinstance(change.before, str) else None
        found = [_VALUE.fullmatch(self._action(part)) for part in parts]
        if digest or not tag or not all(found):
            raise EditRefused(f"{self._path} builds the image from more than two values: edit its values by hand.")
        paths = [value_path(each[1]) for each in found if each]
        pairs = zip(paths, (name, tag), seen[:2] if seen else (None, None), strict=True)
        changes = [(at, change.model_copy(update={"value": new, "before": old})) for at, new, old in pairs]
        places = [self._values.place(at, each) for at, each in changes if each.before != each.value]
        if seen is None or len(places) != 1:
            raise EditRefused(f"{self._path} builds the image from two values, and both would change: edit its values by hand.")
        return places[0]


def _soft(data: bytes, document: Document, steps: Path) -> JsonValue:
    try:
        return read(data, document=document.index, path=document.prefix + steps)
    except EditRefused:
        return None
