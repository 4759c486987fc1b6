"""A body is a value that Postgres can keep, or a sentence that says where it is not; never a crash."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.api import pagerduty
from suture.api.bodies import DEPTH, parse
from suture.errors import InvalidRequest, PayloadUnfit

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")), inner),
)


@given(JSON)
def test_any_json_is_read_as_it_is(value):
    assert parse(json.dumps(value).encode()) == value


@given(st.binary())
def test_any_bytes_are_read_or_refused(raw):
    with suppress(InvalidRequest, PayloadUnfit):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b'{"a": "\\u0000"}', "body.a has a NUL character at 0"),
        (b'{"a": ["x", "\\ud800"]}', "body.a[1] has half of a surrogate pair"),
        (b'{"a": NaN}', "body.a is nan"),
        (b'{"a": 1e999}', "body.a is inf"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "more digits"),
        (b'{"a": }', "line 1, column 7"),
        (b"\xff", "byte 0 is not text"),
        (b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1), f"deeper than {DEPTH} levels"),
        (b"[" * 500_000, f"deeper than {DEPTH} levels"),
        (b'{"a":' * 500_000, f"deeper than {DEPTH} levels"),
    ],
    ids=["nul", "surrogate", "nan", "infinity", "digits", "syntax", "utf-8", "nested", "very deep list", "very deep object"],
)
def test_a_refusal_names_the_place(raw, words):
    with pytest.raises((InvalidRequest, PayloadUnfit)) as refusal:
        parse(raw)

    assert words in refusal.value.message


@given(st.binary() | JSON.map(lambda value: json.dumps({"event": value}).encode()))
def test_any_envelope_is_an_event_or_none(body):
    pagerduty.read(body)


@given(st.dictionaries(st.sampled_from(["id", "title", "incident_key", "body", "custom_details", "alerts", "html_url", "details"]), JSON))
def test_the_data_of_an_incident_never_breaks_its_reading(data):
    event = pagerduty.Event("1", pagerduty.TRIGGERED, data)

    about = pagerduty.workload(event)

    if about is not None:
        pagerduty.incident(event, about)


@given(
    st.sampled_from(pagerduty.KINDS),
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
)
def test_a_workload_is_found_in_details_and_in_a_title_alike(kind, namespace, name):
    detailed = pagerduty.workload(
        pagerduty.Event("1", pagerduty.TRIGGERED, {"custom_details": {"namespace": namespace, kind.lower(): name}})
    )
    spelled = pagerduty.workload(pagerduty.Event("1", pagerduty.TRIGGERED, {"title": f"ALERT: {kind.upper()}/{namespace}/{name}: down"}))

    assert detailed == spelled
    assert str(detailed) == f"{kind}/{namespace}/{name}"
