"""A task's own page: what failed, the proof, the change, the answer, and all that happened. Pure: values to HTML."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from suture.api.console.markup import Markup, join, tag
from suture.api.console.pages import Cell, form, frame, table
from suture.api.console.session import Visitor
from suture.api.console.words import ago, badge, diff, outside, span, state, subject
from suture.api.shapes import plain
from suture.engine import Checkpoint, Execution, Move, is_terminal
from suture.remediation.incident import Approval, Citation, Diagnosis, Finding, Incident
from suture.remediation.records import OpenedChange


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of a task."""

    execution: Execution
    timeline: Sequence[Move]
    checkpoints: Sequence[Checkpoint]
    approval: Approval | None
    changes: Sequence[OpenedChange]


def page(visitor: Visitor, story: Story, *, now: datetime) -> Markup:
    return frame(
        subject(story.execution),
        tag("section", _summary(story, now), id="summary", data_live=True),
        tag("section", _cause(story), id="cause", data_live=True),
        tag("section", _decision(visitor, story), id="decision", data_live=True),
        tag("section", _steps(story.checkpoints), id="steps", data_live=True),
        tag("section", _timeline(story.timeline), id="timeline", data_live=True),
        tag("section", _raw(story.execution), id="payloads"),
        tag("section", _cancel(visitor, story.execution), id="cancel", data_live=True),
        visitor=visitor,
    )


def _summary(story: Story, now: datetime) -> Markup:
    execution = story.execution
    incident = _incident(execution)
    failure = execution.error
    return join(
        tag("p", state(execution), " ", tag("span", execution.reason, class_="hint")),
        tag("p", incident.title, class_="lead") if incident and incident.title else None,
        tag("p", f"{failure.reason}: {failure.message}", class_="banner bad") if failure else None,
        tag("p", sentence, class_="lead") if (sentence := _sentence(execution)) else None,
        tag("dl", *_facts(execution, incident, now), class_="facts"),
        tag("p", "Task ", tag("code", str(execution.id)), class_="hint"),
        *(_pull_request(change) for change in story.changes),
    )


def _facts(execution: Execution, incident: Incident | None, now: datetime) -> Iterator[Markup]:
    facts: list[tuple[str, Cell]] = [
        ("Type", execution.workflow),
        ("Queue", execution.queue),
        ("Created", ago(execution.created_at, now)),
        ("Attempt", str(execution.attempt)),
        ("Step", tag("code", execution.step or "—")),
    ]
    if incident and incident.reference:
        facts.append(("Reported by", join(f"{incident.signal} ", outside(incident.url, incident.reference))))
    return (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)


def _pull_request(change: OpenedChange) -> Markup:
    name = f"{change.repository} #{change.number}"
    return tag("p", badge("pull request", "good"), " ", outside(change.url, name), " ", tag("code", change.branch), " ", change.title)


def _decision(visitor: Visitor, story: Story) -> Markup | None:
    approval = story.approval
    if approval is None:
        return None
    proposal = approval.proposal
    return join(
        tag("h2", "Proposed change"),
        tag("p", proposal.title, class_="lead"),
        diff(proposal.diff),
        tag("p", "Based on ", tag("code", proposal.base[:12]), ", digest ", tag("code", proposal.digest[:16]), class_="hint"),
        _answer(visitor, story, approval),
    )


def _answer(visitor: Visitor, story: Story, approval: Approval) -> Markup:
    if decision := approval.decision:
        tone = "good" if decision.verdict == "approved" else "bad"
        when = f"{approval.decided_at:%Y-%m-%d %H:%M} UTC" if approval.decided_at else ""
        why = f": {decision.reason}" if decision.reason else ""
        return tag("p", badge(decision.verdict, tone), f" by {decision.by}, {when}{why}", class_="verdict")
    if approval.state != "pending" or is_terminal(story.execution.status):
        return tag("p", badge("closed", "calm"), f" The question is {'over' if approval.state == 'pending' else approval.state}.")
    if not visitor.principal.may("approver"):
        return tag("p", f"To answer, sign in as an approver; {visitor.principal.name} is {visitor.principal.role}.", class_="hint")
    return _answer_form(visitor, approval)


def _answer_form(visitor: Visitor, approval: Approval) -> Markup:
    address = f"/console/tasks/{approval.task_id}"
    return form(
        f"{address}/approve",
        visitor,
        tag("input", type="hidden", name="digest", value=approval.proposal.digest),
        tag("label", "Reason", tag("small", " needed to reject"), for_="reason"),
        tag("textarea", id="reason", name="reason", rows=2, maxlength=4096, required=True),
        tag(
            "p",
            tag("button", "Approve", class_="primary", formnovalidate=True),
            " ",
            tag("button", "Reject", class_="danger", formaction=f"{address}/reject"),
            class_="buttons",
        ),
        class_="card",
    )


