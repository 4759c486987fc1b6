"""How rows are printed: a table for people, JSON for machines. Untrusted text is never markup, and never steers the terminal."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON, for machines.")]
Id = Annotated[UUID, typer.Argument(metavar="TASK", help="Id of the task.", show_default=False)]
Limit = Annotated[int, typer.Option(help="How many, youngest first.", min=1, max=200)]

WIDE = 1000
"""Columns of a pipe: what another program reads is never folded."""

COLOURS = {
    "completed": "green", "error": "red", "cancelled": "yellow", "waiting": "cyan", "running": "blue", "paused": "yellow",
    "present": "green", "absent": "red",
}  # fmt: skip


SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def console(*, narrow: bool = False) -> Console:
    """Standard output, in colour where a person reads it; `narrow` keeps the width of a terminal in a pipe too."""
    piped = not narrow and not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, width=WIDE if piped else None)


def show(found: Any, as_json: bool, table: Table | str) -> None:
    """Print `found` as JSON, or the table made of it."""
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif isinstance(table, Table) and not table.row_count:
        console().print("none", style="dim")
    else:
        console().print(table, soft_wrap=isinstance(table, str))


def table(*heads: str, rows: Sequence[Sequence[Any]]) -> Table:
    made = Table(*heads, box=None, pad_edge=False, show_header=any(heads), header_style="bold")
    for row in rows:
        made.add_row(*(cell(value) for value in row))
    return made


def cell(value: Any) -> Text:
    if isinstance(value, bool):
        value = "yes" if value else ""
    return Text(plain("" if value is None else str(value)), style=COLOURS.get(str(value), ""))


def facts(found: Mapping[str, Any], *names: str) -> Table:
    """One thing, a line a fact; what is null is left out."""
    return table("", "", rows=[[name, _said(found[name])] for name in names if found[name] is not None])


def moment(text: str | None) -> str:
    """A time to the second."""
    return (text or "")[:19].replace("T", " ")


def lasting(seconds: float | None) -> str:
    """A duration in its two greatest units.

    >>> [lasting(s) for s in (None, 0.24, 59, 61, 7260, 90_000)]
    ['', '0.2s', '59s', '1m01s', '2h01m', '1d01h']
    """
    if seconds is None:
        return ""
    whole = int(max(seconds, 0))
    minutes, hours, days = whole // 60, whole // 3600, whole // 86_400
    if seconds < 10:
        return f"{max(seconds, 0):.1f}s"
    if not minutes:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m{whole % 60:02}s"
    return f"{hours}h{minutes % 60:02}m" if not days else f"{days}d{hours % 24:02}h"


def limits(concurrency: int | None, per_key: int | None, starts: int | None, seconds: float | None) -> str:
    """What a queue may do at once, in a few words.

    >>> limits(8, 1, 100, 60.0), limits(None, None, 5, 90.0), limits(None, None, None, None)
    ('8 at once, 1 a key, 100/m', '5/90s', '')
    """
    rate = f"{starts}/{_span(seconds)}" if starts and seconds else ""
    return ", ".join(filter(None, [f"{concurrency} at once" if concurrency else "", f"{per_key} a key" if per_key else "", rate]))


def _span(seconds: float) -> str:
    """A time as --rate takes it."""
    for unit in ("d", "h", "m", "s"):
        if seconds >= SECONDS[unit] and seconds % SECONDS[unit] == 0:
            count = int(seconds // SECONDS[unit])
            return unit if count == 1 else f"{count}{unit}"
    return f"{seconds * 1000:g}ms"


def plain(text: str) -> str:
    """`text` with its control characters made visible: a log must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)


def _said(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value
