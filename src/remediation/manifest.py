"""Byte surgery on a manifest: one typed change to one object, and not a byte beside it.

A parser finds the span, the bytes are spliced, the result is parsed again and compared with what was meant, node by node.
What cannot be edited safely is refused with the reason. Pure: which file holds the object is `source`'s question, whether
the change is wise that of the causes. Aliases are never expanded while comparing, so their number cannot hurt.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import JsonValue
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from suture.errors import EditRefused, ManifestUnreadable
from suture.remediation.incident import Change

LIMIT = 1 << 19
"""Largest file in bytes that is parsed: the pure parser reads about 150 kB in a second, and an edit reads a file twice."""
DEPTH = 100
"""Deepest nesting: Kubernetes' own objects stay below 30."""
NODES = 200_000
"""Most nodes in a file, and most values that one read of an aliased tree may yield."""

Operation = Literal["set", "add", "remove"]


class Step(NamedTuple):
    """One part of a path: a key, a list item by index or by a field's value, or `[+]`, a new item."""

    kind: Literal["key", "index", "match", "append"]
    name: str = ""
    value: str = ""
    number: int = -1


Path = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """One Kubernetes object in a file: its document, and where it stands in it (the items of a List are objects)."""

    index: int
    prefix: Path
    api: str
    kind: str
    namespace: str
    name: str
    line: int


def edit(data: bytes, change: Change) -> bytes:
    """The file with `change` made, every other byte as it was; the same bytes when the change stands there already.

    Raises: ManifestUnreadable, EditRefused.
    """
    document = find(data, change.object)
    reason = immutable(change)
    if reason:
        raise EditRefused(f"{change.path} of {change.object} cannot be changed: {reason}")
    wanted = _Edit(change.operation, document.prefix + parse_path(change.path), change.value)

    def allow(each: _Edit) -> None:
        if reason := _immutable(document.kind, each.operation, each.path[len(document.prefix) :]):
            raise EditRefused(f"{show(each.path)} of {change.object} cannot be changed: {reason}")

    return _edited(data, document.index, wanted, before=change.before, allow=allow)


def find(data: bytes, address: str) -> Document:
    """The one object in the file that `address` (Kind/namespace/name) names; one without a namespace fits any.

    Raises: ManifestUnreadable, EditRefused.
    """
    kind, namespace, name = split_address(address)
    named = [d for d in documents(data) if (d.kind, d.name) == (kind, name)]
    fit = [d for d in named if d.namespace == namespace] or [d for d in named if not d.namespace]
    if len(fit) == 1:
        return fit[0]
    if not fit:
        raise EditRefused(f"{address} is not defined in this file.")
    lines = ", ".join(str(d.line) for d in fit)
    raise EditRefused(f"{address} is defined {len(fit)} times in this file, at lines {lines}: remove the copies that are not meant.")


def split_address(address: str) -> tuple[str, str, str]:
    """Kind, namespace and name of `Kind/namespace/name`."""
    parts = address.split("/")
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise EditRefused(f"{address!r} names no object: write Kind/namespace/name.")
    return parts[0], parts[1], parts[2]


def documents(data: bytes) -> list[Document]:
    """Every object of the file, in order; what has no kind and name is left out. Raises: ManifestUnreadable."""
    found = []
    for index, root in enumerate(_parse(_decode(data)).roots):
        for prefix, node in _objects(root):
            api, kind = _scalar_of(node, "apiVersion"), _scalar_of(node, "kind")
            metadata = _deref(_own(node, "metadata"))
            name = _scalar_of(metadata, "name") if metadata else ""
            if kind:
                namespace = _scalar_of(metadata, "namespace") if metadata else ""
                found.append(Document(index, prefix, api, kind, namespace, name, node.line))
    return found


def load(data: bytes) -> list[JsonValue]:
    """The values of every document, as the API server would read them. Raises: ManifestUnreadable."""
    return [_value(root) for root in _parse(_decode(data)).roots]


def read(data: bytes, *, document: int, path: Path) -> JsonValue:
    """What stands at `path`; None where nothing does."""
    return _read(_parse(_decode(data)).roots[document], path)


def holds(data: bytes, *, document: int, path: Path) -> bool:
    """Whether something stands at `path`, inherited values (`<<`) included."""
    return _walk(_parse(_decode(data)).roots[document], path)[1] == ()


def edit_at(data: bytes, *, document: int, path: Path, operation: Operation, value: JsonValue, before: JsonValue = None) -> bytes:
    """`edit`, for a place that the caller has found: the document's number and the path from its root."""
    return _edited(data, document, _Edit(operation, path, value), before=before)


def _edited(data: bytes, document: int, wanted: "_Edit", *, before: JsonValue, allow: "Callable[[_Edit], None] | None" = None) -> bytes:
    text = _decode(data)
    bom = text[:1] == "\ufeff"
    text = text.removeprefix("\ufeff")
    tree = _parse(text)
    edits = _plan(tree.roots[document], wanted, before)
    for each in edits:
        if allow is not None:
            allow(each)
        text, tree = _apply(text, tree, document, each)
    if wanted.operation == "set" and edits and not same(_read(tree.roots[document], wanted.path), wanted.value):
        raise EditRefused(f"{show(wanted.path)} cannot be written so that it reads as {_quote(wanted.value)}.")
    return ("\ufeff" * bom + text).encode()


# Paths.

_TOKEN = re.compile(
    r"""\[(?P<append>\+)\] | \[(?P<index>\d+)\] | \["(?P<quoted>(?:[^"\\]|\\.)*)"\]
      | \[(?P<field>[^=\[\]"]+)=(?:"(?P<exact>(?:[^"\\]|\\.)*)"|(?P<text>[^\]]*))\] | \.?(?P<key>(?:\\.|[^.\[\]\\])+)""",
    re.VERBOSE,
)


