"""Tokens say who calls and what they may; a wrong setting is refused without repeating the token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.api.authentication import Tokens, identify
from suture.api.console import session
from suture.errors import AccessDenied, ConfigError, Unauthenticated

TOKENS = Tokens.read("vera:viewer=0123456789abcdef-v, otto=0123456789abcdef=o\nanna:approver=0123456789abcdef-a,")
NOW = 1_800_000_000


def test_each_token_has_a_name_and_a_role_and_operator_is_the_default():
    assert [(p.name, p.role) for _, p in TOKENS.known] == [("vera", "viewer"), ("otto", "operator"), ("anna", "approver")]
    assert identify(TOKENS, "0123456789abcdef=o").name == "otto"


def test_a_role_holds_the_ones_before_it_and_a_refusal_names_what_is_needed():
    vera, anna = TOKENS.named("vera"), TOKENS.named("anna")
    assert anna.demand("viewer") is anna

    with pytest.raises(AccessDenied, match="vera is viewer; this needs approver"):
        vera.demand("approver")


@pytest.mark.parametrize("text", [None, "", " , \n"])
def test_without_tokens_nobody_is_let_in(text):
    with pytest.raises(Unauthenticated, match="No token is configured"):
        identify(Tokens.read(text), "anything")


@given(st.text())
def test_whatever_is_presented_is_refused_and_nothing_else(presented):
    with pytest.raises(Unauthenticated):
        identify(TOKENS, presented)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("secret-0123456789", "entry 1: write name=token"),
        ("ok=0123456789abcdef,=secret-0123456789", "entry 2: write name=token"),
        ("anna=", "entry 1: write name=token"),
        ("anna:boss=secret-0123456789", "anna has the role 'boss'; there are viewer, operator, approver"),
        ("anna=secret-0123456789,anna=secret-9876543210", "more than one token for anna"),
    ],
)
def test_a_wrong_setting_is_named_and_the_token_is_not(text, words):
    with pytest.raises(ConfigError) as refusal:
        Tokens.read(text)

    assert words in refusal.value.message
    assert "secret-" not in refusal.value.message


def test_a_session_holds_until_it_is_too_old():
    cookie = session.seal(TOKENS, TOKENS.named("anna"), now=NOW)

    assert session.unseal(TOKENS, cookie, now=NOW + session.LIFETIME).principal.name == "anna"
    assert session.unseal(TOKENS, cookie, now=NOW + session.LIFETIME + 1) is None
    assert session.unseal(TOKENS, cookie, now=NOW - 1) is None


def test_a_session_ends_when_any_token_changes():
    cookie = session.seal(TOKENS, TOKENS.named("anna"), now=NOW)
    changed = Tokens.read("anna:approver=0123456789abcdef-a,otto=another-0123456789")

    assert session.unseal(changed, cookie, now=NOW) is None


@given(st.text())
def test_a_made_up_cookie_is_no_session(cookie):
    assert session.unseal(TOKENS, cookie, now=NOW) is None


@given(st.sampled_from(range(90)), st.characters())
def test_a_changed_cookie_is_no_session(place, character):
    cookie = session.seal(TOKENS, TOKENS.named("anna"), now=NOW)
    changed = cookie[:place] + character + cookie[place + 1 :]

    assert changed == cookie or session.unseal(TOKENS, changed, now=NOW) is None


def test_the_token_of_a_form_is_bound_to_its_session():
    one, other = (session.unseal(TOKENS, session.seal(TOKENS, TOKENS.named(name), now=NOW), now=NOW) for name in ("anna", "otto"))

    assert session.is_form_of(one, one.form)
    assert not session.is_form_of(one, other.form)


@pytest.mark.parametrize(
    ("origin", "site", "host", "same"),
    [
        ("https://a.example", None, "a.example", True),
        ("http://127.0.0.1:8080", "same-origin", "127.0.0.1:8080", True),
        ("https://evil.example", "cross-site", "a.example", False),
        ("https://a.example.evil", None, "a.example", False),
        ("null", "same-origin", "a.example", False),
        (None, "same-origin", "a.example", True),
        (None, "same-site", "a.example", False),
        (None, None, "a.example", False),
        ("https://a.example", None, None, False),
    ],
)
def test_a_form_is_taken_from_our_own_pages_only(origin, site, host, same):
    assert session.is_same_origin(origin, site, host) is same
