"""Whatever the document: outside of the span nothing changes, and the result reads as the old one with that path alone changed."""

import copy
import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from suture.remediation.incident import Change
from suture.remediation.manifest.editing import edit

TARGET = "Zq7Target"
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co", "Zl", "Zp")), max_size=12)
KEYS = st.sampled_from(["a", "b", "image", "app.kubernetes.io/name", "x-y", "größe", "1", "yes", "a b", "k:v", "# no"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    WORDS,
    st.sampled_from(["1.10", "yes", "0644", "256Mi", "a: b", "x #y", "*a", "- b"]),
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12)


class Writer:
    """Writes a tree as YAML with a style drawn for every node."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self.step = draw(st.sampled_from([1, 2, 4]))
        self.newline = draw(st.sampled_from(["\n", "\r\n"]))

    def flow(self, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{json.dumps(k, ensure_ascii=False)}: {self.flow(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + " , ".join(map(self.flow, value)) + "]"
        if value == TARGET and self._draw(st.booleans()):
            return self._draw(st.sampled_from([TARGET, f"'{TARGET}'"]))
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\x7f").replace("\ufeff", "\\ufeff")

    def block(self, value: Any, indent: int) -> str:
        """What stands after a colon or dash, with its line end."""
        tail = self._draw(st.sampled_from(["", "  # note", "\t# note", "   "]))
        if not isinstance(value, dict | list) or not value or self._draw(st.integers(0, 3)) == 0:
            return " " + self.flow(value) + tail + self.newline
        lines = tail + self.newline
        pad = " " * (indent + self.step)
        for item in value.items() if isinstance(value, dict) else enumerate(value):
            lines += self._draw(st.sampled_from(["", "", pad + "# above" + self.newline, self.newline]))
            head = json.dumps(item[0], ensure_ascii=False) + ":" if isinstance(value, dict) else "-"
            lines += pad + head + self.block(item[1], indent + self.step)
        return lines


def places(tree: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, value in inner for place in places(value, (*path, key)))]


def at(tree: Any, place: tuple[str | int, ...]) -> Any:
    for step in place:
        tree = tree[step]
    return tree


def written(place: tuple[str | int, ...]) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f"[{json.dumps(step, ensure_ascii=False)}]" for step in place)


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, Any, bytes, bytes]:
    tree = {"top": draw(TREES), "list": draw(st.lists(TREES, max_size=3))}
    assume(TARGET not in json.dumps(tree))
    writer = Writer(draw)
    head = writer.newline.join(["# first", "kind: Deployment", "metadata: {name: web}", "spec:"])
    other = f"---{writer.newline}kind: Service{writer.newline}metadata: {{name: web}}{writer.newline}"
    before, after = draw(st.sampled_from(["", "\ufeff", other])), draw(st.sampled_from(["", other]))
    body = before + head + writer.block(tree, 0)
    if body.startswith("---"):
        body = other + "---" + writer.newline + body[len(other) :]
    if not after and draw(st.booleans()):
        body = body.rstrip("\r\n")
    return (body + after).encode(), tree, b"", b""


def spec_of(data: bytes) -> Any:
    yaml = YAML(typ="safe", pure=True)
    roots = [root for root in yaml.load_all(data.decode().removeprefix("\ufeff").replace("\t# note", " # note")) if root]
    return next(root["spec"] for root in roots if root["kind"] == "Deployment"), [r for r in roots if r["kind"] != "Deployment"]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_place_may_become_any_value(data: st.DataObject) -> None:
    source, tree, _, _ = data.draw(documents())
    place = data.draw(st.sampled_from([p for p in places(tree) if p]))
    value = data.draw(TREES)

    after = edit(source, Change(object="Deployment/x/web", operation="set", path=written(place), value=value))

    expected = copy.deepcopy(tree)
    at(expected, place[:-1])[place[-1]] = value
    assert spec_of(after) == (expected, spec_of(source)[1])
    assert edit(after, Change(object="Deployment/x/web", operation="set", path=written(place), value=value)) == after


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_scalar_s_edit_leaves_every_byte_before_and_behind_it(data: st.DataObject) -> None:
    _, tree, _, _ = data.draw(documents())
    place = data.draw(st.sampled_from([p for p in places(tree) if p and not isinstance(at(tree, p), dict | list)] or [("top",)]))
    at(tree, place[:-1])[place[-1]] = TARGET
    source = data.draw(
        st.composite(lambda draw: ("# x\nkind: Deployment\nmetadata: {name: web}\nspec:" + Writer(draw).block(tree, 0)).encode())()
    )
    value = data.draw(SCALARS)

    after = edit(source, Change(object="Deployment/x/web", operation="set", path=written(place), value=value, before=TARGET))

    head, tail = source.split(TARGET.encode())
    quote = tail[:1] if tail[:1] in (b'"', b"'") else b""
    assert after.startswith(head.removesuffix(quote))
    assert after.endswith(tail.removeprefix(quote))
    assert at(spec_of(after)[0], place) == value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_place_may_be_removed(data: st.DataObject) -> None:
    source, tree, _, _ = data.draw(documents())
    place = data.draw(st.sampled_from([p for p in places(tree) if p]))

    after = edit(source, Change(object="Deployment/x/web", operation="remove", path=written(place)))

    expected = copy.deepcopy(tree)
    del at(expected, place[:-1])[place[-1]]
    assert spec_of(after)[0] == expected


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_anything_may_be_added(data: st.DataObject) -> None:
    source, tree, _, _ = data.draw(documents())
    place = data.draw(st.sampled_from([p for p in places(tree) if isinstance(at(tree, p), dict | list)]))
    value, holder = data.draw(TREES), at(tree, place)
    path = written(place) + ("[+]" if isinstance(holder, list) else ".fresh")

    after = edit(source, Change(object="Deployment/x/web", operation="add", path=path, value=value))

    expected = copy.deepcopy(tree)
    inside = at(expected, place)
    if isinstance(inside, dict):
        inside["fresh"] = value
    elif value not in inside or after != source:
        inside.append(value)
    assert spec_of(after)[0] == expected