def parse_path(text: str) -> Path:
    r"""The steps of `a.b[name=x].c[3]["d.e/f"][+]`; a dot in a key may also be written `\.`.

    >>> [step.name for step in parse_path('metadata.annotations["a.b/c"]')]
    ['metadata', 'annotations', 'a.b/c']
    """
    steps, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found or (at == 0 and text[0] == "."):
            raise EditRefused(f"{text!r} is no path: it cannot be read from character {at + 1} on.")
        steps.append(_step(found))
        at = found.end()
    if not steps or any(step.kind == "append" for step in steps[:-1]):
        raise EditRefused(f"{text!r} is no path: it names {'nothing' if not steps else '[+] before its end'}.")
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["append"]:
        return Step("append")
    if found["index"]:
        return Step("index", number=int(found["index"]))
    if found["field"]:
        return Step("match", found["field"], found["text"] if found["exact"] is None else re.sub(r"\\(.)", r"\1", found["exact"]))
    return Step("key", re.sub(r"\\(.)", r"\1", found["quoted"] if found["quoted"] is not None else found["key"]))


def show(path: Path) -> str:
    """The path as text, for messages."""
    text = ""
    for step in path:
        match step.kind:
            case "key":
                plain = re.fullmatch(r"[^.\[\]\\\"]+", step.name)
                text += (("." if text else "") + step.name) if plain else f'["{step.name}"]'
            case "index":
                text += f"[{step.number}]"
            case "match":
                text += f"[{step.name}={step.value}]"
            case "append":
                text += "[+]"
    return text


# Reading: a tree of spans.


@dataclass(slots=True, eq=False)
class _Node:
    kind: Literal["scalar", "map", "seq", "alias"]
    start: int  # of the body: anchor and tag stand before it
    end: int
    line: int
    outer: int = 0  # where anchor and tag begin
    flow: bool = False
    style: str = ""  # quote or block indicator of a scalar; "" is plain
    text: str = ""
    tag: str = ""
    anchor: str = ""
    ordinal: int = 0  # which of the definitions of that anchor
    target: "_Node | None" = None
    entries: list[tuple["_Node", "_Node"]] = field(default_factory=list)
    items: list["_Node"] = field(default_factory=list)


class _Tree(NamedTuple):
    roots: list[_Node]
    anchors: dict[str, list[_Node]]
    aliases: list[_Node]


_TEMPLATE = re.compile(r"\{\{|\{%")
_TAGS = {"", *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "binary"))}
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:[ \t]+|$))*(?:[&!]\S*(?=\s|$))?")


def _decode(data: bytes) -> str:
    if len(data) > LIMIT:
        raise ManifestUnreadable(f"The file has {len(data):,} bytes and the limit is {LIMIT:,}: split it into one file an object.")
    if b"\0" in data:
        raise ManifestUnreadable("The file holds NUL bytes: it is no UTF-8 text. Save it as UTF-8.")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestUnreadable(f"Line {line} is not UTF-8: save the file as UTF-8.") from None


@lru_cache(maxsize=8)  # a search asks one file several things, and an edit begins where the search ended; trees are only read
def _parse(text: str) -> _Tree:
    shadow = text.removeprefix("\ufeff")
    # The parser refuses a tab between tokens, which YAML allows: a shadow of equal length holds a blank in its place.
    for _ in range(64):
        try:
            return _build(shadow)
        except MarkedYAMLError as error:
            mark = error.problem_mark
            at = mark.index if mark is not None else -1
            if not _separating_tab(shadow, at):
                raise _unreadable(text, error) from None
            shadow = shadow[:at] + " " + shadow[at + 1 :]
        except YAMLError as error:
            raise _unreadable(text, error) from None
    raise ManifestUnreadable("More than 64 values follow a tab: replace the tabs with blanks.")


def _separating_tab(text: str, at: int) -> bool:
    return 0 <= at < len(text) and text[at] == "\t" and text[text.rfind("\n", 0, at) + 1 : at].strip() != ""


def _unreadable(text: str, error: YAMLError) -> ManifestUnreadable:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"Line {mark.line + 1}" if mark is not None else "The file"
    if _TEMPLATE.search(text):
        return ManifestUnreadable(f"{where} is a template, not YAML: the change belongs into the values that it is rendered with.")
    problem = getattr(error, "problem", None) or "holds a character that YAML does not allow"
    return ManifestUnreadable(f"{where} is not YAML that can be read: {problem}.")


def _build(text: str) -> _Tree:
    tree = _Tree([], {}, [])
    stack: list[_Node] = []
    flat: list[list[_Node]] = []
    for count, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
        if count > NODES or len(stack) > DEPTH:
            raise ManifestUnreadable(f"The file is nested deeper than {DEPTH} or has more than {NODES:,} nodes: split it.")
        if isinstance(event, DocumentStartEvent):
            flat.append([])
        elif isinstance(event, CollectionStartEvent):
            stack.append(_collection(text, event, tree))
            flat.append([])
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            node, children = stack.pop(), flat.pop()
            _close(text, node, children, event.end_mark.index)
            flat[-1].append(node)
        elif isinstance(event, ScalarEvent | AliasEvent):
            flat[-1].append(_leaf(text, event, tree))
        if len(flat) == 1 and flat[0]:
            tree.roots.append(flat.pop()[0])
    return tree


def _collection(text: str, event: Any, tree: _Tree) -> _Node:
    kind: Literal["map", "seq"] = "map" if isinstance(event, MappingStartEvent) else "seq"
    node = _node(kind, event, text)
    node.flow = bool(event.flow_style)
    return _register(node, event, tree)


def _leaf(text: str, event: Any, tree: _Tree) -> _Node:
    if isinstance(event, AliasEvent):
        name = str(event.anchor)
        node = _node("alias", event, text)
        if name not in tree.anchors:
            raise ManifestUnreadable(f"Line {node.line} uses *{name}, which nothing before it defines.")
        node.text, node.ordinal, node.target = name, len(tree.anchors[name]), tree.anchors[name][-1]
        tree.aliases.append(node)
        return node
    node = _node("scalar", event, text)
    node.text, node.style = event.value, event.style or ""
    if node.style in ("|", ">"):
        node.end = _block_end(text, node)
    return _register(node, event, tree)