def _cause(story: Story) -> Markup | None:
    diagnosis = _diagnosis(story)
    if diagnosis is None:
        return None
    if not diagnosis.findings:
        return join(tag("h2", "Cause"), tag("p", "The rules found nothing. The evidence is kept."), _ruled_out(diagnosis))
    first, *others = diagnosis.findings
    return join(
        tag("h2", "Cause"),
        _finding(first),
        tag("details", tag("summary", f"{len(others)} more found"), *map(_finding, others)) if others else None,
        _ruled_out(diagnosis),
    )


def _finding(finding: Finding) -> Markup:
    where = f"{finding.object}, container {finding.container}" if finding.container else finding.object
    return tag(
        "article",
        tag("p", badge(finding.code, "ask"), " ", tag("small", f"{where} · confidence {finding.confidence:.0%}")),
        tag("p", finding.sentence, class_="lead"),
        tag("p", finding.advice) if finding.advice else None,
        tag("ul", *map(_citation, finding.citations), class_="citations"),
        class_="card",
    )


def _citation(citation: Citation) -> Markup:
    value = citation.value if isinstance(citation.value, str) else json.dumps(citation.value, ensure_ascii=False)
    place = tag("small", citation.object, " ", tag("code", citation.path))
    return tag("li", tag("pre", value, class_="quote"), tag("span", citation.why), tag("br"), place)


def _ruled_out(diagnosis: Diagnosis) -> Markup | None:
    if not diagnosis.ruled_out:
        return None
    return tag("details", tag("summary", "Ruled out"), tag("ul", *(tag("li", sentence) for sentence in diagnosis.ruled_out)))


def _steps(checkpoints: Sequence[Checkpoint]) -> Markup:
    rows = [
        (tag("code", c.step_id), c.kind, c.attempts, tag("span", span(c.finished_at - c.started_at), class_="tight"), _bar(c, checkpoints))
        for c in checkpoints
    ]
    return join(tag("h2", "Steps"), table(("Step", "Kind", "Tries", "Took", "When"), rows, empty="No step has finished yet."))


def _bar(step: Checkpoint, all_steps: Sequence[Checkpoint]) -> Markup:
    """Where the step lies in the whole, as a drawing: the page's policy admits no styles inside."""
    begin = min(other.started_at for other in all_steps)
    whole = max((max(other.finished_at for other in all_steps) - begin).total_seconds(), 1e-6)
    left = (step.started_at - begin).total_seconds() / whole * 1000
    width = max((step.finished_at - step.started_at).total_seconds() / whole * 1000, 8)
    bar = tag("rect", x=round(min(left, 992)), y=0, width=round(min(width, 1000)), height=8, rx=4)
    return tag("svg", bar, viewBox="0 0 1000 8", preserveAspectRatio="none", class_="bar", aria_hidden="true")


def _timeline(moves: Sequence[Move]) -> Markup:
    lines = (
        tag(
            "li",
            tag("time", f"{move.at:%m-%d %H:%M:%S}", datetime=move.at.isoformat()),
            " ",
            tag("strong", move.to_status),
            f" {move.reason}",
            tag("small", f" by {move.actor}"),
        )
        for move in moves
    )
    return join(tag("h2", "Timeline"), tag("ol", *lines, class_="timeline"))


def _raw(execution: Execution) -> Markup:
    pairs = (("Input", execution.input), ("Result", execution.output))
    shown = (
        tag("details", tag("summary", name), tag("pre", json.dumps(plain(value), indent=2, ensure_ascii=False)))
        for name, value in pairs
        if value is not None
    )
    return join(*shown)


def _cancel(visitor: Visitor, execution: Execution) -> Markup | None:
    if is_terminal(execution.status) or not visitor.principal.may("operator"):
        return None
    if execution.cancel_requested_by:
        return tag("p", f"{execution.cancel_requested_by} asked to cancel; the worker stops at its next write.", class_="hint")
    button = tag("button", "Cancel this task", class_="quiet danger")
    return tag("details", tag("summary", "Cancel"), form(f"/console/tasks/{execution.id}/cancel", visitor, button))


def _incident(execution: Execution) -> Incident | None:
    try:
        return Incident.model_validate(execution.input)
    except ValidationError:
        return None  # a task of another type


def _sentence(execution: Execution) -> str | None:
    output = execution.output
    return str(output["sentence"]) if isinstance(output, dict) and output.get("sentence") else None


def _diagnosis(story: Story) -> Diagnosis | None:
    """What the workflow recorded; else the cause that stands in the proposal."""
    for checkpoint in story.checkpoints:
        if isinstance(checkpoint.output, dict) and "findings" in checkpoint.output:
            try:
                return Diagnosis.model_validate(checkpoint.output)
            except ValidationError:
                continue  # another workflow's step, which only looks like it
    return Diagnosis(findings=(story.approval.proposal.cause,)) if story.approval else None
