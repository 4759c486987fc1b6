"""The pages of the console but a task's own (see `task_page`): the frame, signing in, lists, health, a problem. Pure: values to HTML."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from suture.api.console.markup import Markup, join, tag
from suture.api.console.session import Visitor
from suture.api.console.words import ago, badge, link, state, subject
from suture.api.problems import Problem
from suture.engine import DeadLetter, Execution, Health
from suture.remediation.incident import Approval
from suture.remediation.records import Delivery

Cell = Markup | str | int | None

_PLACES = (
    ("/console", "Tasks"),
    ("/console/dead-letters", "Dead letters"),
    ("/console/deliveries", "Webhooks"),
    ("/console/health", "Health"),
)

FILTERS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "living": ("enqueued", "running", "waiting"),
    "waiting": ("waiting",),
    "failed": ("error",),
    "ended": ("completed", "cancelled"),
}
"""The filters of the list of tasks, and the states that each shows."""


def frame(title: str, *content: Cell, visitor: Visitor | None = None, here: str = "") -> Markup:
    """A whole page."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · Suture"),
        tag("link", rel="stylesheet", href="/console/console.css"),
        tag("link", rel="icon", href="/console/icon.svg", type="image/svg+xml"),
        tag("script", src="/console/console.js", defer=True),
    )
    skip = tag("a", "Skip to the content", href="#content", class_="skip")
    body = tag("body", skip, _header(visitor, here), tag("main", tag("h1", title), *content, id="content"))
    return join(Markup("<!doctype html>"), tag("html", head, body, lang="en"))


def _header(visitor: Visitor | None, here: str) -> Markup:
    brand = tag("a", "Suture", href="/console", class_="brand")
    if visitor is None:
        return tag("header", brand)
    places = (tag("a", name, href=path, aria_current="page" if path == here else None) for path, name in _PLACES)
    who = tag("span", visitor.principal.name, tag("small", f" {visitor.principal.role}"), class_="who")
    leave = form("/console/logout", visitor, tag("button", "Sign out", class_="quiet"))
    return tag("header", brand, tag("nav", *places, aria_label="Pages"), who, leave)


def form(action: str, visitor: Visitor, *content: Cell, class_: str | None = None) -> Markup:
    """A form that carries the session's token."""
    return tag("form", tag("input", type="hidden", name="form", value=visitor.form), *content, method="post", action=action, class_=class_)


def sign_in(complaint: str | None = None) -> Markup:
    return frame(
        "Sign in",
        tag("p", complaint, class_="banner bad", role="alert") if complaint else None,
        tag(
            "form",
            tag("label", "Your token", for_="token"),
            tag("input", id="token", name="token", type="password", autocomplete="current-password", required=True, autofocus=True),
            tag("p", "One of the tokens in SUTURE_API_TOKENS. Its name stands beside everything you decide.", class_="hint"),
            tag("button", "Sign in", class_="primary"),
            method="post",
            action="/console/login",
            class_="card narrow",
        ),
    )


def problem(found: Problem, visitor: Visitor | None = None) -> Markup:
    back = tag("p", tag("a", "Back to the tasks", href="/console"))
    return frame(found.title, tag("p", found.detail, class_="banner bad", role="alert"), back, visitor=visitor)


def home(
    visitor: Visitor,
    executions: Sequence[Execution],
    questions: Sequence[Approval],
    *,
    causes: Mapping[UUID, str],
    chosen: str,
    following: str | None,
    now: datetime,
) -> Markup:
    """The questions that wait for a person, then the tasks."""
    tasks = tag(
        "section",
        tag("h2", "Tasks"),
        _filters(chosen),
        _tasks(executions, causes, now),
        tag("p", tag("a", "Older", href=following, rel="next")) if following else None,
        id="tasks",
        data_live=True,
    )
    return frame("Tasks", _questions(questions, now), tasks, visitor=visitor, here="/console")


def _questions(questions: Sequence[Approval], now: datetime) -> Markup:
    cards = [_question(question, now) for question in questions]
    content = tag("div", *cards, class_="cards") if cards else tag("p", "Nothing waits for a person.", class_="hint")
    return tag("section", tag("h2", "Needs approval"), content, id="questions", data_live=True)


def _question(question: Approval, now: datetime) -> Markup:
    cause = question.proposal.cause
    return tag(
        "article",
        tag("h3", link(question.task_id, question.proposal.title or cause.object)),
        tag("p", cause.sentence),
        tag("p", badge(cause.code, "ask"), " ", tag("small", f"{cause.object} · asked ", ago(question.asked_at, now)), class_="meta"),
        class_="card",
    )


def _filters(chosen: str) -> Markup:
    places = (tag("a", name, href=f"/console?show={name}", aria_current="true" if name == chosen else None) for name in FILTERS)
    return tag("nav", *places, class_="filters", aria_label="Filter")


