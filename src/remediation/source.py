"""The source of truth: which file of a repository decides a field of an object, and the change to that file.

Plain manifests; kustomize overlays, whose images, replicas, patches and generators come before the base; Helm charts, as far as a
field is one value of `values.yaml`. Where two places are possible, or a change would reach another environment, it refuses and
says why. Pure. `manifest` does the editing, `clients.repository` brings the files and takes the change.
"""

import difflib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from suture.errors import EditRefused, ManifestUnreadable, SutureError
from suture.remediation.incident import Change, FileChange
from suture.remediation.manifest import (
    Document,
    Path,
    Step,
    agrees,
    documents,
    edit,
    edit_at,
    holds,
    immutable,
    load,
    parse_path,
    read,
    same,
    show,
    split_address,
)

Files = Mapping[str, bytes]
Table = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Place:
    """The file to change, and how; `key` tells two places in one file apart."""

    path: str
    key: str
    rewrite: Callable[[bytes], bytes]


def locate(files: Files, change: Change) -> str:
    """The path of the file where `change` belongs. Raises: EditRefused, ManifestUnreadable."""
    return _place(files, change).path


def propose_files(files: Files, changes: Sequence[Change]) -> tuple[FileChange, ...]:
    """Every file that the changes touch, by path: all of them made, or none.

    Raises: EditRefused (also where the repository holds them already), ManifestUnreadable; the message names the file.
    """
    now = dict(files)
    for change in changes:
        place = _place(now, change)
        try:
            now[place.path] = place.rewrite(now[place.path])
        except (EditRefused, ManifestUnreadable) as error:
            raise type(error)(f"{place.path}: {error}") from None
    touched = tuple(FileChange(path=path, before=files[path], after=after) for path, after in sorted(now.items()) if files[path] != after)
    if not touched:
        what = ", ".join(f"{change.path} of {change.object}" for change in changes) or "nothing"
        raise EditRefused(f"The repository holds this already ({what}): what runs is older than it. Look at the last sync.")
    return touched


def _place(files: Files, change: Change) -> Place:
    if reason := immutable(change):
        raise EditRefused(f"{change.path} of {change.object} cannot be changed: {reason}")
    split_address(change.object)
    tree = _Repository(files)
    places = tree.kustomized(change) or tree.plain(change) or _charted(tree, change)
    if len({(place.path, place.key) for place in places}) == 1:
        return places[0]
    if not places:
        raise EditRefused(f"No file of the repository defines {change.object}.{tree.complaints(change)}")
    where = ", ".join(sorted({place.path for place in places}))
    raise EditRefused(f"{change.object} is defined more than once, in {where}: which one is deployed cannot be told.")


# The repository, read.

_KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_MANIFEST = (".yaml", ".yml", ".json")
_HASH = re.compile(r"-[a-z0-9]{10}")


@dataclass(frozen=True, slots=True)
class _Layer:
    """One kustomization."""

    folder: str
    path: str
    says: Table

    def names(self, key: str) -> list[str]:
        return [item for item in _list(self.says.get(key)) if isinstance(item, str)]

    def tables(self, key: str) -> list[tuple[int, Table]]:
        return [(index, item) for index, item in enumerate(_list(self.says.get(key))) if isinstance(item, dict)]

    def resolve(self, reference: str) -> str:
        return posixpath.normpath(posixpath.join(self.folder, reference)) if "://" not in reference else ""

    def rename(self, name: str) -> str:
        return f"{_text(self.says.get('namePrefix'))}{name}{_text(self.says.get('nameSuffix'))}"


Chain = tuple[_Layer, ...]
"""From the outermost overlay to the innermost base."""


