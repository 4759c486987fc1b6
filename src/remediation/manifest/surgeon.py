"""The surgeon: one splice of one text, at the span that the tree names, in the style of the file.

Replaces, adds or removes; whether the result says what was meant is `proof`'s question, what is to be done `plan`'s. An anchor that other
places use is never touched.
"""

import re

from pydantic import JsonValue

from suture.errors import EditRefused
from suture.remediation.manifest.plan import Edit
from suture.remediation.manifest.style import Style
from suture.remediation.manifest.tree import Node, Tree, entry, within
from suture.remediation.manifest.walk import walk
from suture.remediation.paths import Field, Path, Step, join


class Surgeon:
    """One splice of one text; offsets are those of `root`'s tree, so it operates once."""

    def __init__(self, text: str, root: Node) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
        self._style = Style.of(text, root)
        self._root = root

    def operate(self, change: Edit, tree: Tree) -> str:
        """The text with the edit made. Raises: EditRefused."""
        nodes, missing = walk(self._root, change.path)
        if missing:
            return self._add(nodes[-1], missing[0], change.value)
        node, parent, step = nodes[-1], nodes[-2] if len(nodes) > 1 else None, change.path[-1]
        if parent is None:
            raise EditRefused("The whole document cannot be replaced: name a field of it.")
        inherited = isinstance(step, Field) and entry(parent, step.name) is None
        if change.operation == "remove":
            if inherited:
                raise EditRefused(f"{join(*change.path)} comes from a merged anchor (line {parent.line}): it cannot be removed here alone.")
            _refuse_shared(node, tree, change.path, whole=True)
            return self._remove(parent, node)
        if inherited:
            return self._add(parent, step, change.value)
        _refuse_shared(node, tree, change.path, whole=isinstance(change.value, dict | list))
        return self._replace(parent, node, change.value)

    # Replacing.

    def _replace(self, parent: Node, node: Node, value: JsonValue) -> str:
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

    def _put(self, node: Node, new: str) -> str:
        before = self._text[: node.start]
        if node.start == node.end and before[-1:] in (":", "-"):
            new = " " + new
        return before + new + self._text[node.end :]

    def _inline(self, node: Node, value: JsonValue, *, flow: bool) -> str:
        if isinstance(value, str) and node.style in ("|", ">") and not flow:
            literal = self._literal(node, value)
            if literal is not None:
                return literal
        if isinstance(value, dict | list):
            return self._style.flow(value)
        # Only quotes are kept: a number or a word in place of a block scalar is written plainly.
        return self._style.scalar(value, quote=node.style if node.style in ('"', "'") else "", flow=flow)

    def _literal(self, node: Node, value: str) -> str | None:
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

    def _swap(self, parent: Node, node: Node, value: JsonValue) -> str:
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

    def _add(self, holder: Node, step: Step, value: JsonValue) -> str:
        if isinstance(step, Field) and holder.kind == "map":
            return self._add_flow(holder, step.name, value) if holder.flow else self._add_entry(holder, step.name, value)
        if holder.kind == "seq":
            return self._add_flow(holder, None, value) if holder.flow else self._add_item(holder, value)
        raise EditRefused(f"Line {holder.line} holds a plain value: nothing can be added to it.")

    def _add_flow(self, holder: Node, key: str | None, value: JsonValue) -> str:
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

    def _add_entry(self, holder: Node, key: str, value: JsonValue) -> str:
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

    def _neighbour(self, holder: Node) -> Node:
        """The entry to write below: the last of one line, unless a comment that may belong to the next key follows it."""
        for key, value in reversed(holder.entries):
            end = self._line_end(value.end)
            single = "\n" not in self._text[key.start : value.end]
            following = self._text[end:].split("\n", 1)[0].strip()
            if single and following and not following.startswith("#"):
                return value
        return holder.entries[-1][1]

    def _add_item(self, holder: Node, value: JsonValue) -> str:
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

    def _remove(self, parent: Node, node: Node) -> str:
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

    def _next_start(self, parent: Node, children: list[Node], at: int) -> int:
        following = children[at + 1]
        return following.outer if parent.kind == "map" else self._dash(following)

    def _remove_flow(self, children: list[Node], ends: list[Node], at: int) -> str:
        if at > 0:
            return self._text[: ends[at - 1].end] + self._text[ends[at].end :]
        until = children[1].outer if len(children) > 1 else ends[0].end
        return self._text[: children[0].outer] + self._text[until:]

    def _emptied(self, parent: Node) -> str:
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

    def _dash(self, item: Node) -> int:
        return self._text.rindex("-", 0, item.outer)

    def _insert(self, text: str, at: int, lines: list[str]) -> str:
        block = self._newline.join(lines)
        if at == len(text) and not text.endswith("\n"):
            return text + self._newline + block
        return text[:at] + block + self._newline + text[at:]

    def _indented(self, value: JsonValue, column: int) -> list[str]:
        return [" " * column + line for line in self._style.below(value)]


def _refuse_shared(node: Node, tree: Tree, path: Path, *, whole: bool) -> None:
    """An anchor that other places use must stay what it is."""
    inside = list(within(node))
    used = [alias for alias in tree.aliases if any(alias.target is each for each in inside) and alias not in inside]
    if used and (whole or node.anchor or node.kind != "scalar"):
        lines = ", ".join(str(alias.line) for alias in used)
        raise EditRefused(
            f"{join(*path)} is the anchor &{used[0].text} that line {lines} uses: a change would reach there too. Write those out."
        )


def _holder(root: Node, child: Node) -> Node | None:
    return next((n for n in within(root) if child in n.items or any(v is child for _, v in n.entries)), None)