def _node(kind: Literal["scalar", "map", "seq", "alias"], event: Any, text: str) -> _Node:
    outer, end = event.start_mark.index, event.end_mark.index
    start = outer
    if kind != "alias" and (event.anchor or event.tag):
        found = _PROPERTIES.match(text, outer)
        start = min(found.end(), max(end, outer)) if found and kind == "scalar" else (found.end() if found else outer)
    return _Node(kind, start, end, event.start_mark.line + 1, outer)


def _register(node: _Node, event: Any, tree: _Tree) -> _Node:
    node.tag = str(event.tag or "")
    if node.tag not in _TAGS:
        raise ManifestUnreadable(f"Line {node.line} has the tag {node.tag}: only plain YAML is edited. Remove the tag.")
    if event.anchor:
        node.anchor = str(event.anchor)
        tree.anchors.setdefault(node.anchor, []).append(node)
        node.ordinal = len(tree.anchors[node.anchor])
    return node


def _close(text: str, node: _Node, children: list[_Node], end: int) -> None:
    _settle(text, node, children)
    node.end = end if node.flow else (children[-1].end if children else node.start)
    if not node.flow and children:
        node.start = max(node.start, children[0].outer) if node.kind == "map" else node.start
    if node.kind == "seq":
        node.items = children
        return
    node.entries = list(zip(children[::2], children[1::2], strict=True))
    seen: dict[str, int] = {}
    for key, _ in node.entries:
        if key.kind != "scalar":
            raise ManifestUnreadable(f"Line {key.line} has a key that is no plain word: a template, or YAML that Kubernetes does not read.")
        if key.text in seen:
            raise ManifestUnreadable(f"Line {key.line} repeats the key {key.text!r} of line {seen[key.text]}: remove one of them.")
        seen[key.text] = key.line


def _settle(text: str, node: _Node, children: list[_Node]) -> None:
    """Empty values are marked where the next token begins, behind comments: they stand right after their colon."""
    for key, value in zip(children[::2], children[1::2], strict=True) if node.kind == "map" else ():
        colon = text.find(":", key.end, value.start)
        if value.kind == "scalar" and value.outer == value.end and not value.style and colon >= 0:
            value.outer = value.start = value.end = colon + 1


def _block_end(text: str, node: _Node) -> int:
    header = text[node.start : text.find("\n", node.start) % (len(text) + 1)]
    if "+" in header.split("#")[0]:
        return node.end
    kept = len(text[: node.end].rstrip())
    line = re.compile(r"[^\r\n]*").match(text, kept)
    return min(line.end(), node.end) if line else kept


def _objects(root: _Node) -> Iterator[tuple[Path, _Node]]:
    items = _own(root, "items") if root.kind == "map" else None
    if items is not None and items.kind == "seq" and _scalar_of(root, "kind").endswith("List"):
        for index, item in enumerate(items.items):
            if item.kind == "map":
                yield (Step("key", "items"), Step("index", number=index)), item
    elif root.kind == "map":
        yield (), root


def _own(node: _Node | None, key: str) -> _Node | None:
    return next((value for name, value in node.entries if name.text == key), None) if node and node.kind == "map" else None


def _deref(node: _Node | None) -> _Node | None:
    return node.target if node is not None and node.kind == "alias" else node


def _scalar_of(node: _Node, key: str) -> str:
    found = _deref(_own(node, key))
    return found.text if found is not None and found.kind == "scalar" and _typed(found) is not None else ""


# Values: what a scalar means to the API server, which reads YAML 1.1 as Go does.

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOL = {
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"), False),
}
_INT = re.compile(r"([-+]?)(?:0b([01_]+)|0o?([0-7_]+)|0x([0-9a-fA-F_]+)|(0|[1-9][0-9_]*))")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9]+)?")
_ODD = re.compile(
    r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|<<|="
)
"""Read as another type by some reader: infinity, base 60, dates, the merge key. Text to us; quoted when written."""


def _typed(node: _Node) -> JsonValue:
    if node.style or node.tag.endswith((":str", ":binary")):
        return node.text
    return _resolve(node.text)


def _resolve(text: str) -> JsonValue:
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if found := _INT.fullmatch(text):
        sign, *digits = found.groups()
        base, number = next((b, d) for b, d in zip((2, 8, 16, 10), digits, strict=True) if d is not None)
        bare = number.replace("_", "")
        return int(sign + bare, base) if bare else text
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