class _Repository:
    def __init__(self, files: Files) -> None:
        self.files = files
        self._documents: dict[str, list[Document]] = {}
        self._unreadable: dict[str, str] = {}
        self.charts = {posixpath.dirname(path): path for path in files if posixpath.basename(path) == "Chart.yaml"}
        self.layers = {layer.folder: layer for path in files if (layer := self._layer(path))}
        self.chains = [chain for folder in self.layers if folder not in self._referenced() for chain in self._walk((self.layers[folder],))]

    def documents(self, path: str) -> list[Document]:
        if path not in self._documents:
            try:
                self._documents[path] = documents(self.files[path])
            except ManifestUnreadable as error:
                self._documents[path], self._unreadable[path] = [], str(error)
        return self._documents[path]

    def complaints(self, change: Change) -> str:
        """Files that may define it and cannot be read."""
        kind, _, name = split_address(change.object)
        fit = [path for path in self._unreadable if self._mentions(path, kind, name)]
        return "".join(f" {path} may, but: {self._unreadable[path]}" for path in sorted(fit)[:3])

    def _mentions(self, path: str, *words: str) -> bool:
        """Spares the parser the files that cannot hold it."""
        return all(word.encode() in self.files[path] for word in words)

    def plain(self, change: Change) -> list[Place]:
        """Files that no kustomization and no chart holds."""
        kind, namespace, name = split_address(change.object)
        reached = {leaf for chain in self.chains for leaf in self._leaves(chain[-1])} | self._patch_files()
        found: list[tuple[str, Document]] = []
        for path in self.files:
            if path.endswith(_MANIFEST) and path not in reached and not self.chart_of(path) and self._mentions(path, kind, name):
                found += [(path, d) for d in self.documents(path) if (d.kind, d.name) == (kind, name) and d.namespace in (namespace, "")]
        exact = [(path, d) for path, d in found if d.namespace == namespace] or found
        return [_leaf(path, d, change) for path, d in exact]

    def chart_of(self, path: str) -> str | None:
        """The folder of the chart whose template the file is."""
        return next((folder for folder in self.charts if path.startswith(posixpath.join(folder, "templates/"))), None)

    # Kustomize.

    def kustomized(self, change: Change) -> list[Place]:
        kind, namespace, name = split_address(change.object)
        found: list[tuple[bool, Place]] = []
        for chain in self.chains:
            renames = _rename(chain, "") != ""
            for path in self._leaves(chain[-1]):
                for document in self.documents(path) if self._mentions(path, kind, "" if renames else name) else ():
                    lands = _namespace(chain) or document.namespace
                    if (document.kind, _rename(chain, document.name)) == (kind, name) and lands in (namespace, ""):
                        found.append((lands == namespace, self._decide(chain, path, document, change)))
            lands = _namespace(chain)
            if kind == "ConfigMap" and lands in (namespace, "") and (place := self._generated(chain, name, change)):
                found.append((lands == namespace, place))
        return [place for exact, place in found if exact] or [place for _, place in found]

    def _decide(self, chain: Chain, path: str, document: Document, change: Change) -> Place:
        """The overlay that sets the field, outermost first; else the base, if no other overlay shares it."""
        steps = parse_path(change.path)
        if place := self._image(chain, path, document, change):
            return place
        for depth, layer in enumerate(chain):
            names = {document.name, _rename(chain[depth:], document.name), _rename(chain[depth + 1 :], document.name)}
            if place := self._replicas(layer, names, change) or self._patch(layer, names, change):
                if change.operation == "remove":
                    raise EditRefused(
                        f"{place.path} patches {change.path}: without the patch the base's value would show. Edit it by hand."
                    )
                return place
            _refuse_replacement(layer, steps)
        others = sorted({c[0].path for c in self.chains if path in self._leaves(c[-1])} - {chain[0].path})
        if others:
            shared = ", ".join(others)
            raise EditRefused(f"{path} is shared with {shared}: a change would reach there too. Patch {change.path} in {chain[0].path}.")
        return _leaf(path, document, change)

    def _image(self, chain: Chain, path: str, document: Document, change: Change) -> Place | None:
        steps = parse_path(change.path)
        if [s.name for s in steps[-1:]] != ["image"] or len(steps) < 3 or not steps[-3].name.lower().endswith("containers"):
            return None
        written = read(self.files[path], document=document.index, path=document.prefix + steps)
        name = split_image(_text(written))[0]
        matched: list[tuple[_Layer, int, Table]] = []
        for layer in reversed(chain):
            for index, entry in layer.tables("images"):
                if _text(entry.get("name")) == name:
                    matched.append((layer, index, entry))
                    name = _text(entry.get("newName")) or name
        return _image_place(_text(written), matched, change) if matched else None

    def _replicas(self, layer: _Layer, names: set[str], change: Change) -> Place | None:
        for index, entry in layer.tables("replicas") if change.path == "spec.replicas" else ():
            if _text(entry.get("name")) in names:
                return _field(layer.path, _steps("replicas", index, "count"), change)
        return None

    def _patch(self, layer: _Layer, names: set[str], change: Change) -> Place | None:
        kind = split_address(change.object)[0]
        steps = parse_path(change.path)
        for where, content, target in self._patches(layer):
            aimed = target is not None and _aims(target, kind, names)
            try:
                found = [d for d in documents(content) if d.kind == kind and (d.name in names or aimed)]
                loaded = load(content) if target is not None and aimed else []
            except ManifestUnreadable as error:
                raise EditRefused(f"A patch in {layer.path} cannot be read, and it may set {change.path}: {error}") from None
            for operations in loaded:
                _refuse_json_patch(operations, steps, layer.path)
            for document in found:
                _refuse_place(content, document, steps, layer.path)
                if not holds(content, document=document.index, path=document.prefix + steps):
                    continue
                inner = change.model_copy(update={"object": f"{kind}/{document.namespace}/{document.name}"})
                return _file(where, inner) if isinstance(where, str) else _inline(layer.path, where, inner)
        return None

    def _patches(self, layer: _Layer) -> Iterator[tuple[str | Path, bytes, Table | None]]:
        """Where each patch stands (a file, or a place in the kustomization), its text and its target."""
        for index, entry in layer.tables("patches"):
            target = entry.get("target")
            path, text = layer.resolve(_text(entry.get("path"))), entry.get("patch")
            if isinstance(text, str):
                yield _steps("patches", index, "patch"), text.encode(), target if isinstance(target, dict) else None
            elif path in self.files:
                yield path, self.files[path], target if isinstance(target, dict) else None
        for index, text in enumerate(layer.names("patchesStrategicMerge")):
            path = layer.resolve(text)
            yield (path, self.files[path], None) if path in self.files else (_steps("patchesStrategicMerge", index), text.encode(), None)
        for _, entry in layer.tables("patchesJson6902"):
            path, target = layer.resolve(_text(entry.get("path"))), entry.get("target")
            yield path, self.files.get(path, _text(entry.get("patch")).encode()), target if isinstance(target, dict) else {}

    def _generated(self, chain: Chain, name: str, change: Change) -> Place | None:
        steps = parse_path(change.path)
        layer = chain[-1]
        for index, entry in layer.tables("configMapGenerator"):
            own = _rename(chain, _text(entry.get("name")))
            if (
                (name != own and not (name.startswith(own) and _HASH.fullmatch(name, len(own))))
                or len(steps) != 2
                or steps[0].name != "data"
            ):
                continue
            key = steps[1].name
            for at, literal in enumerate(_list(entry.get("literals"))):
                if isinstance(literal, str) and literal.startswith(f"{key}=") and change.operation == "set":
                    before = None if change.before is None else f"{key}={change.before}"
                    wanted = change.model_copy(update={"value": f"{key}={change.value}", "before": before})
                    return _field(layer.path, _steps("configMapGenerator", index, "literals", at), wanted)
            for reference in _list(entry.get("files")):
                left, _, right = _text(reference).rpartition("=")
                path = layer.resolve(right)
                if (left or posixpath.basename(right)) == key and path in self.files and change.operation == "set":
                    return Place(path, "", lambda data: _whole(data, change))
        return None

    def _layer(self, path: str) -> _Layer | None:
        if posixpath.basename(path) not in _KUSTOMIZATION:
            return None
        try:
            says = load(self.files[path])
        except ManifestUnreadable as error:
            self._unreadable[path] = str(error)
            return None
        # A Flux Kustomization has the same file name at times, and a spec: it builds nothing.
        fits = len(says) == 1 and isinstance(says[0], dict) and "spec" not in says[0]
        return _Layer(posixpath.dirname(path), path, says[0]) if fits and isinstance(says[0], dict) else None

    def _walk(self, chain: Chain) -> Iterator[Chain]:
        yield chain
        for reference in _references(chain[-1]):
            inner = self.layers.get(chain[-1].resolve(reference))
            if inner and inner not in chain:
                yield from self._walk((*chain, inner))

    def _referenced(self) -> set[str]:
        return {layer.resolve(reference) for layer in self.layers.values() for reference in _references(layer)}

    def _leaves(self, layer: _Layer) -> list[str]:
        return [path for reference in _references(layer) if (path := layer.resolve(reference)) in self.files]

    def _patch_files(self) -> set[str]:
        return {where for layer in self.layers.values() for where, _, _ in self._patches(layer) if isinstance(where, str)} | {
            layer.path for layer in self.layers.values()
        }


