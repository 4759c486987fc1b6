"""When a schedule is due: by interval and by cron expression, through clock changes, leap days, month ends and long absences."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suture.engine.rhythm import MACROS, Every, cron
from suture.errors import InvalidRequest


def at(text):
    return datetime.fromisoformat(f"{text}+00:00")


def times(expression, zone, after, count):
    """The next local times, with their offset."""
    rhythm, found, time = cron(expression, zone), [], at(after)
    for _ in range(count):
        time = rhythm.after(time, now=time)
        found.append(f"{time.astimezone(ZoneInfo(zone)):%d %H:%M%z}")
    return found


@pytest.mark.parametrize(
    ("zone", "expression", "after", "expected"),
    [
        # the hour from 02:00 is skipped: a fixed time is due at the end of the gap, once
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00", ["29 03:00+0200", "30 02:30+0200"]),
        ("Europe/Berlin", "0 2,3 * * *", "2026-03-28T12:00", ["29 03:00+0200", "30 02:00+0200"]),
        ("Europe/Berlin", "0,30 2 * * *", "2026-03-28T12:00", ["29 03:00+0200", "30 02:00+0200", "30 02:30+0200"]),
        ("America/New_York", "15 2 * * *", "2026-03-07T12:00", ["08 03:00-0400", "09 02:15-0400"]),
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T00:00", ["04 02:30+1100", "05 02:15+1100"]),
        # the hour from 02:00 comes twice: a fixed time is due in the first, once
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00", ["25 02:30+0200", "26 02:30+0100"]),
        ("America/New_York", "30 1 * * *", "2026-10-31T12:00", ["01 01:30-0400", "02 01:30-0500"]),
        ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T00:00", ["05 01:45+1100", "06 01:45+1030"]),
        # asked in the hour that comes for the second time
        ("Europe/Berlin", "30 2 * * *", "2026-10-25T01:10", ["26 02:30+0100"]),
        # with a star it follows the clock: every real hour, and nothing in a gap
        ("Europe/Berlin", "0 * * * *", "2026-10-24T23:30", ["25 02:00+0200", "25 02:00+0100", "25 03:00+0100"]),
        ("Europe/Berlin", "@hourly", "2026-03-29T00:30", ["29 03:00+0200", "29 04:00+0200"]),
        ("Europe/Berlin", "*/20 * * * *", "2026-03-29T00:30", ["29 01:40+0100", "29 03:00+0200"]),
        ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00", ["30 02:00+0200"]),
        ("Australia/Lord_Howe", "0 * * * *", "2026-04-04T13:30", ["05 01:00+1100", "05 02:00+1030"]),
    ],
)
def test_a_clock_change_loses_and_doubles_no_fixed_time(zone, expression, after, expected):
    assert times(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2025-01-01T00:00", ["2028-02-29", "2032-02-29"]),
        ("0 0 31 * *", "2026-01-31T00:00", ["2026-03-31", "2026-05-31"]),
        ("0 0 L * *", "2028-01-31T00:00", ["2028-02-29", "2028-03-31"]),
        ("0 0 13 * fri", "2026-11-01T00:00", ["2026-11-06", "2026-11-13", "2026-11-20"]),  # of two days one is enough
        ("0 0 */2 * fri", "2026-11-01T00:00", ["2026-11-13", "2026-11-27"]),  # a star makes it both
        ("0 0 1 jan,JUL *", "2026-01-01T00:00", ["2026-07-01", "2027-01-01"]),
        ("0 0 * * 7", "2026-11-02T00:00", ["2026-11-08"]),
        ("0 0 * * mon-wed/2", "2026-11-02T00:00", ["2026-11-04", "2026-11-09"]),
        ("@yearly", "2026-01-01T00:00", ["2027-01-01"]),
    ],
)
def test_days_are_found_as_cron_finds_them(expression, after, expected):
    rhythm, time, found = cron(expression, "UTC"), at(after), []
    for _ in expected:
        time = rhythm.after(time, now=time)
        found.append(f"{time:%Y-%m-%d}")
    assert found == expected


@pytest.mark.parametrize("macro", MACROS)
def test_each_macro_is_understood(macro):
    assert cron(macro, "Europe/Berlin").first(at("2026-01-01T00:00"), starts_at=None)


def test_what_is_never_due_is_refused():
    with pytest.raises(InvalidRequest, match="never due"):
        cron("0 0 */20 * 1L", "UTC").first(at("2026-01-01T00:00"), starts_at=None)


def test_time_zones_are_known_where_the_system_has_none():
    """A slim image: the package tzdata stands in."""
    text = "from suture.engine.rhythm import cron; cron('0 0 * * *', 'Australia/Lord_Howe')"
    subprocess.run([sys.executable, "-c", text], env={"PYTHONTZPATH": ""}, check=True)


@pytest.mark.parametrize("zone", ["America/New_York", "Pacific/Kiritimati"])
def test_the_zone_of_the_machine_is_of_no_account(zone):
    text = "import datetime; from suture.engine.rhythm import cron; print(cron('30 2 * * *', 'Europe/Berlin').first(%r, starts_at=None))"
    done = subprocess.run(
        [sys.executable, "-c", text % at("2026-03-28T12:00")], env={"TZ": zone}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "2026-03-29 01:00:00+00:00"


def test_without_the_extra_an_interval_works_and_a_cron_expression_says_what_it_needs():
    text = """
