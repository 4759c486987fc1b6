"""Markup: HTML that is escaped by construction. Only what `tag` built is trusted; every other text is data. Pure."""

import html
import re

_VOID = frozenset({"meta", "link", "input", "br", "hr"})
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters but tab and line feed, and what turns the direction of text: a diff must show what it does.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

Attribute = str | int | bool | None


class Markup(str):
    """Text that is HTML already; made here only."""

    __slots__ = ()


def tag(element: str, /, *children: "Markup | str | int | None", **attributes: Attribute) -> Markup:
    """An element; children that are no Markup are escaped, None is left out. `class_` stands for class, `a_b` for a-b.

    >>> tag("p", "1 < 2", tag("b", "yes"), class_="sum")
    '<p class="sum">1 &lt; 2<b>yes</b></p>'
    """
    given = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    return Markup(f"<{element}{given}>" if element in _VOID else f"<{element}{given}>{join(*children)}</{element}>")


def join(*children: "Markup | str | int | None") -> Markup:
    return Markup(
        "".join(child if isinstance(child, Markup) else html.escape(visible(str(child))) for child in children if child is not None)
    )


def visible(text: str) -> str:
    r"""The text without terminal colours, and with every invisible character named.

    >>> visible("\x1b[31mred\x1b[0m \u202e \x00")
    'red ⟨U+202E⟩ ⟨U+0000⟩'
    """
    return _INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", _ANSI.sub("", text.replace("\r\n", "\n")))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(visible(str(value)))}"'