def _value(node: _Node, budget: list[int] | None = None) -> JsonValue:
    budget = [NODES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0:
        raise ManifestUnreadable(f"The aliases at line {node.line} stand for more than {NODES:,} values: write them out.")
    match node.kind:
        case "alias":
            return _value(node.target, budget) if node.target else None
        case "scalar":
            return _typed(node)
        case "seq":
            return [_value(item, budget) for item in node.items]
        case "map":
            own = {key.text: _value(value, budget) for key, value in node.entries if not _is_merge(key)}
            return {**{k: _value(v, budget) for k, v in _merged(node).items()}, **own}


def _is_merge(key: _Node) -> bool:
    return key.text == "<<" and not key.style


def _merged(node: _Node, known: dict[int, dict[str, _Node]] | None = None) -> dict[str, _Node]:
    """What the node inherits by `<<`; each source is looked at once, however often it is merged."""
    known = {} if known is None else known
    if id(node) not in known:
        found: dict[str, _Node] = {}
        for source in [value for key, value in node.entries if _is_merge(key)]:
            for target in map(_deref, source.items if source.kind == "seq" else [source]):
                if target is not None and target.kind == "map":
                    own = {key.text: value for key, value in target.entries if not _is_merge(key)}
                    found = {**_merged(target, known), **own, **found}
        known[id(node)] = found
    return known[id(node)]


def same(one: object, other: object) -> bool:
    """Equal in value and type: 1 is neither True nor 1.0 nor "1"."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or one != one)  # noqa: PLR0124 (NaN alone differs from itself)


_QUANTITY = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([-+]?[0-9]{1,3}))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MEASURED = {
    "limits",
    "requests",
    "hard",
    "capacity",
    "min",
    "max",
    "default",
    "defaultRequest",
    "memory",
    "cpu",
    "storage",
    "ephemeral-storage",
}
_MEASURED |= {"sizeLimit", "divisor", "maxLimitRequestRatio", "averageValue", "overhead"}


def quantity(value: object) -> Decimal | None:
    """A Kubernetes quantity as a number; None when it is none.

    >>> quantity("0.5Gi") == quantity("512Mi")
    True
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    found = _QUANTITY.fullmatch(str(value))
    if not found:
        return None
    number, unit, exponent = Decimal(found[1]), found[2] or "", found[3]
    if exponent:
        return number.scaleb(int(exponent))
    if unit.endswith("i"):
        return number * Decimal(1024) ** ("KMGTPE".index(unit[0]) + 1)
    return number.scaleb(_DECIMAL.get(unit, 0))


def agrees(file: JsonValue, cluster: JsonValue, path: Path, *, measured: bool = False) -> bool:
    """Whether the file's value is what the evidence shows: quantities compare as numbers where the path leads to quantities."""
    # The cluster's copy also shows defaults: a map in the file may hold less than the evidence, never something else.
    measured = measured or any(step.name in _MEASURED for step in path if step.kind == "key")
    if isinstance(file, dict) and isinstance(cluster, dict):
        return all(key in cluster and agrees(v, cluster[key], (), measured=measured or key in _MEASURED) for key, v in file.items())
    if isinstance(file, list) and isinstance(cluster, list):
        return len(file) == len(cluster) and all(agrees(f, c, (), measured=measured) for f, c in zip(file, cluster, strict=True))
    if measured and quantity(file) is not None:
        return quantity(file) == quantity(cluster)
    return same(file, cluster)


_DEFAULTS: dict[str, JsonValue] = {
    "replicas": 1, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, "initialDelaySeconds": 0,
    "terminationGracePeriodSeconds": 30, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "backoffLimit": 6, "scheme": "HTTP",
    "protocol": "TCP", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "optional": False,
}  # fmt: skip
"""What the API server fills in: the evidence shows it although the file does not."""


# What the API server would refuse afterwards.

_SELECTED = "a workload's selector is immutable; a new selector needs a new object."
_IMMUTABLE: dict[str, dict[str, str]] = {
    "StatefulSet": {
        "spec.volumeClaimTemplates": "a StatefulSet's volumeClaimTemplates are immutable; delete it with --cascade=orphan, create it anew.",
        "spec.serviceName": "a StatefulSet's serviceName is immutable; it needs to be deleted with --cascade=orphan and created anew.",
        "spec.podManagementPolicy": "a StatefulSet's podManagementPolicy is immutable; it needs to be deleted and created anew.",
        "spec.selector": _SELECTED,
    },
    "Deployment": {"spec.selector": _SELECTED},
    "ReplicaSet": {"spec.selector": _SELECTED},
    "DaemonSet": {"spec.selector": _SELECTED},
    "Job": {
        "spec.template": "a Job's template is immutable; delete the Job, or give the corrected one another name.",
        "spec.selector": _SELECTED,
        "spec.completionMode": "a Job's completionMode is immutable; delete the Job and create it anew.",
    },
    "PersistentVolumeClaim": {
        "spec.accessModes": "a claim's accessModes are immutable; a new claim is needed, and its data moved.",
        "spec.storageClassName": "a claim's storageClassName is immutable once set; a new claim is needed, and its data moved.",
        "spec.volumeName": "a claim's volumeName is immutable once set; a new claim is needed.",
    },
    "Service": {"spec.clusterIP": "a Service's clusterIP is immutable; delete the Service and create it anew."},
    "RoleBinding": {"roleRef": "a binding's roleRef is immutable; delete the binding and create it anew."},
    "ClusterRoleBinding": {"roleRef": "a binding's roleRef is immutable; delete the binding and create it anew."},
}
_IDENTITY = {"apiVersion", "kind", "metadata.name", "metadata.namespace"}
_ONCE = {"metadata.namespace", "spec.storageClassName", "spec.volumeName"}
"""May be added where they are missing, never changed."""


def immutable(change: Change) -> str | None:
    """Why the API server would refuse the change whatever its value is; None when it would not."""
    return _immutable(change.object.split("/")[0], change.operation, parse_path(change.path), inside=False)


def _immutable(kind: str, operation: Operation, path: Path, *, inside: bool = True) -> str | None:
    """`inside`: also when the field would go with the map around it."""
    keys = [step.name for step in path if step.kind == "key"]
    reasons = {**dict.fromkeys(_IDENTITY, "it is what identifies the object; another one is another object."), **_IMMUTABLE.get(kind, {})}
    for place, reason in reasons.items():
        fixed = place.split(".")
        shared = min(len(fixed), len(keys)) if inside and operation != "add" else len(fixed)
        if keys[:shared] == fixed[:shared] and not (operation == "add" and place in _ONCE):
            return reason
    return None


# Planning: one change becomes the smallest edits that make it.


class _Edit(NamedTuple):
    operation: Operation
    path: Path
    value: JsonValue = None


def _plan(root: _Node, wanted: _Edit, before: JsonValue) -> list[_Edit]:
    operation, path, value = wanted
    nodes, missing = _walk(root, path)
    if operation == "remove":
        return _plan_remove(nodes[-1], path, missing, before)
    if missing:
        return _plan_missing(nodes[-1], missing, wanted, before)
    node = nodes[-1]
    found = _value(node)
    if same(found, value):
        return []
    _refuse_template(node, path)
    if before is not None and not agrees(found, before, path):
        raise EditRefused(
            f"{show(path)} is {_quote(found)} at line {node.line}, not {_quote(before)}: diagnose again, it was changed since."
        )
    if operation == "add" and before is None and node.kind != "map" and found is not None:
        raise EditRefused(f"{show(path)} is there already, at line {node.line}, and is {_quote(found)}: set it instead.")
    edits = list(_difference(node, value, path, keep=operation == "add" and before is None))
    # Removal comes last and from the end: nothing is empty in between, and no index moves under an edit that follows.
    return [e for e in edits if e.operation != "remove"] + [e for e in edits if e.operation == "remove"][::-1]


def _walk(root: _Node, path: Path) -> tuple[list[_Node], Path]:
    """The nodes along the path, and the steps that lead nowhere yet."""
    nodes = [root]
    for at, step in enumerate(path):
        node = nodes[-1]
        if node.kind == "alias":
            raise EditRefused(
                f"{show(path[:at])} is the alias *{node.text} (line {node.line}), shared with other places: write it out first."
            )
        found = _child(node, step, path[: at + 1])
        if found is None:
            return nodes, path[at:]
        if found.kind != "scalar" and at + 1 < len(path) and step.kind == "key" and _own(node, step.name) is None:
            raise EditRefused(
                f"{show(path[: at + 1])} comes from a merged anchor (line {node.line}), shared with other places: write it out."
            )
        nodes.append(found)
    return nodes, ()


def _child(node: _Node, step: Step, path: Path) -> _Node | None:
    if node.kind == "scalar":
        if _typed(node) is None:
            return None
        raise EditRefused(f"{show(path[:-1])} is {_quote(_typed(node))} at line {node.line}: {show(path[-1:])} cannot be in it.")
    if (step.kind == "key") != (node.kind == "map"):
        raise EditRefused(
            f"{show(path[:-1])} is a {'map' if node.kind == 'map' else 'list'} (line {node.line}): {show(path[-1:])} cannot be in it."
        )
    match step.kind:
        case "key":
            return _own(node, step.name) or _merged(node).get(step.name)
        case "index":
            return node.items[step.number] if step.number < len(node.items) else None
        case "match":
            fit = [item for item in node.items if _field(item, step.name) == step.value]
            if len(fit) > 1:
                raise EditRefused(f"{show(path)} fits {len(fit)} items, at lines {', '.join(str(i.line) for i in fit)}: name them apart.")
            return fit[0] if fit else None
        case "append":
            return None


def _field(item: _Node, name: str) -> str | None:
    node = _deref(item)
    found = _deref(_own(node, name) or _merged(node).get(name)) if node is not None and node.kind == "map" else None
    return found.text if found is not None and found.kind == "scalar" else None


def _plan_remove(last: _Node, path: Path, missing: Path, before: JsonValue) -> list[_Edit]:
    if any(step.kind != "key" for step in missing[:-1]):
        raise EditRefused(f"{show(path[: len(path) - len(missing) + 1])} is not in the file.")
    if missing:
        return []
    if before is not None and not agrees(_value(last), before, path):
        raise EditRefused(f"{show(path)} is {_quote(_value(last))} at line {last.line}, not {_quote(before)}: diagnose again.")
    return [_Edit("remove", path)]


def _plan_missing(last: _Node, missing: Path, wanted: _Edit, before: JsonValue) -> list[_Edit]:
    operation, path, value = wanted
    known = path[: len(path) - len(missing)]
    if missing[0].kind == "append" and any(same(_value(item), value) for item in last.items):
        return []
    if before is not None and not same(_DEFAULTS.get(missing[-1].name), before):
        raise EditRefused(f"{show(path)} is not in the file, but the cluster says {_quote(before)}: something else sets it.")
    if operation == "set" and any(step.kind in ("match", "index") for step in missing):
        raise EditRefused(f"{show(path)} is not in the file: there is no {show(missing)} below {show(known) or 'the document'}.")
    if last.kind == "scalar":  # an empty value: it becomes the first of what is missing
        return [_Edit("set", known, _nest(missing, value, path))]
    return [
        _Edit("add", known + missing[:1], _nest(missing[1:], value, path) if missing[0].kind != "match" else _item(missing, value, path))
    ]


def _nest(steps: Path, value: JsonValue, path: Path) -> JsonValue:
    if not steps:
        return value
    match steps[0].kind:
        case "key":
            return {steps[0].name: _nest(steps[1:], value, path)}
        case "append":
            return [value]
        case "match":
            return [_item(steps, value, path)]
        case "index":
            raise EditRefused(f"{show(path)} is not in the file: a list item is added with [+], or named by [field=value].")


def _item(steps: Path, value: JsonValue, path: Path) -> JsonValue:
    inner = _nest(steps[1:], value, path)
    if not isinstance(inner, dict):
        raise EditRefused(f"{show(path)} cannot be added: the new item must be a map.")
    return {steps[0].name: steps[0].value, **inner}


def _difference(node: _Node, value: JsonValue, path: Path, *, keep: bool) -> Iterator[_Edit]:
    found = _value(node)
    if same(found, value):
        return
    merged = any(_is_merge(key) for key, _ in node.entries)
    if node.kind == "map" and isinstance(value, dict) and value and node.entries and not merged:
        yield from _map_difference(node, value, path, keep=keep)
    elif keep and found is not None and found != {}:
        raise EditRefused(f"{show(path)} is there already, at line {node.line}, and is {_quote(found)}: set it instead.")
    elif node.kind == "seq" and isinstance(value, list) and value and node.items:
        yield from _list_difference(node, value, path)
    else:
        yield _Edit("set", path, value)


def _map_difference(node: _Node, value: Mapping[str, JsonValue], path: Path, *, keep: bool) -> Iterator[_Edit]:
    for key, wanted in value.items():
        child = _own(node, key)
        step = Step("key", key)
        if child is None:
            yield _Edit("add", (*path, step), wanted)
        else:
            yield from _difference(child, wanted, (*path, step), keep=keep)
    if not keep:
        yield from (_Edit("remove", (*path, Step("key", key.text))) for key, _ in node.entries if key.text not in value)


def _list_difference(node: _Node, value: Sequence[JsonValue], path: Path) -> Iterator[_Edit]:
    found = [_value(item) for item in node.items]
    kept, at = [], 0
    for index, item in enumerate(found):
        if at < len(value) and same(item, value[at]):
            kept.append(index)
            at += 1
    if len(found) <= len(value):
        for index, (child, wanted) in enumerate(zip(node.items, value, strict=False)):
            yield from _difference(child, wanted, (*path, Step("index", number=index)), keep=False)
        yield from (_Edit("add", (*path, Step("append")), item) for item in value[len(found) :])
    elif at == len(value):
        yield from (_Edit("remove", (*path, Step("index", number=i))) for i in range(len(found)) if i not in kept)
    else:
        yield _Edit("set", path, list(value))


def _refuse_template(node: _Node, path: Path) -> None:
    if node.kind == "scalar" and _TEMPLATE.search(node.text) and "\n" not in node.text:
        raise EditRefused(f"{show(path)} is the template {node.text!r} at line {node.line}: the change belongs into its values.")


def _read(root: _Node, path: Path) -> JsonValue:
    nodes, missing = _walk(root, path)
    return None if missing else _value(nodes[-1])


def _quote(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else text[:199] + "…"


# Splicing: one edit of the text, then the proof.


def _apply(text: str, tree: _Tree, document: int, change: _Edit) -> tuple[str, _Tree]:
    root = tree.roots[document]
    surgeon = _Surgeon(text, root)
    spliced = surgeon.operate(change, tree)
    try:
        after = _parse(spliced)
    except ManifestUnreadable as error:
        raise EditRefused(f"{show(change.path)} cannot be changed here without breaking the file: {error}") from None
    expected = [_plain(each) for each in tree.roots]
    expected[document] = _mutated(expected[document], _indices(root, change.path), change)
    if not same(expected, [_plain(each) for each in after.roots]):
        raise EditRefused(f"{show(change.path)} cannot be changed here alone: the file would differ in another place too. Edit it by hand.")
    return spliced, after


class _Alias(NamedTuple):
    name: str
    ordinal: int


def _plain(node: _Node) -> Any:
    match node.kind:
        case "alias":
            return _Alias(node.text, node.ordinal)
        case "scalar":
            return _typed(node)
        case "seq":
            return [_plain(item) for item in node.items]
        case "map":
            return {key.text: _plain(value) for key, value in node.entries}


def _indices(root: _Node, path: Path) -> list[str | int]:
    places: list[str | int] = []
    node: _Node | None = root
    for at, step in enumerate(path):
        child = _child(node, step, path[: at + 1]) if node is not None else None
        if step.kind == "key":
            places.append(step.name)
        else:
            places.append(node.items.index(child) if node is not None and child is not None else -1)
        node = child
    return places


def _mutated(value: Any, places: list[str | int], change: _Edit) -> Any:
    if not places:
        return change.value
    holder = value
    for place in places[:-1]:
        holder = holder[place]
    last = places[-1]
    if change.operation == "remove":
        del holder[last]
    elif last == -1:
        holder.append(change.value)
    else:
        holder[last] = change.value
    return value


class _Surgeon:
    """One splice of one text; offsets are those of `root`'s tree, so it operates once."""

    def __init__(self, text: str, root: _Node) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
        self._style = _Style.of(text, root)
        self._root = root

    def operate(self, change: _Edit, tree: _Tree) -> str:
        nodes, missing = _walk(self._root, change.path)
        if missing:
            return self._add(nodes[-1], missing[0], change.value)
        node, parent, step = nodes[-1], nodes[-2] if len(nodes) > 1 else None, change.path[-1]
        if parent is None:
            raise EditRefused("The whole document cannot be replaced: name a field of it.")
        inherited = step.kind == "key" and _own(parent, step.name) is None
        if change.operation == "remove":
            if inherited:
                raise EditRefused(f"{show(change.path)} comes from a merged anchor (line {parent.line}): it cannot be removed here alone.")
            _refuse_shared(node, tree, change.path, whole=True)
            return self._remove(parent, node)
        if inherited:
            return self._add(parent, step, change.value)
        _refuse_shared(node, tree, change.path, whole=isinstance(change.value, dict | list))
        return self._replace(parent, node, change.value)

    # Replacing.

    def _replace(self, parent: _Node, node: _Node, value: JsonValue) -> str:
        nested = isinstance(value, dict | list) and bool(value)
        flow = parent.flow or (node.flow and node.kind in ("map", "seq"))
        if node.kind in ("map", "seq") and not node.flow and node.anchor:
            raise EditRefused(f"Line {node.line} carries the anchor &{node.anchor}: remove the anchor first.")
        if (node.kind in ("scalar", "alias") and not nested) or flow:
            return self._put(node, self._inline(node, value, flow=flow))
        if node.kind in ("map", "seq") and not node.flow and nested:
            column = self._column(node.start)
            lines = self._style.block(value)
            return self._put(node, (self._newline + " " * column).join(lines))
        if parent.kind == "seq":
            return self._put(node, (self._newline + " " * self._column(node.start)).join(self._style.block(value)))
        return self._swap(parent, node, value)

    def _put(self, node: _Node, new: str) -> str:
        before = self._text[: node.start]
        if node.start == node.end and before[-1:] in (":", "-"):
            new = " " + new
        return before + new + self._text[node.end :]

    def _inline(self, node: _Node, value: JsonValue, *, flow: bool) -> str:
        if isinstance(value, str) and node.style in ("|", ">") and not flow:
            literal = self._literal(node, value)
            if literal is not None:
                return literal
        if isinstance(value, dict | list):
            return self._style.flow(value)
        # Only quotes are kept: a number or a word in place of a block scalar is written plainly.
        return self._style.scalar(value, quote=node.style if node.style in ('"', "'") else "", flow=flow)

    def _literal(self, node: _Node, value: str) -> str | None:
        """The value as a literal block with the old header and indent; None where such a block cannot hold it."""
        if (
            not value.strip("\n ")
            or value[0] in " \n\t"
            or re.search(r"[^\t\n\x20-\x7e\u00a0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", value)
        ):
            return None
        source = self._text[node.start : node.end]
        header, _, body = source.partition("\n")
        header = header.rstrip("\r")
        indents = [len(line) - len(line.lstrip(" ")) for line in body.splitlines() if line.strip()]
        if not indents or re.match(r"[|>][-+]?[1-9]", header):
            return None
        chomp = "+" if value.endswith("\n\n") else "" if value.endswith("\n") else "-"
        old = re.match(r"[|>]([-+]?)", header)
        if old is None or node.style == ">" or (old[1] != chomp and not (old[1] == "+" and chomp == "")):
            header = "|" + chomp + header[old.end() if old else 1 :]
        if old is not None and old[1] == "+":
            return None  # what follows belongs to the value: not worth the risk
        lines = value.removesuffix("\n").split("\n")
        return self._newline.join([header, *(" " * min(indents) + line if line else "" for line in lines)])

    def _swap(self, parent: _Node, node: _Node, value: JsonValue) -> str:
        """Another kind of value under a key of a block map."""
        key = next(k for k, v in parent.entries if v is node)
        colon = self._text.index(":", key.end) + 1
        column = self._column(key.start)
        if node.kind in ("scalar", "alias") or node.flow:
            rest = self._text[:colon] + self._text[node.end :]
        else:
            start = self._line_start(node.start)
            rest = self._text[:start] + self._text[self._line_end(node.end) :]
        if not isinstance(value, dict | list) or not value:
            return rest[:colon] + " " + self._style.flow(value) + rest[colon:]
        return self._insert(rest, self._line_end(colon, rest), self._indented(value, column))

    # Adding.

    def _add(self, holder: _Node, step: Step, value: JsonValue) -> str:
        if holder.kind == "map":
            return self._add_flow(holder, step.name, value) if holder.flow else self._add_entry(holder, step.name, value)
        if holder.kind == "seq":
            return self._add_flow(holder, None, value) if holder.flow else self._add_item(holder, value)
        raise EditRefused(f"Line {holder.line} holds a plain value: nothing can be added to it.")

    def _add_flow(self, holder: _Node, key: str | None, value: JsonValue) -> str:
        style, text = self._style.beside(self._text, holder), self._text
        new = style.flow(value) if key is None else f"{style.key(key, flow=True)}{style.colon}{style.flow(value)}"
        children = [v for _, v in holder.entries] or holder.items
        if not children:
            return text[: holder.start + 1] + new + text[holder.end - 1 :]
        first = holder.entries[0][0] if holder.entries else children[0]
        lead = text[holder.start + 1 : first.outer]
        between = lead if "\n" in lead and not lead.strip() else " " if style.spaced else ""
        at = children[-1].end
        return text[:at] + "," + between + new + text[at:]

    def _add_entry(self, holder: _Node, key: str, value: JsonValue) -> str:
        column = self._column(holder.entries[0][0].outer)
        name = self._style.key(key)
        if isinstance(value, dict | list) and value:
            neighbour = all(v.flow for _, v in holder.entries if v.kind == "map") and any(v.kind == "map" for _, v in holder.entries)
            flat = isinstance(value, dict) and neighbour and not any(isinstance(v, dict | list) for v in value.values())
            lines = [f"{name}: {self._style.flow(value)}"] if flat else [f"{name}:", *self._style.below(value)]
        else:
            lines = [f"{name}: {self._style.flow(value)}"]
        after = self._neighbour(holder)
        return self._insert(self._text, self._line_end(after.end), [" " * column + line for line in lines])

    def _neighbour(self, holder: _Node) -> _Node:
        """The entry to write below: the last of one line, unless a comment that may belong to the next key follows it."""
        for key, value in reversed(holder.entries):
            end = self._line_end(value.end)
            single = "\n" not in self._text[key.start : value.end]
            following = self._text[end:].split("\n", 1)[0].strip()
            if single and following and not following.startswith("#"):
                return value
        return holder.entries[-1][1]

    def _add_item(self, holder: _Node, value: JsonValue) -> str:
        last = holder.items[-1]
        dash = self._dash(last)
        gap = self._text[dash + 1 : last.outer] if last.start != last.end else " "
        gap = gap if gap and not gap.strip(" ") else " "
        flow = bool(last.flow and isinstance(value, dict | list)) or not isinstance(value, dict | list) or not value
        quote = last.style if last.style in ('"', "'") else ""
        lines = [self._style.flow(value, quote=quote)] if flow else self._style.block(value)
        column = " " * self._column(dash)
        lines = [column + "-" + gap + lines[0], *(column + " " * (1 + len(gap)) + line for line in lines[1:])]
        return self._insert(self._text, self._line_end(last.end), lines)

    # Removing.

    def _remove(self, parent: _Node, node: _Node) -> str:
        children = [k for k, _ in parent.entries] if parent.kind == "map" else parent.items
        ends = [v for _, v in parent.entries] if parent.kind == "map" else parent.items
        at = ends.index(node)
        if parent.flow:
            return self._remove_flow(children, ends, at)
        if len(ends) == 1:
            return self._emptied(parent)
        start = children[at].outer if parent.kind == "map" else self._dash(node)
        if self._text[self._line_start(start) : start].strip():  # shares its line with a dash
            return self._text[:start] + self._text[self._next_start(parent, children, at) :]
        return self._cut(self._line_start(start), self._line_end(node.end))

    def _next_start(self, parent: _Node, children: list[_Node], at: int) -> int:
        following = children[at + 1]
        return following.outer if parent.kind == "map" else self._dash(following)

    def _remove_flow(self, children: list[_Node], ends: list[_Node], at: int) -> str:
        if at > 0:
            return self._text[: ends[at - 1].end] + self._text[ends[at].end :]
        until = children[1].outer if len(children) > 1 else ends[0].end
        return self._text[: children[0].outer] + self._text[until:]

    def _emptied(self, parent: _Node) -> str:
        """The last entry goes: an empty map or list says so, where nothing would say null."""
        empty = "{}" if parent.kind == "map" else "[]"
        holder = _holder(self._root, parent)
        if holder is None or parent.anchor:
            raise EditRefused(f"Line {parent.line} would become empty: remove what holds it instead.")
        if holder.kind == "seq" or holder.flow:
            return self._text[: parent.start] + empty + self._text[parent.end :]
        key = next(k for k, v in holder.entries if v is parent)
        colon = self._text.index(":", key.end) + 1
        start, end = self._line_start(parent.start), self._line_end(parent.end)
        return self._text[:colon] + " " + empty + self._cut(start, end)[colon:]

    def _cut(self, start: int, end: int) -> str:
        if end == len(self._text) and not self._text.endswith("\n"):
            start = len(self._text[:start].removesuffix("\n").removesuffix("\r"))
        return self._text[:start] + self._text[end:]

    # Lines and columns.

    def _column(self, at: int) -> int:
        return at - self._line_start(at)

    def _line_start(self, at: int) -> int:
        return self._text.rfind("\n", 0, at) + 1

    def _line_end(self, at: int, text: str | None = None) -> int:
        text = self._text if text is None else text
        if at and text[at - 1] == "\n":
            return at
        found = text.find("\n", at)
        return len(text) if found < 0 else found + 1

    def _dash(self, item: _Node) -> int:
        return self._text.rindex("-", 0, item.outer)

    def _insert(self, text: str, at: int, lines: list[str]) -> str:
        block = self._newline.join(lines)
        if at == len(text) and not text.endswith("\n"):
            return text + self._newline + block
        return text[:at] + block + self._newline + text[at:]

    def _indented(self, value: JsonValue, column: int) -> list[str]:
        return [" " * column + line for line in self._style.below(value)]


def _refuse_shared(node: _Node, tree: _Tree, path: Path, *, whole: bool) -> None:
    """An anchor that other places use must stay what it is."""
    inside = list(_within(node))
    used = [alias for alias in tree.aliases if any(alias.target is each for each in inside) and alias not in inside]
    if used and (whole or node.anchor or node.kind != "scalar"):
        lines = ", ".join(str(alias.line) for alias in used)
        raise EditRefused(
            f"{show(path)} is the anchor &{used[0].text} that line {lines} uses: a change would reach there too. Write those out."
        )


def _within(node: _Node) -> Iterator[_Node]:
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(each.items)
        pending.extend(child for _, child in each.entries)


def _holder(root: _Node, child: _Node) -> _Node | None:
    return next((n for n in _within(root) if child in n.items or any(v is child for _, v in n.entries)), None)


@dataclass(frozen=True, slots=True)
class _Style:
    """How this file writes: JSON or YAML, blanks after colons, indents."""

    json: bool
    spaced: bool
    step: int
    dash: int

    @classmethod
    def of(cls, text: str, root: _Node) -> "_Style":
        style = (
            cls(json=False, spaced=True, step=2, dash=0).beside(text, root) if root.flow else cls(json=False, spaced=True, step=2, dash=0)
        )
        steps = [gap for gap, child in _indents(text, root) if child.kind == "map"]
        dashes = [gap for gap, child in _indents(text, root) if child.kind == "seq"]
        return cls(style.json, style.spaced, next((s for s in steps if s > 0), 2), next((d for d in dashes if d >= 0), 0))

    def beside(self, text: str, node: _Node) -> "_Style":
        """The style of a flow collection, by its first entry or that of the one around it."""
        first = next((pair for n in _within(node) for pair in n.entries if n.flow), None)
        if first is None:
            return self
        gap = text[first[0].end : first[1].outer]
        return _Style(json=first[0].style == '"', spaced=gap.strip() != ":" or gap != ":", step=self.step, dash=self.dash)

    @property
    def colon(self) -> str:
        return ": " if self.spaced else ":"

    def key(self, text: str, *, flow: bool = False) -> str:
        return self.scalar(text, flow=flow)

    def scalar(self, value: JsonValue, *, quote: str = "", flow: bool = True) -> str:
        if not isinstance(value, str):
            return json.dumps(value)
        if self.json:
            return json.dumps(value, ensure_ascii=False)
        if not quote and _plainly(value, flow=flow):
            return value
        if quote == "'" and re.fullmatch(r"[\x20-\x7e\u00a0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*", value):
            return "'" + value.replace("'", "''") + "'"
        return _double(value)

    def flow(self, value: JsonValue, *, quote: str = "") -> str:
        comma = ", " if self.spaced else ","
        if isinstance(value, dict):
            return "{" + comma.join(f"{self.key(k, flow=True)}{self.colon}{self.flow(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + comma.join(self.flow(item) for item in value) + "]"
        return self.scalar(value, quote=quote)

    def block(self, value: JsonValue) -> list[str]:
        """Lines without a base indent."""
        if isinstance(value, dict) and value:
            return [line for key, inner in value.items() for line in self._entry(key, inner)]
        if isinstance(value, list) and value:
            return [("  " if at else "- ") + line for item in value for at, line in enumerate(self.block(item))]
        return [self.flow(value)]

    def below(self, value: JsonValue) -> list[str]:
        indent = " " * (self.dash if isinstance(value, list) else self.step)
        return [indent + line for line in self.block(value)]

    def _entry(self, key: str, value: JsonValue) -> list[str]:
        if isinstance(value, dict | list) and value:
            return [self.key(key) + ":", *self.below(value)]
        return [f"{self.key(key)}: {self.flow(value)}"]


def _indents(text: str, root: _Node) -> list[tuple[int, _Node]]:
    column: Callable[[int], int] = lambda at: at - text.rfind("\n", 0, at) - 1  # noqa: E731 (named for the line below)
    blocks = [node for node in _within(root) if node.kind == "map" and not node.flow]
    pairs = [(key, child) for node in blocks for key, child in node.entries if child.kind in ("map", "seq") and not child.flow]
    return [(column(child.start) - column(key.start), child) for key, child in pairs]


_SAFE = re.compile(
    r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`\x00-\x20\x7f-\x9f\ufeff]|-(?=[^\s,\[\]{}\-]))[^\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]*"
)


def _plainly(text: str, *, flow: bool) -> bool:
    if not _SAFE.fullmatch(text) or text != text.rstrip() or text.endswith(":") or text.startswith("..."):
        return False
    if ": " in text or " #" in text or (flow and re.search(r"[,\[\]{}]", text)) or _TEMPLATE.search(text):
        return False
    return isinstance(_resolve(text), str) and not _ODD.fullmatch(text) and re.search(r"[\ud800-\udfff]", text) is None


def _double(text: str) -> str:
    # JSON's escapes are YAML's; what the parser calls unprintable is escaped too.
    kept = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found[0]):04x}", kept)