def _tasks(executions: Sequence[Execution], causes: Mapping[UUID, str], now: datetime) -> Markup:
    rows = [
        (state(e), link(e.id, subject(e)), _cause(e, causes), tag("code", e.step) if e.step else "", ago(e.created_at, now))
        for e in executions
    ]
    return table(
        ("State", "About", "Cause", "Step", "Age"), rows, empty="No tasks yet. They come from a webhook, a Task resource, or POST /tasks."
    )


def _cause(execution: Execution, causes: Mapping[UUID, str]) -> Cell:
    output: Any = execution.output
    named = output.get("cause") if isinstance(output, dict) else None
    if found := named or causes.get(execution.id):
        return tag("code", str(found))
    return execution.error.reason if execution.error and execution.status == "error" else ""


def table(names: Sequence[str], rows: Sequence[Sequence[Cell]], *, empty: str) -> Markup:
    """A table; on a narrow screen each row becomes a card, with the column's name before each cell."""
    if not rows:
        return tag("p", empty, class_="hint")
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    lines = (tag("tr", *(tag("td", cell, data_name=name) for name, cell in zip(names, row, strict=True))) for row in rows)
    return tag("table", head, tag("tbody", *lines))


def dead_letters(visitor: Visitor, letters: Sequence[DeadLetter], *, now: datetime) -> Markup:
    rows = [
        (
            link(d.execution_id, d.workflow),
            tag("code", d.reason),
            d.error.message,
            tag("code", d.step or "—"),
            ago(d.dead_at, now),
            _revive(visitor, d),
        )
        for d in letters
    ]
    listed = table(("Task", "Reason", "Message", "Step", "Age", "Again"), rows, empty="No dead letters: nothing failed for good.")
    return frame("Dead letters", tag("section", listed, id="letters", data_live=True), visitor=visitor, here="/console/dead-letters")


def _revive(visitor: Visitor, letter: DeadLetter) -> Markup:
    if letter.requeued_as:
        return link(letter.requeued_as, "requeued")
    if not visitor.principal.may("operator"):
        return tag("small", "needs operator")
    steps = (("failed", "From the failed step"), ("start", "From the start"))
    buttons = (tag("button", text, name="from_step", value=value) for value, text in steps)
    return form(f"/console/tasks/{letter.execution_id}/retry", visitor, *buttons, class_="inline")


def deliveries(visitor: Visitor, found: Sequence[Delivery], *, now: datetime) -> Markup:
    tones = {"accepted": "good", "unmatched": "ask", "malformed": "bad", "ignored": "calm"}
    rows = [
        (
            badge(d.state, tones[d.state]),
            d.provider,
            d.event_type or "—",
            link(d.task_id, "task") if d.task_id else "",
            d.note,
            ago(d.received_at, now),
        )
        for d in found
    ]
    listed = table(
        ("State", "From", "Event", "Task", "Note", "Age"), rows, empty="No webhooks yet. PagerDuty sends them to /webhooks/pagerduty."
    )
    return frame("Webhooks", tag("section", listed, id="deliveries", data_live=True), visitor=visitor, here="/console/deliveries")


def health(visitor: Visitor, numbers: Health) -> Markup:
    sections = (_figures(numbers), _depth(numbers), _workers(numbers))
    return frame("Health", tag("div", *sections, id="health", data_live=True), visitor=visitor, here="/console/health")


def _figures(numbers: Health) -> Markup:
    ended, failed = (sum(ending[name] for ending in numbers.endings) for name in ("ended", "failed"))
    p95 = numbers.latency_seconds.get("p95")
    overdue = sum(row["count"] for row in numbers.unclaimable)
    figures: tuple[tuple[str, object], ...] = (
        ("Workers", len(numbers.workers)),
        ("Dead letters", numbers.dead_letters),
        ("Overdue, no worker takes them", overdue),
        ("Ended in the last hour", ended),
        ("Failed of them", failed),
        ("Start latency, p95", "—" if p95 is None else f"{p95:.2f} s"),
    )
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", str(value))) for name, value in figures), class_="figures")


def _depth(numbers: Health) -> Markup:
    rows = [(row["queue"], row["status"], row["count"], f"{row['oldest_seconds']:.0f} s") for row in numbers.depth]
    return tag("section", tag("h2", "Queues"), table(("Queue", "Status", "Count", "Oldest"), rows, empty="All queues are empty."))


def _workers(numbers: Health) -> Markup:
    rows = [(w["name"], w["version"], ", ".join(w["queues"]), w["running"], f"{w['beat_seconds']:.0f} s ago") for w in numbers.workers]
    return tag(
        "section", tag("h2", "Workers"), table(("Worker", "Version", "Queues", "Running", "Last beat"), rows, empty="No worker runs.")
    )
