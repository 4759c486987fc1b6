"""A path leads to one place of an object; a quantity is a number, whatever its unit."""

from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.remediation.paths import ABSENT, Field, Index, New, Pick, join, lookup, parse
from suture.remediation.quantity import amount, cpu, memory

POD = {"spec": {"containers": [{"name": "app", "image": "a"}, {"name": "b.c", "image": "b"}]}, "data": {"a.b": 1, "x[0]": 2, "null": None}}
POD["hosts"] = [{"name": "a]b", "port": 80}, {"name": '"c"', "port": 81}]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.containers[name=app].image", "a"),
        ("spec.containers[name=b.c].image", "b"),
        ("spec.containers[1].name", "b.c"),
        (r"data.a\.b", 1),
        ('data["a.b"]', 1),
        ('data["x[0]"]', 2),
        ('spec.containers[name="b.c"].image', "b"),
        ('hosts[name="a]b"].port', 80),
        (r'hosts[name="\"c\""].port', 81),
        (r"data.x\[0\]", 2),
        ("data.null", None),
        ("spec.containers[2]", ABSENT),
        ("spec.containers[name=x].image", ABSENT),
        ("spec.containers.name", ABSENT),
        ("spec[0]", ABSENT),
        ("spec.containers[+]", ABSENT),
    ],
)
def test_a_path_finds_what_stands_there(path, value):
    assert lookup(POD, path) == value


@pytest.mark.parametrize(
    "path", ["", ".", "a.", "a..b", "a[", "a[]", "a[b]", "a]b", "a[0]b", ".a", "a[name=x", "x" * 5_000, "[+].b", 'a["b', 'a[""]', 'a[n="x]']
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="path"):
        parse(path)


def test_a_path_is_made_of_steps_and_read_back():
    path = join("spec.containers", Pick("name", "a.b"), "env", New())

    assert path == "spec.containers[name=a.b].env[+]"
    assert parse(path) == (Field("spec"), Field("containers"), Pick("name", "a.b"), Field("env"), New())
    assert join("", "a", "", Index(0)) == "a[0]"


@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5))
def test_any_keys_survive_a_path(keys):
    assert parse(join(*(Field(key) for key in keys))) == tuple(Field(key) for key in keys)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_any_values_survive_a_path(values):
    picks = tuple(Pick("name", value) for value in values)
    assert parse(join("items", *picks)) == (Field("items"), *picks)


@given(st.text(max_size=40))
def test_no_text_makes_a_path_raise_anything_else(text):
    with suppress(ValueError):
        lookup(POD, text)


@pytest.mark.parametrize(
    ("quantity", "number"),
    [
        ("256Mi", 268435456),
        ("256M", 256000000),
        ("350m", Fraction(35, 100)),
        ("1.5", Fraction(3, 2)),
        (2, 2),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("0", 0),
        (".5", Fraction(1, 2)),
    ],
)
def test_a_quantity_is_a_number(quantity, number):
    assert amount(quantity) == number


@pytest.mark.parametrize("wrong", ["", "x", "1x", "Mi", "1 Gi", None, True, [], "1e999", "--1", "9" * 40, " 1Gi", "1Gi\n", "\u0661"])
def test_what_is_no_quantity_is_none(wrong):
    assert amount(wrong) is None


def test_binary_and_decimal_units_differ():
    assert amount("256Mi") > amount("256M")


def test_numbers_are_written_as_people_write_them_and_never_rounded_up():
    assert [cpu(Fraction(3, 2)), cpu(Fraction(2)), cpu(Fraction(1, 3))] == ["1500m", "2", "333m"]
    assert [memory(Fraction(180 << 20)), memory(Fraction(2 << 30)), memory(Fraction((1 << 30) + 1)), memory(Fraction(5))] == [
        "180Mi",
        "2Gi",
        "1024Mi",
        "5",
    ]
