"""Secrets never enter the evidence, whichever way they come; what is not secret stays as it was, at the same place."""

import base64
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.redaction import LAST_APPLIED, MASK, redact_bytes, redact_object
from suture.remediation.evidence import Evidence, Log, Note

WORD = "Tr0ub4dor"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl"
AWS = "AKIAIOSFODNN7EXAMPLE"

PLANTED = [
    ("Authorization: Bearer {}", "abcdef1234567890"),
    ("using bearer {}", "abcdef1234567890"),
    ("token is {}", JWT),
    ("key {} used", AWS),
    ("postgres://app:{}@db.shop:5432/web", WORD),
    ("DB_PASSWORD={}", WORD),
    ("--password={} --user=app", WORD),
    ("mysql --password {} -u root", WORD),
    ('{{"password": "{}"}}', WORD),
    ("'api_key': '{}'", WORD),
    ("client_secret={}&grant=x", WORD),
    ("password: {}", WORD),
    ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----", "MIIEow" * 20),
    ("clone with {}", "ghp_" + "a1B2" * 9),
]


@pytest.mark.parametrize(("text", "secret"), PLANTED)
def test_a_secret_in_a_log_is_masked_and_nothing_moves(text, secret):
    line = f"2026-01-01 before {text.format(secret)} after\n".encode()

    hidden = redact_bytes(line)

    assert secret.encode() not in hidden
    assert len(hidden) == len(line)
    assert hidden.startswith(b"2026-01-01 before ")
    assert hidden.endswith(b" after\n")


@pytest.mark.parametrize(
    "line",
    [
        b'secret "app-mysql-secrets" not found',
        b"couldn't find key password in Secret shop/login",
        b"flag provided but not defined: -token-file",
        b'Get "http://10.0.0.1:8080/healthz": dial tcp 10.0.0.1:8080: connect: connection refused',
        b"KeyError: 'API_TOKEN'",
        b"basic checks of the bearer protocol done",
        b"registry.example.com/shop/web@sha256:" + b"ab" * 32,
        b"https://hook.ops.svc:443/x?timeout=10s",
    ],
)
def test_a_message_that_only_speaks_of_secrets_stays_readable(line):
    assert redact_bytes(line) == line


def test_the_values_of_a_secret_are_emptied_and_its_keys_stay():
    given_ = {
        "kind": "Secret", "type": "Opaque", "data": {"word": base64.b64encode(WORD.encode()).decode()}, "stringData": {"plain": WORD},
        "metadata": {"name": "x", "annotations": {LAST_APPLIED: json.dumps({"data": WORD}), "team": "a"}},
    }  # fmt: skip

    clean = redact_object(given_)

    assert clean["data"] == {"word": ""}
    assert clean["stringData"] == {"plain": ""}
    assert clean["metadata"]["annotations"] == {"team": "a"}


@pytest.mark.parametrize("name", ["DB_PASSWORD", "API_TOKEN", "CLIENT_SECRET", "SIGNING_KEY", "db.password", "ADMIN_PASSWD"])
def test_a_literal_variable_with_a_secret_name_is_masked(name):
    pod = {
        "kind": "Pod",
        "spec": {"containers": [{"name": "app", "env": [{"name": name, "value": WORD}, {"name": "MODE", "value": "fast"}]}]},
    }

    env = redact_object(pod)["spec"]["containers"][0]["env"]

    assert env == [{"name": name, "value": MASK}, {"name": "MODE", "value": "fast"}]


def test_a_password_among_arguments_is_masked():
    pod = {"kind": "Pod", "spec": {"containers": [{"args": ["--user", "app", "--password", WORD, "--port", "80"]}]}}

    assert redact_object(pod)["spec"]["containers"][0]["args"] == ["--user", "app", "--password", MASK, "--port", "80"]


def test_a_secret_name_in_a_config_map_hides_its_value():
    assert redact_object({"kind": "ConfigMap", "data": {"token": WORD, "mode": "fast"}})["data"] == {"token": MASK, "mode": "fast"}


def test_references_to_secrets_are_no_secrets():
    source = {"secretKeyRef": {"name": "login", "key": "password"}}
    pod = {
        "kind": "Pod",
        "spec": {
            "volumes": [{"name": "v", "secret": {"secretName": "login"}}],
            "containers": [{"env": [{"name": "A", "valueFrom": source}]}],
        },
    }

    assert redact_object(pod) == pod


@given(
    before=st.text(string.ascii_letters + " ", max_size=30),
    after=st.text(string.ascii_letters + " ", max_size=30),
    planted=st.sampled_from(PLANTED),
)
def test_no_planted_secret_survives_in_any_part_of_the_evidence(before, after, planted):
    text, secret = planted
    line = f"{before} {text.format(secret)} {after}"
    evidence = Evidence(
        ({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "x", "namespace": "n"}, "message": line},),
        (Log("n", "p", "c", previous=False, content=line.encode()),),
        (Note("commands.txt", line.encode()),),
    )

    assert all(secret.encode() not in item.content for item in evidence.to_items())


@given(st.binary(max_size=400))
def test_masking_twice_changes_nothing_more(content):
    once = redact_bytes(content)

    assert redact_bytes(once) == once
    assert len(once) == len(content)


@given(
    st.lists(
        st.sampled_from([t.format(s) for t, s in PLANTED] + ["password=", "token:", '"', "'", "://", "@", "eyJ", " ", "\n", "="]),
        max_size=8,
    )
)
def test_masking_twice_changes_nothing_more_where_secrets_touch(parts):
    once = redact_bytes("".join(parts).encode())

    assert redact_bytes(once) == once


def test_a_secret_where_a_long_log_is_cut_does_not_survive_by_half():
    secret = b"-----BEGIN PRIVATE KEY-----\n" + b"MIIEow" * 1_000 + b"\n-----END PRIVATE KEY-----\n"
    lines = b"".join(b"line %d\n" % n for n in range(3_000)) + secret

    kept = Evidence(logs=(Log("n", "p", "c", previous=False, content=lines * 30),)).logs[0].content

    assert b"MIIEow" not in kept