def _references(layer: _Layer) -> list[str]:
    return [*layer.names("resources"), *layer.names("bases"), *layer.names("components")]


def _namespace(chain: Chain) -> str:
    return next((found for layer in chain if (found := _text(layer.says.get("namespace")))), "")


def _rename(chain: Chain, name: str) -> str:
    for layer in reversed(chain):
        name = layer.rename(name)
    return name


def _aims(target: Table, kind: str, names: set[str]) -> bool:
    # kustomize anchors both as regular expressions; a pattern that Python cannot read may fit.
    try:
        fits = [re.fullmatch(_text(target.get("kind")) or ".*", kind), *(re.fullmatch(_text(target.get("name")) or ".*", n) for n in names)]
    except re.error:
        return True
    return fits[0] is not None and any(fits[1:])


def _refuse_json_patch(operations: JsonValue, steps: Path, path: str) -> None:
    keys = [step.name for step in steps if step.kind == "key"]
    for operation in operations if isinstance(operations, list) else ():
        pointer = _text(operation.get("path")) if isinstance(operation, dict) else ""
        parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:] if not re.fullmatch(r"\d+|-", part)]
        if parts and parts == keys[: len(parts)]:
            raise EditRefused(f"The JSON patch of {pointer} in {path} sets {show(steps)}: edit that patch by hand.")


