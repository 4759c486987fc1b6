"""Words and small pieces that all pages share: states, ages, links, diffs. Pure."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from suture.api.console.markup import Markup, join, tag
from suture.engine import Execution
from suture.remediation.incident import is_asking

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def state(execution: Execution) -> Markup:
    """The state in a word, with a colour that only repeats it."""
    match execution.status:
        case "waiting" if is_asking(execution.step):
            return badge("needs approval", "ask")
        case "completed":
            outcome = _outcome(execution)
            return badge(outcome, "good" if outcome in _WELL else "calm")
        case "error":
            return badge("failed", "bad")
        case "cancelled":
            return badge("cancelled", "calm")
        case "enqueued":
            return badge("queued", "calm")
    return badge(execution.status, "busy")


def badge(word: str, tone: str) -> Markup:
    return tag("span", word, class_=f"badge {tone}")


def subject(execution: Execution) -> str:
    """What the task is about: its workload, or its type."""
    return execution.labels.get("workload") or execution.workflow


def ago(moment: datetime, now: datetime) -> Markup:
    """A time as its distance; the exact one is in the title."""
    exact = f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return tag("time", span(abs(now - moment)) + (" ago" if moment <= now else " from now"), datetime=moment.isoformat(), title=exact)


def span(duration: timedelta) -> str:
    """How long it is, in its largest unit.

    >>> span(timedelta(seconds=90)), span(timedelta(milliseconds=20)), span(timedelta(days=3, hours=5))
    ('1 min', '20 ms', '3 d')
    """
    seconds = duration.total_seconds()
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds * 1000)} ms"


def link(execution_id: object, text: str) -> Markup:
    return tag("a", text, href=f"/console/tasks/{execution_id}")


def outside(url: str, text: str) -> Markup | str:
    """A link to elsewhere; only to the web, so that no address of a script is ever followed."""
    return tag("a", text, href=url, rel="noreferrer noopener") if url.startswith(("https://", "http://")) else text


def diff(text: str) -> Markup:
    """A unified diff; the sign stays in front, so that colour is not needed to read it."""
    return tag("pre", *_lines(text), class_="diff", tabindex=0, aria_label="The change, line by line")


def _lines(text: str) -> Iterator[Markup]:
    for line in text.splitlines():
        tone = next((name for sign, name in _TONES if line.startswith(sign)), None)
        yield join(tag("span", line or " ", class_=tone), "\n")


_TONES = (("+++", "file"), ("---", "file"), ("@@", "hunk"), ("+", "added"), ("-", "removed"))


_WELL = frozenset({"done", "proposed", "approved"})
"""Outcomes that are what somebody hoped for; the others are no failure of the task, only of the hope."""


def _outcome(execution: Execution) -> str:
    output: Any = execution.output
    return str(output["state"])[:40] if isinstance(output, dict) and output.get("state") else "done"
