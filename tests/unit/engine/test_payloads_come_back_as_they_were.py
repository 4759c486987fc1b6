"""Whatever JSON can say, and what Python adds to it, comes back exactly; what cannot be kept is refused at the door with its place."""

import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.engine.payload import DEPTH, LIMIT, NAME_LIMIT, admit, admit_name, decode, digest, encode
from suture.errors import InvalidRequest, PayloadTooLarge, PayloadUnfit

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["\0", "\ud800", "$suture", "1e5", "-0.0", '"$suture"', "\\u0000"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([2**53 + 1, 10**400, -0.0, 0.0, 1e22, 1e15, 5e-324, math.inf, -math.inf, math.nan])
SCALARS = st.none() | st.booleans() | NUMBERS | ANY_TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner), max_leaves=25)


def same(a, b):
    """Equal in type and value: 1 is not 1.0, 0.0 is not -0.0, NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    return a == b


@given(VALUES)
def test_any_value_comes_back(value):
    assert same(decode(encode(value)), value)


@given(VALUES)
def test_what_is_written_is_json_that_postgres_takes(value):
    text = encode(value)
    assert text.isascii()
    assert "\\u0000" not in text.replace("\\\\", "")
    assert not any(f"\\ud{c}" in text.lower().replace("\\\\", "") and "\ud800" in text for c in "89abcdef")
    json.loads(text, parse_constant=pytest.fail)


@given(VALUES)
def test_a_value_that_looks_like_our_own_tag_is_no_tag(value):
    for kind in ("text", "float", "object", "else"):
        tagged = {"$suture": kind, "text": value}
        assert same(decode(encode(tagged)), tagged)


@pytest.mark.parametrize(
    "text",
    [
        '{"$suture":"text"}',
        '{"$suture":"text","text":1}',
        '{"$suture":"float","text":"x"}',
        '{"$suture":"object","text":[1]}',
        '{"$suture":[]}',
    ],
)
def test_a_tag_that_a_person_wrote_by_hand_is_read_as_it_stands(text):
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_integer_too_long_for_python_to_print_comes_back_and_is_refused_at_the_door(sign):
    value = {"n": [sign * 10**5000]}
    assert decode(encode(value)) == value
    with pytest.raises(PayloadUnfit, match="more than 4,200 digits"):
        admit(value)


@given(VALUES)
def test_the_door_takes_a_value_exactly_or_says_what_is_wrong(value):
    try:
        text = admit(value)
    except PayloadUnfit as refused:
        complaint = str(refused)
    else:
        assert same(decode(text), value)
        return
    assert complaint.startswith(("input", "a key of input"))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({"a": ["x", "b\0c"]}, "input.a[1] has a NUL character at 1"),
        ({"a": {"k\0": 1}}, "a key of input.a has a NUL character at 1"),
        ({"a": "\ud800"}, "input.a has half of a surrogate pair at 0"),
        ([math.nan], "input[0] is nan"),
        ([[math.inf]], "input[0][0] is inf"),
        ({"a": b"x"}, "The payload is not JSON: Object of type bytes is not JSON serializable"),
    ],
)
def test_a_refusal_names_the_place(value, complaint):
    with pytest.raises(PayloadUnfit) as refused:
        admit(value)
    assert complaint in str(refused.value)


def nested(levels, *, by=list):
    value = 1
    for _ in range(levels):
        value = [value] if by is list else {"k": value}
    return value


@pytest.mark.parametrize("by", [list, dict])
def test_nesting_is_kept_to_the_limit_and_refused_beyond_it(by):
    assert decode(admit(nested(DEPTH, by=by))) == nested(DEPTH, by=by)
    with pytest.raises(PayloadUnfit, match=f"nested deeper than {DEPTH} levels"):
        admit(nested(DEPTH + 1, by=by))


@pytest.mark.parametrize("levels", [1_500, 50_000])
def test_nesting_without_end_is_a_clear_refusal_and_no_crash(levels):
    assert levels > sys.getrecursionlimit()
    with pytest.raises(PayloadUnfit, match="nested"):
        encode(nested(levels))
    with pytest.raises(PayloadUnfit, match="nested"):
        admit(nested(levels))


def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_not():
    assert len(admit("x" * (LIMIT - 2))) == LIMIT
    with pytest.raises(PayloadTooLarge, match=f"{LIMIT + 1:,} bytes and the limit is {LIMIT:,}"):
        admit("x" * (LIMIT - 1))


@given(st.dictionaries(ANY_TEXT, SCALARS, min_size=2))
def test_the_digest_does_not_know_the_order_of_keys(value):
    assert digest(encode(value)) == digest(encode(dict(reversed(value.items()))))


@given(st.text())
def test_a_name_is_taken_as_it_is_or_refused(name):
    try:
        assert admit_name(name, "step") == name
    except InvalidRequest:
        assert not name or len(name) > NAME_LIMIT or any(c < " " or c == "\x7f" for c in name)
