"""Rhythms: when a schedule is due, by a plain interval or by a cron expression in a time zone. Pure.

A cron expression follows the wall clock as Debian's cron does. Where both minute and hour are fixed, a time that a clock change skips is
due once, at the moment when the gap ends, and a time that comes twice is due the first time alone. Where one of them begins with a star,
it is due whenever the wall clock shows it: every real hour, twice where the hour comes twice, never where it is skipped.
Knows nothing of rows (see `schedules`).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Protocol
from zoneinfo import ZoneInfo

from suture.errors import ConfigError, InvalidRequest

CRON = find_spec("cronsim") is not None
"""Whether the extra `cron` is installed: without it intervals work, and a cron expression is refused."""

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

SHORTEST = timedelta(seconds=1)

_LOOK = 2_000  # times of a cron expression that one look goes through: tens of milliseconds; after a long outage the next look goes on


@dataclass(frozen=True, slots=True)
class Due:
    """What a rhythm asks for between its next time and now."""

    times: list[datetime]
    """The newest of the due times, in order."""
    earlier: int
    """How many more were due before these."""
    next: datetime | None
    """The first time after them; None when there is none."""
    complete: bool = True
    """False: there were too many for one look, `times` are not known to be the newest, and nothing later has been looked at."""


class Rhythm(Protocol):
    def first(self, now: datetime, *, starts_at: datetime | None) -> datetime:
        """The first time of a schedule that is made now. Raises: InvalidRequest when there is none."""
        ...

    def after(self, time: datetime, *, now: datetime) -> datetime:
        """The first time after `now` of a schedule that is due at `time`. Raises: InvalidRequest when there is none."""
        ...

    def due(self, time: datetime, now: datetime, *, keep: int) -> Due:
        """The times from `time`, which is one and has come, to `now`: the newest `keep` (1,000 at most) and a count of the others."""
        ...


@dataclass(frozen=True, slots=True)
class Every:
    interval: timedelta

    def __post_init__(self) -> None:
        if self.interval < SHORTEST:
            raise InvalidRequest(f"A schedule cannot run every {self.interval.total_seconds():g} s: one second is the shortest.")

    def first(self, now: datetime, *, starts_at: datetime | None) -> datetime:
        if starts_at is None:
            return now + self.interval
        return starts_at if starts_at > now else self.after(starts_at, now=now)

    def after(self, time: datetime, *, now: datetime) -> datetime:
        return time if time > now else time + self.interval * self._count(time, now)

    def due(self, time: datetime, now: datetime, *, keep: int) -> Due:
        count = self._count(time, now)
        earlier = max(0, count - keep)
        times = [time + self.interval * number for number in range(earlier, count)]
        return Due(times, earlier, time + self.interval * count)

    def _count(self, time: datetime, now: datetime) -> int:
        return (now - time) // self.interval + 1


@dataclass(frozen=True, slots=True)
class Cron:
    expression: str
    """Five fields, with names, lists, ranges and steps, or a macro like @hourly. Of day of month and day of week one is enough, unless
    one of them begins with a star."""
    zone: ZoneInfo

    def first(self, now: datetime, *, starts_at: datetime | None) -> datetime:
        # A start is a bound that is itself allowed: the time just before it is what the search begins after.
        return self._following(now if starts_at is None else max(now, starts_at - timedelta(microseconds=1)))

    def after(self, time: datetime, *, now: datetime) -> datetime:
        return time if time > now else self._following(now)

    def due(self, time: datetime, now: datetime, *, keep: int) -> Due:
        newest: deque[datetime] = deque([time], maxlen=keep)
        for count, later in enumerate(self._from(time), start=1):
            if later > now:
                return Due(list(newest), count - len(newest), later)
            if count == _LOOK:
                return Due([], count - len(newest), newest[0], complete=False)
            newest.append(later)
        return Due(list(newest), 0, None)

    def _following(self, time: datetime) -> datetime:
        found = next(self._from(time), None)
        if found is None:
            raise InvalidRequest(f"The cron expression {self.expression!r} is never due.")
        return found

    def _from(self, time: datetime) -> Iterator[datetime]:
        """The times after `time`, in order. The search begins on the wall clock, which may show an hour for the second time."""
        from cronsim import CronSim  # noqa: PLC0415 (of an extra)

        last = time
        for found in CronSim(_fields(self.expression), time.astimezone(self.zone)):
            moment = found.astimezone(UTC)
            if moment > last:
                yield moment
                last = moment


def cron(expression: str, time_zone: str) -> Cron:
    """Raises: InvalidRequest for an expression or a zone that is none. ConfigError when the library is not installed."""
    if not CRON:
        raise ConfigError("Cron expressions need one more library: pip install 'suture[cron]'.")
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 (of an extra)

    found = Cron(expression, _zone(time_zone))
    try:
        CronSim(_fields(expression), datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise InvalidRequest(
            f"The cron expression {expression!r} is none: {str(error).lower()}. For example: `30 2 * * mon-fri`."
        ) from None
    return found


def _fields(expression: str) -> str:
    text = MACROS.get(expression.strip().lower(), expression)
    if (count := len(text.split())) != 5:
        raise InvalidRequest(
            f"The cron expression {expression!r} has {count} fields and not five: minute, hour, day of month, month, day of week. "
            f"Or use one of {', '.join(MACROS)}."
        )
    return text


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found, no name at all, a directory
        raise InvalidRequest(f"There is no time zone {name!r}: use a name of the IANA database, for example Europe/Berlin.") from None
