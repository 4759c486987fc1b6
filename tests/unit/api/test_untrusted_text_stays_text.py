"""Whatever a log or a title holds, on the page it is text that one can see."""

import html
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.api.console.markup import Markup, tag
from suture.api.console.words import diff, outside


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.elements += [name for name, _ in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("C",))))
def test_any_text_is_no_element_and_can_be_read_back(text):
    found = Elements(tag("p", text, title=text))

    assert found.elements == ["p", "title"]
    assert found.text == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.example\x07here\x1b]8;;\x07", "here"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\x00b\rc", "a⟨U+0000⟩b⟨U+000D⟩c"),
        ("\ud800", "⟨U+D800⟩"),
    ],
)
def test_what_cannot_be_seen_is_named_or_left_out(text, shown):
    assert tag("b", text) == f"<b>{shown}</b>"


def test_a_part_of_a_diff_cannot_close_its_line():
    shown = diff("+</span></pre><script>x</script>\n-\x1b[31mold")

    assert "<script>" not in shown
    assert html.escape("</span></pre>") in shown
    assert '<span class="removed">-old</span>' in shown


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", " https://x", "JAVASCRIPT:1", ""])
def test_only_addresses_of_the_web_become_links(address):
    assert not isinstance(outside(address, "name"), Markup)
