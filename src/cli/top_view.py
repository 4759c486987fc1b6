"""What `suture top` shows: one glance as lines that fit into a terminal of any size from 60x15 on. Pure."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from suture.cli.listing import cell, lasting, limits, moment, plain

Glance = dict[str, Any]

_FRAME = 2  # lines that are always there: the first and the last
_HEAD = 1  # line over each table
_NUMBERS = frozenset({"due", "oldest", "delayed", "parked", "running", "beat", "for", "crashes"})
_WHOLE = dict.fromkeys(_NUMBERS, 7) | {"": 6, "presence": 8}
"""Columns that are never cut, with the width that they need."""


def view(glance: Glance | None, *, height: int, trouble: str = "", watched: bool = True) -> RenderableType:
    """The last glance, cut to `height` lines, and what is in the way of another one."""
    trouble = plain(trouble)
    if glance is None:
        return Group(_first_line(None, trouble), Text(""), *([_last_line()] if watched else []))
    makers: Sequence[tuple[Callable[[Sequence[Any]], Table], Sequence[Any]]] = (
        (_queues, glance["queues"]), (_workers, glance["workers"]), (_longest, glance["longest"]),
    )  # fmt: skip
    rooms = share(height - _FRAME - _HEAD * len(makers), [len(rows) for _, rows in makers])
    tables = [make(rows[:room]) for (make, rows), room in zip(makers, rooms, strict=True)]
    spare = height - _FRAME - sum(_HEAD + min(room, len(rows)) for room, (_, rows) in zip(rooms, makers, strict=True))
    parted: list[tuple[RenderableType, ...]] = [(Text(""), table) if spare >= len(tables) else (table,) for table in tables]
    gaps = [Text("")] * max(spare - (len(tables) if spare >= len(tables) else 0), 0) if watched else []
    return Group(_first_line(glance, trouble), *chain(*parted), *gaps, *([_last_line()] if watched else []))


def share(lines: int, wanted: Sequence[int]) -> list[int]:
    """How many of `lines` each table gets: an equal part, and what others leave over.

    >>> share(10, [2, 20, 20]), share(30, [2, 3, 4]), share(3, [9, 9, 9])
    ([2, 4, 4], [2, 3, 4], [1, 1, 1])
    """
    given, left = [0] * len(wanted), max(lines, 0)
    while left and any(have < want for have, want in zip(given, wanted, strict=True)):
        for place, want in enumerate(wanted):
            if left and given[place] < want:
                given[place] += 1
                left -= 1
    return given


def _first_line(glance: Glance | None, trouble: str) -> Text:
    if glance is None:
        return Text(trouble or "looking ...", style="bold red" if trouble else "dim", no_wrap=True, overflow="ellipsis")
    if trouble:
        return Text(f"as of {moment(glance['at'])} UTC  {trouble}", style="bold red", no_wrap=True, overflow="ellipsis")
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"suture  {moment(glance['at'])} UTC  ", style="bold")
    line.append(f"{glance['endedPerSecond']:.1f} ended/s")
    line.append(f"  {glance['failedPerSecond']:.1f} failed/s", style="red" if glance["failedPerSecond"] else "")
    line.append(f"  {glance['deadLetters']} dead letters", style="red" if glance["deadLetters"] else "")
    return line


def _last_line() -> Text:
    return Text("q quits", style="dim")


def _queues(rows: Sequence[Any]) -> Table:
    parked = any(row["parked"] for row in rows)  # most queues have no keys, and a line is short
    made = _table("QUEUE", *("due", "oldest", "delayed"), *(["parked"] if parked else []), "running", "limits", "")
    for row in rows:
        state = Text("paused", style="yellow") if row["paused"] else Text("")
        numbers = [_count(row["due"], more=row["more"]), lasting(row["oldestSeconds"]), f"{row['delayed']:,}"]
        numbers += [_count(row["parked"], more=row["parkedMore"])] if parked else []
        limited = limits(row["concurrency"], row["perKey"], row["rateStarts"], row["rateSeconds"])
        made.add_row(cell(row["name"]), *numbers, f"{row['running']:,}", limited, state)
    return made


def _count(count: int, *, more: bool) -> str:
    return f"{count:,}{'+' if more else ''}"


def _workers(rows: Sequence[Any]) -> Table:
    made = _table("WORKER", *("running", "beat"), "presence", "queues")
    for row in rows:
        made.add_row(cell(row["name"]), str(row["running"]), lasting(row["beatSeconds"]), _presence(row), cell(",".join(row["queues"])))
    return made


def _presence(row: Any) -> Text:
    if row["absent"]:
        return Text("absent", style="bold red")
    return Text("present", style="green") if row["presence"] else Text("by lease", style="yellow")


def _longest(rows: Sequence[Any]) -> Table:
    made = _table("RUNNING", *("for", "crashes"), "step", "worker", "task")
    for row in rows:
        crashes = Text(str(row["crashes"] or ""), style="red")
        made.add_row(cell(row["workflow"]), lasting(row["seconds"]), crashes, cell(row["step"]), cell(row["worker"]), cell(row["id"]))
    return made


def _table(first: str, *others: str) -> Table:
    """Columns of names that may be cut short, and of numbers and states that may not."""
    made = Table(box=None, pad_edge=False, expand=True, header_style="dim", padding=(0, 1, 0, 0))
    made.add_column(first, header_style="bold cyan", no_wrap=True, overflow="ellipsis", ratio=3)
    for name in others:
        whole = _WHOLE.get(name)
        justify: Literal["right", "left"] = "right" if name in _NUMBERS else "left"
        ratio = None if whole else 5 if name == "task" else 3
        made.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", ratio=ratio, min_width=whole)
    return made
