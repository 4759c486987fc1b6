"""The style of a file: JSON or YAML, blanks after colons, indents, quotes; and values written in it.

Writes lines and single values, and knows where none of them goes (see `surgeon`). What would be read as another type is quoted.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from suture.remediation.manifest.tree import TEMPLATE, Node, within
from suture.remediation.manifest.values import ODD, resolved


@dataclass(frozen=True, slots=True)
class Style:
    """How this file writes: JSON or YAML, blanks after colons, indents."""

    json: bool
    spaced: bool
    step: int
    dash: int

    @classmethod
    def of(cls, text: str, root: Node) -> "Style":
        style = (
            cls(json=False, spaced=True, step=2, dash=0).beside(text, root) if root.flow else cls(json=False, spaced=True, step=2, dash=0)
        )
        steps = [gap for gap, child in _indents(text, root) if child.kind == "map"]
        dashes = [gap for gap, child in _indents(text, root) if child.kind == "seq"]
        return cls(style.json, style.spaced, next((s for s in steps if s > 0), 2), next((d for d in dashes if d >= 0), 0))

    def beside(self, text: str, node: Node) -> "Style":
        """The style of a flow collection, by its first entry or that of the one around it."""
        first = next((pair for n in within(node) for pair in n.entries if n.flow), None)
        if first is None:
            return self
        gap = text[first[0].end : first[1].outer]
        return Style(json=first[0].style == '"', spaced=gap.strip() != ":" or gap != ":", step=self.step, dash=self.dash)

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


def _indents(text: str, root: Node) -> list[tuple[int, Node]]:
    column: Callable[[int], int] = lambda at: at - text.rfind("\n", 0, at) - 1  # noqa: E731 (named for the line below)
    blocks = [node for node in within(root) if node.kind == "map" and not node.flow]
    pairs = [(key, child) for node in blocks for key, child in node.entries if child.kind in ("map", "seq") and not child.flow]
    return [(column(child.start) - column(key.start), child) for key, child in pairs]


_SAFE = re.compile(
    r"(?:[^\s\-?:,\[\]{}#&*!|>'\"%@`\x00-\x20\x7f-\x9f\ufeff]|-(?=[^\s,\[\]{}\-]))[^\x00-\x1f\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]*"
)


def _plainly(text: str, *, flow: bool) -> bool:
    if not _SAFE.fullmatch(text) or text != text.rstrip() or text.endswith(":") or text.startswith("..."):
        return False
    if ": " in text or " #" in text or (flow and re.search(r"[,\[\]{}]", text)) or TEMPLATE.search(text):
        return False
    return isinstance(resolved(text), str) and not ODD.fullmatch(text) and re.search(r"[\ud800-\udfff]", text) is None


def _double(text: str) -> str:
    # JSON's escapes are YAML's; what the parser calls unprintable is escaped too.
    kept = json.dumps(text, ensure_ascii=False)
    return re.sub(r"[\x7f-\xa0\u2028\u2029\ufeff\ufffe\uffff]", lambda found: f"\\u{ord(found[0]):04x}", kept)
