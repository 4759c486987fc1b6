"""Backoff: pauses grow to a maximum, jitter scatters them, and what does not help is not tried."""

import random
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from suture.engine.retry import NEVER, Retry
from suture.errors import PermanentError, RateLimited, TemporaryError

RETRIES = st.builds(
    Retry,
    attempts=st.integers(1, 1000),
    initial=st.timedeltas(timedelta(0), timedelta(hours=1)),
    factor=st.floats(1, 10),
    maximum=st.timedeltas(timedelta(0), timedelta(days=7)),
    jitter=st.floats(0, 1),
)
CHANCES = st.floats(0, 1, exclude_max=True)


@given(RETRIES, st.integers(1, 100_000), CHANCES)
def test_a_pause_is_never_negative_nor_longer_than_the_maximum_and_its_jitter(retry, attempt, chance):
    pause = retry.delay(attempt, chance=chance)
    assert timedelta(0) <= pause <= retry.maximum * (1 + retry.jitter) + timedelta(microseconds=1)


@given(RETRIES, st.integers(1, 200))
def test_without_jitter_no_pause_is_shorter_than_the_one_before(retry, attempt):
    assert retry.delay(attempt, chance=0.5) <= retry.delay(attempt + 1, chance=0.5)


@given(RETRIES, st.integers(1, 50), CHANCES)
def test_jitter_stays_within_its_part_of_the_pause(retry, attempt, chance):
    middle = retry.delay(attempt, chance=0.5)
    assert abs(retry.delay(attempt, chance=chance) - middle) <= middle * retry.jitter + timedelta(microseconds=2)


def test_many_failures_at_once_do_not_come_back_at_once():
    random.seed(7)
    pauses = {Retry().delay(3) for _ in range(100)}
    assert len(pauses) > 90
    assert max(pauses) - min(pauses) > timedelta(seconds=1)


@given(RETRIES, st.integers(1, 2000))
def test_the_last_try_is_the_one_that_was_promised(retry, attempt):
    assert (retry.after(ValueError(), attempt) is None) == (attempt >= retry.attempts)


@given(RETRIES, st.integers(1, 2000))
def test_a_permanent_error_has_no_next_try(retry, attempt):
    assert retry.after(PermanentError(), attempt) is None


@given(st.timedeltas(timedelta(days=-1), timedelta(days=30)))
def test_a_temporary_error_s_own_delay_counts_and_is_never_negative(delay):
    for kind in (TemporaryError, RateLimited):
        assert Retry().after(kind("wait", delay=delay), 1) == max(delay, timedelta(0))


def test_never_means_one_try():
    assert NEVER.after(ValueError(), 1) is None
