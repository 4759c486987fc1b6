"""The tree of a file: what is where, as spans of its text. A parser's events become nodes, so that bytes can be spliced later.

Bounded in size, depth and number of nodes. Knows nothing of types (see `values`), of Kubernetes (see `objects`) or of paths (see `walk`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

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

from suture.errors import ManifestUnreadable

LIMIT = 1 << 19
"""Largest file in bytes that is parsed: the pure parser reads about 150 kB in a second, and an edit reads a file twice."""
DEPTH = 100
"""Deepest nesting: Kubernetes' own objects stay below 30."""
NODES = 200_000
"""Most nodes in a file, and most values that one read of an aliased tree may yield."""


@dataclass(slots=True, eq=False)
class Node:
    """A value, a key, a list or a map, and where it stands; offsets are characters of the text without its BOM."""

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
    target: "Node | None" = None
    entries: list[tuple["Node", "Node"]] = field(default_factory=list)
    items: list["Node"] = field(default_factory=list)


class Tree(NamedTuple):
    """The documents of a file, what carries an anchor, and what refers to one."""

    roots: list[Node]
    anchors: dict[str, list[Node]]
    aliases: list[Node]


TEMPLATE = re.compile(r"\{\{|\{%")
"""What is rendered before it is YAML."""
_TAGS = {"", *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq", "binary"))}
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:[ \t]+|$))*(?:[&!]\S*(?=\s|$))?")


def decode(data: bytes) -> str:
    """The text of a file, its BOM included. Raises: ManifestUnreadable, naming the line."""
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
def parse(text: str) -> Tree:
    """The tree of the text. Raises: ManifestUnreadable, naming the line."""
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
    if TEMPLATE.search(text):
        return ManifestUnreadable(f"{where} is a template, not YAML: the change belongs into the values that it is rendered with.")
    problem = getattr(error, "problem", None) or "holds a character that YAML does not allow"
    return ManifestUnreadable(f"{where} is not YAML that can be read: {problem}.")


def _build(text: str) -> Tree:
    tree = Tree([], {}, [])
    stack: list[Node] = []
    flat: list[list[Node]] = []
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


def _collection(text: str, event: Any, tree: Tree) -> Node:
    kind: Literal["map", "seq"] = "map" if isinstance(event, MappingStartEvent) else "seq"
    node = _node(kind, event, text)
    node.flow = bool(event.flow_style)
    return _register(node, event, tree)


def _leaf(text: str, event: Any, tree: Tree) -> Node:
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


def _node(kind: Literal["scalar", "map", "seq", "alias"], event: Any, text: str) -> Node:
    outer, end = event.start_mark.index, event.end_mark.index
    start = outer
    if kind != "alias" and (event.anchor or event.tag):
        found = _PROPERTIES.match(text, outer)
        start = min(found.end(), max(end, outer)) if found and kind == "scalar" else (found.end() if found else outer)
    return Node(kind, start, end, event.start_mark.line + 1, outer)


def _register(node: Node, event: Any, tree: Tree) -> Node:
    node.tag = str(event.tag or "")
    if node.tag not in _TAGS:
        raise ManifestUnreadable(f"Line {node.line} has the tag {node.tag}: only plain YAML is edited. Remove the tag.")
    if event.anchor:
        node.anchor = str(event.anchor)
        tree.anchors.setdefault(node.anchor, []).append(node)
        node.ordinal = len(tree.anchors[node.anchor])
    return node


def _close(text: str, node: Node, children: list[Node], end: int) -> None:
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


def _settle(text: str, node: Node, children: list[Node]) -> None:
    """Empty values are marked where the next token begins, behind comments: they stand right after their colon."""
    for key, value in zip(children[::2], children[1::2], strict=True) if node.kind == "map" else ():
        colon = text.find(":", key.end, value.start)
        if value.kind == "scalar" and value.outer == value.end and not value.style and colon >= 0:
            value.outer = value.start = value.end = colon + 1


def _block_end(text: str, node: Node) -> int:
    header = text[node.start : text.find("\n", node.start) % (len(text) + 1)]
    if "+" in header.split("#")[0]:
        return node.end
    kept = len(text[: node.end].rstrip())
    line = re.compile(r"[^\r\n]*").match(text, kept)
    return min(line.end(), node.end) if line else kept


def entry(node: Node | None, key: str) -> Node | None:
    """The value that a map itself holds at `key`; what it inherits is not asked."""
    return next((value for name, value in node.entries if name.text == key), None) if node and node.kind == "map" else None


def deref(node: Node | None) -> Node | None:
    """What an alias stands for; any other node is itself."""
    return node.target if node is not None and node.kind == "alias" else node


def within(node: Node) -> Iterator[Node]:
    """The node and the values below it; aliases are not followed."""
    pending = [node]
    while pending:
        each = pending.pop()
        yield each
        pending.extend(each.items)
        pending.extend(child for _, child in each.entries)