import sys
sys.modules["cronsim"] = None
from datetime import timedelta
from suture.engine.rhythm import CRON, Every, cron
Every(timedelta(hours=1))
print(CRON)
cron("0 * * * *", "UTC")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    assert "ConfigError: Cron expressions need one more library: pip install 'suture[cron]'." in done.stderr


def test_a_start_is_a_time_itself():
    start = at("2026-01-02T03:00")
    assert cron("0 3 * * *", "UTC").first(at("2026-01-01T00:00"), starts_at=start) == start
    assert Every(timedelta(hours=1)).first(at("2026-01-01T00:00"), starts_at=start) == start
    assert Every(timedelta(hours=5)).first(at("2026-01-02T04:00"), starts_at=start) == at("2026-01-02T08:00")


minutes = st.integers(0, 59)
field = st.one_of(st.just("*"), minutes.map(str), st.sampled_from(["*/7", "5-50/9", "0,30"]))
hours = st.sampled_from(["*", "*/3", "2", "1,2,3", "0-4", "23"])
expressions = st.builds("{} {} {} * {}".format, field, hours, st.sampled_from(["*", "1", "*/5"]), st.sampled_from(["*", "sun", "1-5"]))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu"])
moments = st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
rhythms = st.one_of(st.builds(cron, expressions, zones), st.builds(Every, st.timedeltas(timedelta(minutes=1), timedelta(days=3))))


@given(rhythms, moments, st.timedeltas(timedelta(0), timedelta(days=4)), st.integers(1, 20), st.data())
def test_each_time_comes_once_and_in_order_however_often_one_looks(rhythm, start, away, keep, data):
    """One look after a long absence, and many looks in between, see the same times."""
    first = rhythm.first(start, starts_at=None)
    now = first + away

    seen, next_ = [], first
    for part in [*sorted(data.draw(st.lists(st.timedeltas(timedelta(0), away), max_size=4))), away]:
        while next_ <= first + part:
            # in pieces of which each is kept to its last time
            due = rhythm.due(next_, min(first + part, next_ + timedelta(hours=12)), keep=1_000)
            assert (due.earlier, due.complete) == (0, True)
            assert due.next > due.times[-1]
            seen, next_ = seen + due.times, due.next

    assert seen == sorted(set(seen))
    assert seen[0] == first
    assert seen[-1] <= now < next_

    counted, time = 0, first
    while time <= now:
        due = rhythm.due(time, now, keep=keep)
        assert len(due.times) <= keep
        counted += due.earlier + len(due.times)
        time = due.next
        if due.complete:
            assert due.times == seen[-len(due.times) :]
    assert counted == len(seen)
    assert time == next_