def _refuse_place(content: bytes, document: Document, steps: Path, path: str) -> None:
    """A patch merges its lists by name: which of its items the third one of the cluster is cannot be told."""
    at = next((at for at, step in enumerate(steps) if step.kind == "index"), None)
    if at is not None and holds(content, document=document.index, path=document.prefix + steps[:at]):
        raise EditRefused(f"A patch in {path} touches {show(steps[:at])}: name the item by its name, not by its place.")


def _refuse_replacement(layer: _Layer, steps: Path) -> None:
    keys = ".".join(step.name for step in steps if step.kind == "key")
    for _, entry in layer.tables("replacements"):
        for target in _list(entry.get("targets")):
            for field in _list(target.get("fieldPaths")) if isinstance(target, dict) else ():
                if re.sub(r"\.?\[[^\]]*\]|\.\d+(?=\.|$)", "", _text(field)) == keys:
                    raise EditRefused(f"A replacement in {layer.path} sets {show(steps)}: change what it copies from.")


def split_image(image: str) -> tuple[str, str, str]:
    """Name, tag and digest; empty where there is none.

    >>> split_image("registry:5000/a/b:1@sha256:0")
    ('registry:5000/a/b', '1', 'sha256:0')
    """
    rest, _, digest = image.partition("@")
    name, colon, tag = rest.rpartition(":")
    return (name, tag, digest) if colon and "/" not in tag else (rest, "", digest)


