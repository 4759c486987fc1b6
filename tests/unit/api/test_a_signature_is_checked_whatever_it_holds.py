"""The check of a signature is a question with two answers; no input makes it raise."""

import hmac
import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.api.signatures import is_signed, read_secrets
from suture.errors import ConfigError

ENVELOPES = Path(__file__).resolve().parents[2] / "cases" / "webhooks"


def sign(body: bytes, secret: bytes) -> bytes:
    return b"v1=" + hmac.new(secret, body, sha256).hexdigest().encode()


@given(body=st.binary(), header=st.binary(), secrets=st.lists(st.binary(min_size=1), max_size=3))
def test_any_bytes_in_the_header_are_answered_with_no(body, header, secrets):
    assert is_signed(body, header, secrets) is False


@given(
    body=st.binary(),
    secret=st.binary(min_size=1),
    before=st.lists(st.binary(max_size=80), max_size=3),
    blank=st.sampled_from([b"", b" ", b"\t "]),
)
def test_a_good_signature_among_any_others_is_found(body, secret, before, blank):
    header = b",".join([*before, blank + sign(body, secret) + blank])

    assert is_signed(body, header, [b"another", secret])


@given(body=st.binary(min_size=1), secret=st.binary(min_size=1), at=st.integers(min_value=0), flip=st.integers(1, 255))
def test_one_changed_byte_of_the_body_is_noticed(body, secret, at, flip):
    signature = sign(body, secret)
    changed = bytearray(body)
    changed[at % len(body)] ^= flip

    assert not is_signed(bytes(changed), signature, [secret])


@pytest.mark.parametrize("path", sorted(ENVELOPES.glob("pagerduty-*.json")), ids=lambda path: path.stem)
def test_the_recorded_envelopes_are_signed(path):
    found = json.loads(path.read_text())

    assert is_signed(found["raw_body"].encode(), found["headers"]["X-PagerDuty-Signature"].encode(), read_secrets(found["secret"]))


@pytest.mark.parametrize("text", ["", " ", "a,", ",a", "a,,b"])
def test_an_empty_secret_refuses_to_start(text):
    with pytest.raises(ConfigError, match="SUTURE_API_PAGERDUTY_SECRET holds an empty secret"):
        read_secrets(text)


def test_secrets_are_separated_by_commas_and_blanks_do_not_count():
    assert read_secrets(" one, two ") == (b"one", b"two")
    assert read_secrets(None) == ()
