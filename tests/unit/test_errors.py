"""The tree of errors is drawn where it stands, and what the documents say of it is so."""

import re
from pathlib import Path

import pytest

from suture import errors
from suture.errors import PermanentError, Signal, SutureError, TemporaryError

ROOT = Path(__file__).resolve().parents[2]
CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, SutureError | Signal)]


@pytest.mark.parametrize("error", CLASSES, ids=lambda c: c.__name__)
def test_every_error_is_drawn_in_the_tree(error: type):
    assert error is Signal or re.search(rf"\b{error.__name__}\b", errors.__doc__ or "")


def test_the_tree_draws_nothing_that_is_not_there():
    drawn = re.findall(r"^ +((?:[A-Z]\w+ *)+)", errors.__doc__ or "", re.MULTILINE)
    known = {c.__name__ for c in CLASSES}
    assert {name for line in drawn for name in line.split() if name[0].isupper()} <= known


@pytest.mark.parametrize("error", [c for c in CLASSES if issubclass(c, SutureError)], ids=lambda c: c.__name__)
def test_a_reason_is_stable_and_an_error_without_words_says_what_it_is(error: type[SutureError]):
    assert re.fullmatch(r"[A-Z][A-Za-z]+", error.reason)
    assert 400 <= error.http_status < 600
    assert error.__doc__


def test_no_two_errors_share_a_reason():
    reasons = [c.reason for c in CLASSES if issubclass(c, SutureError)]
    assert len(reasons) == len(set(reasons))


@pytest.mark.parametrize("signal", [c for c in CLASSES if issubclass(c, Signal)], ids=lambda c: c.__name__)
def test_a_signal_cannot_be_swallowed_as_an_exception(signal: type):
    assert not issubclass(signal, Exception)


def test_an_error_either_may_heal_or_does_not():
    assert not [c for c in CLASSES if issubclass(c, TemporaryError) and issubclass(c, PermanentError)]


def test_the_documented_table_of_reasons_is_that_of_the_code():
    """Rows of CONTRIBUTING that begin `| `Reason` | status |`."""
    contributing = ROOT / "CONTRIBUTING.md"
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (\d{3}) \|", contributing.read_text(), re.MULTILINE) if contributing.exists() else []
    statuses = {c.reason: c.http_status for c in CLASSES if issubclass(c, SutureError)}
    if rows:
        assert {reason: int(status) for reason, status in rows} == statuses