_IMAGE: tuple[str, ...] = ("newName", "newTag", "digest")
_Entry = tuple[_Layer, int, Table]


def _image_place(written: str, matched: Sequence[_Entry], change: Change) -> Place:
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


def _image_now(written: str, matched: Sequence[_Entry]) -> tuple[dict[str, str], dict[str, _Entry]]:
    """The image that the overlays make of `written`, and which entry decides each of its parts."""
    now = dict(zip(_IMAGE, split_image(written), strict=True))
    source = dict.fromkeys(_IMAGE, matched[-1])
    for found in matched:
        says = found[2]
        for key in (key for key in _IMAGE if key in says):
            now[key], source[key] = _text(says[key]), found
        if "newTag" in says and "digest" not in says:
            now["digest"] = ""
        if "digest" in says:  # kustomize writes the digest in the tag's place
            now["newTag"] = ""
    return now, source


def _image_edits(data: bytes, edits: Sequence[tuple[_Entry, str, str]]) -> bytes:
    for (_, index, says), key, value in edits:
        at = _steps("images", index, key)
        if value:
            data = edit_at(data, document=0, path=at, operation="set" if key in says else "add", value=value)
        elif key in says:
            data = edit_at(data, document=0, path=at, operation="remove", value=None)
        else:
            raise EditRefused(f"The image loses its {key.removeprefix('new').lower()}, and images: cannot take the base's away.")
    return data


# The ways to change a file.


def _leaf(path: str, document: Document, change: Change) -> Place:
    inner = change.model_copy(update={"object": f"{document.kind}/{document.namespace}/{document.name}"})
    return Place(path, f"{document.index}{show(document.prefix)}", lambda data: edit(data, inner))


def _file(path: str, change: Change) -> Place:
    return Place(path, change.object, lambda data: edit(data, change))


def _field(path: str, at: Path, change: Change) -> Place:
    return Place(
        path,
        show(at),
        lambda data: edit_at(data, document=0, path=at, operation=change.operation, value=change.value, before=change.before),
    )


def _inline(path: str, at: Path, change: Change) -> Place:
    def rewrite(data: bytes) -> bytes:
        inner = edit(_text(read(data, document=0, path=at)).encode(), change)
        return edit_at(data, document=0, path=at, operation="set", value=inner.decode())

    return Place(path, show(at), rewrite)


def _whole(data: bytes, change: Change) -> bytes:
    if not isinstance(change.value, str):
        raise EditRefused(f"{change.path} is a whole file: its new text is needed.")
    if change.before is not None and change.before not in (change.value, data.decode(errors="replace")) and data != change.value.encode():
        raise EditRefused("The file is not what the evidence shows: diagnose again, it was changed since.")
    return change.value.encode()


def _steps(*parts: str | int) -> Path:
    return tuple(Step("key", part) if isinstance(part, str) else Step("index", number=part) for part in parts)


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else "" if value is None or isinstance(value, dict | list) else str(value)


# Helm: a field that is one value.

_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}", re.DOTALL)
_VALUE = re.compile(r"\$?\.Values((?:\.[A-Za-z_][A-Za-z0-9_]*)+)(?:\s*\|\s*(?:quote|squote|int|toString|trim))*")
_YAML = re.compile(r"toYaml\s+(\$?\.Values(?:\.\w+)+|\.)(?:\s*\|\s*(?:nindent|indent)\s+\d+)?")
_OPENING = ("if", "with", "range", "define", "block")
_CONTROL = (*_OPENING, "end", "else", "template", "fail")
_MARK = re.compile(r"zq(\d+)qz")


def _charted(tree: _Repository, change: Change) -> list[Place]:
    kind = split_address(change.object)[0].encode()
    places = []
    for path in sorted(tree.files):
        folder = tree.chart_of(path)
        if folder is not None and kind in tree.files[path] and path.endswith((*_MANIFEST, ".tpl")):
            places += _Template(tree, folder, path).places(change)
    return places


class _Template:
    """One template of a chart, its actions replaced by marks so that it reads as YAML."""

    def __init__(self, tree: _Repository, folder: str, path: str) -> None:
        self._tree, self._folder, self._path = tree, folder, path
        self._actions: list[str] = []
        self._scopes: list[str] = []
        chart = load(tree.files[tree.charts[folder]])
        self._chart = _text(chart[0].get("name")) if chart and isinstance(chart[0], dict) else ""
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
            at = (*_value_path(block[1].removeprefix("$").removeprefix(".Values")), *rest)
            return self._set(at, change)
        plain = _VALUE.fullmatch(action)
        if plain and not rest:
            return self._set(_value_path(plain[1]), change)
        parts = written.split(":")
        if not rest and len(parts) == 2 and isinstance(change.value, str) and change.path.endswith(".image") and change.operation == "set":
            return self._image(parts, change, change.value)
        raise EditRefused(
            f"{self._path} builds {change.path} from {action or written!r}: edit the chart or its values by hand.".replace("zq", "")
        )

    def _image(self, parts: list[str], change: Change, value: str) -> Place:
        wanted, _, digest = value.partition("@")
        name, tag, _ = split_image(wanted)
        seen = split_image(_text(change.before)) if isinstance(change.before, str) else None
        found = [_VALUE.fullmatch(self._action(part)) for part in parts]
        if digest or not tag or not all(found):
            raise EditRefused(f"{self._path} builds the image from more than two values: edit its values by hand.")
        paths = [_value_path(each[1]) for each in found if each]
        pairs = zip(paths, (name, tag), seen[:2] if seen else (None, None), strict=True)
        changes = [(at, change.model_copy(update={"value": new, "before": old})) for at, new, old in pairs]
        places = [self._set(at, each) for at, each in changes if each.before != each.value]
        if seen is None or len(places) != 1:
            raise EditRefused(f"{self._path} builds the image from two values, and both would change: edit its values by hand.")
        return places[0]

    def _set(self, at: Path, change: Change) -> Place:
        self._refuse_reuse(at)
        default = posixpath.join(self._folder, "values.yaml")
        files = self._environments(default)
        fit = [path for path in files if self._fits(path, default, at, change)]
        if files and len(fit) != 1:
            raise EditRefused(
                f"{show(at)} is a value of {self._folder}, and which of {', '.join(files)} this environment uses cannot be told."
            )
        own = fit[0] if fit else default
        if default not in self._tree.files and not fit:
            raise EditRefused(f"{self._folder} has no values file in this repository: {show(at)} is set elsewhere.")
        if own != default and not _holds(self._tree.files[own], at) and not self._empty(default, at):
            # Nobody but this environment uses the chart: its default is where the value stands.
            own = default if len(files) == 1 else own
        operation = change.operation if change.operation == "remove" or _holds(self._tree.files[own], at) else "add"
        before = change.before if operation != "add" else None
        return Place(own, show(at), lambda data: edit_at(data, document=0, path=at, operation=operation, value=change.value, before=before))

    def _refuse_reuse(self, at: Path) -> None:
        """A value that other templates read too would change more than the field."""
        name = re.compile(re.escape(".Values." + ".".join(s.name for s in at if s.kind == "key").split(".")[0]) + r"\b")
        exact = ".Values." + ".".join(step.name for step in at if step.kind == "key")
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
        known = _table(self._tree.files.get(default, b""))
        inside = posixpath.join(self._folder, "")
        found = []
        for path, data in sorted(self._tree.files.items()):
            mine = path.startswith(inside) and path != default and re.match(r"values[-.].*ya?ml", path.removeprefix(inside))
            beside = not any(path.startswith(posixpath.join(folder, "")) for folder in self._tree.charts) and path.endswith(
                (".yaml", ".yml")
            )
            table = _table(data) if mine or beside else {}
            if table and "kind" not in table and "apiVersion" not in table and (table.keys() & known.keys()):
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


def _soft(data: bytes, document: Document, steps: Path) -> JsonValue:
    try:
        return read(data, document=document.index, path=document.prefix + steps)
    except EditRefused:
        return None


def _holds(data: bytes, at: Path) -> bool:
    try:
        return holds(data, document=0, path=at)
    except (SutureError, IndexError):
        return False


def _value_path(text: str) -> Path:
    return tuple(Step("key", name) for name in text.split(".") if name)


def _table(data: bytes) -> Table:
    try:
        found = load(data) if data.strip() else []
    except ManifestUnreadable:
        return {}
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else {}


def _utf8(data: bytes) -> str:
    return data.decode(errors="replace")


# The diff.


def unified_diff(files: Sequence[FileChange]) -> str:
    """The change as git prints it and `git apply` takes it; line ends and a missing last one are part of it."""
    return "".join(_file_diff(each) for each in files if each.before != each.after)


def _file_diff(change: FileChange) -> str:
    old, new = _lines(change.before), _lines(change.after)
    names = [_quoted(f"{side}/{change.path}") for side in "ab"]
    blank = "\t" if " " in change.path and not names[0].startswith('"') else ""
    head = f"diff --git {names[0]} {names[1]}\n--- {names[0]}{blank}\n+++ {names[1]}{blank}\n"
    return head + "".join(_hunk(group, old, new) for group in _Matcher(old, new).get_grouped_opcodes(3))


class _Matcher(difflib.SequenceMatcher[str]):
    """Without the guess that frequent lines are noise; what both sides begin and end with is not searched."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        self._sides = old, new
        self._head = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        limit = min(len(old), len(new)) - self._head
        self._tail = next((at for at in range(limit) if old[-1 - at] != new[-1 - at]), limit)
        super().__init__(None, old[self._head : len(old) - self._tail], new[self._head : len(new) - self._tail], autojunk=False)

    def get_opcodes(self) -> list[tuple[str, int, int, int, int]]:  # type: ignore[override]
        head, tail, (old, new) = self._head, self._tail, self._sides
        middle = [(tag, i + head, j + head, k + head, m + head) for tag, i, j, k, m in super().get_opcodes()]
        first = [("equal", 0, head, 0, head)] if head else []
        last = [("equal", len(old) - tail, len(old), len(new) - tail, len(new))] if tail else []
        return [*first, *middle, *last]


def _lines(data: bytes) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", data.decode(errors="replace"))


def _hunk(group: Sequence[tuple[str, int, int, int, int]], old: list[str], new: list[str]) -> str:
    first, last = group[0], group[-1]
    text = f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"
    for tag, i, j, k, m in group:
        if tag == "equal":
            text += "".join(map(_line, [" "] * (j - i), old[i:j]))
        else:
            text += "".join(map(_line, ["-"] * (j - i), old[i:j])) + "".join(map(_line, ["+"] * (m - k), new[k:m]))
    return text


def _range(start: int, stop: int) -> str:
    length = stop - start
    first = start + 1 if length else start
    return str(first) if length == 1 else f"{first},{length}"


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _quoted(path: str) -> str:
    if re.fullmatch(r'[^"\\\x00-\x1f\x7f-\U0010ffff]*', path):
        return path
    octal = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in path.encode())
    return '"' + "".join(octal) + '"'
