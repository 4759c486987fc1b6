"""What a Task shows: from its spec, its row and its generation to `status`. Pure; the conditions follow kstatus.

| state                        | Ready | Reconciling | Stalled | reason                                                   |
|------------------------------|-------|-------------|---------|----------------------------------------------------------|
| pending                      | False | True        | False   | Pending, DatabaseUnavailable                             |
| suspended                    | False | False       | False   | Suspended                                                |
| refused                      | False | False       | True    | UnknownWorkflow, InvalidRequest, Conflict, Payload…      |
| enqueued, running, waiting   | False | True        | False   | Enqueued, Retrying, Running, Waiting, WaitingForApproval |
| completed                    | True  | False       | False   | Completed; of `remediate` Proposed, Reported, Rejected … |
| error                        | False | False       | True    | the error's own                                          |
| cancelled                    | False | False       | True    | Cancelled                                                |
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from suture.engine import Execution
from suture.errands.requests import told
from suture.errors import DatabaseUnavailable, InvalidRequest
from suture.operator.reconcile import Refuse
from suture.operator.resource import Task
from suture.remediation.incident import APPROVAL, WORKFLOW, Outcome

RESULT_LIMIT: Final = 256  # characters: a column of `kubectl get`, not the whole output
MESSAGE_LIMIT: Final = 2000  # characters; the schema takes 4096 and counts like we do
STEP_LIMIT: Final = 512

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state in a word, what it means for the three conditions, and why."""

    state: str
    reason: str
    message: str
    ready: bool = False
    reconciling: bool = False
    stalled: bool = False


def status(
    task: Task, row: Execution | None, *, now: datetime, refusal: Refuse | None = None, away: bool = False, digest: str = ""
) -> Status:
    """The whole status of the Task for its present generation. `away`: the database is, so that the row is not known."""
    verdict = judge(task, row, refusal=refusal, away=away)
    shown: Status = {
        "observedGeneration": task.meta.generation,
        "conditions": list(_conditions(task, verdict, now)),
        "state": verdict.state,
        "reason": verdict.reason,
        "message": verdict.message,
    }
    return shown | (_execution(row, digest) if row is not None else {})


def judge(task: Task, row: Execution | None, *, refusal: Refuse | None = None, away: bool = False) -> Verdict:
    """What the Task's state is and why; the row is the truth where there is one."""
    if row is not None:
        return _of_row(row)
    if refusal is not None:
        return Verdict("refused", refusal.reason, line(refusal.message, MESSAGE_LIMIT), stalled=True)
    if away:
        return Verdict("pending", DatabaseUnavailable.reason, "Postgres does not answer; it is tried again.", reconciling=True)
    if not isinstance(task.spec, InvalidRequest) and task.spec.cancel:
        return Verdict("cancelled", "Cancelled", "It was cancelled before it was enqueued.", stalled=True)
    if not isinstance(task.spec, InvalidRequest) and task.spec.suspend:
        return Verdict("suspended", "Suspended", "spec.suspend holds it back; set it to false to let it begin.")
    return Verdict("pending", "Pending", "It is about to be enqueued.", reconciling=True)


def summarized(row: Execution) -> Execution:
    """The row without what is large and not shown: many are held in memory."""
    output = row.output if row.workflow == WORKFLOW or row.output is None else _summary(row.workflow, row.output)
    return row._replace(input=None, output=output)


def differs(shown: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the status that the API server shows is not what we want; conditions of other types are nobody's business."""
    ours = {c["type"] for c in wanted["conditions"]}
    conditions = [c for c in shown.get("conditions") or [] if isinstance(c, dict) and c.get("type") in ours]
    in_order = sorted(conditions, key=lambda c: str(c["type"])) == sorted(wanted["conditions"], key=lambda c: str(c["type"]))
    return not in_order or {k: v for k, v in shown.items() if k != "conditions"} != {k: v for k, v in wanted.items() if k != "conditions"}


def surplus(shown: Mapping[str, Any], wanted: Mapping[str, Any]) -> Status:
    """A merge patch that removes what another hand added; server-side apply takes away only what was ours."""
    gone: Status = {}
    for key, value in shown.items():
        if key not in wanted:
            gone[key] = None
        elif isinstance(value, Mapping) and isinstance(wanted[key], Mapping) and (inner := surplus(value, wanted[key])):
            gone[key] = inner
    return gone


def line(text: object, limit: int) -> str:
    r"""One line of at most `limit` characters, with no control characters: it is printed on people's terminals.

    >>> line("a\n\x1b[31mb", 80)
    'a [31mb'
    """
    plain = re.sub(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+", " ", str(text)).strip()
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def word(reason: str) -> str:
    """A reason as a condition takes it.

    >>> word("my error!")
    'myerror'
    """
    kept = re.sub(r"[^A-Za-z0-9_]", "", reason)[:256]
    return kept if kept[:1].isalpha() else "Error"


def _of_row(row: Execution) -> Verdict:
    match row.status:
        case "enqueued":
            return _enqueued(row)
        case "running":
            at = f"A worker runs step {line(row.step, STEP_LIMIT)}." if row.step else "A worker runs it."
            return Verdict("running", "Running", at, reconciling=True)
        case "waiting":
            return _waiting(row)
        case "completed":
            outcome = _outcome(row)
            reason = outcome.state.capitalize() if outcome else "Completed"
            return Verdict("completed", reason, outcome.sentence if outcome else "It has completed.", ready=True)
        case "error":
            reason, message = (row.error.reason, row.error.message) if row.error else (row.reason, "")
            return Verdict("error", word(reason), line(message or row.reason, MESSAGE_LIMIT), stalled=True)
        case "cancelled":
            by = f" by {line(row.cancel_requested_by, 200)}" if row.cancel_requested_by else ""
            return Verdict("cancelled", "Cancelled", f"It was cancelled{by}: {line(row.reason, 500)}.", stalled=True)


def _enqueued(row: Execution) -> Verdict:
    if row.error is not None:
        again = f"It failed and is tried again: {row.error.reason}: {row.error.message}"
        return Verdict("enqueued", "Retrying", line(again, MESSAGE_LIMIT), reconciling=True)
    return Verdict("enqueued", "Enqueued", f"It waits for a worker of queue {line(row.queue, 63)}.", reconciling=True)


def _waiting(row: Execution) -> Verdict:
    if row.step == APPROVAL:
        return Verdict("waiting", "WaitingForApproval", "A person is asked to approve or reject the change.", reconciling=True)
    return Verdict("waiting", "Waiting", f"It waits in step {line(row.step or '', STEP_LIMIT)}.", reconciling=True)


def _conditions(task: Task, verdict: Verdict, now: datetime) -> Iterator[dict[str, Any]]:
    before = {c.get("type"): c for c in task.status.get("conditions") or [] if isinstance(c, dict)}
    for name, holds in (("Ready", verdict.ready), ("Reconciling", verdict.reconciling), ("Stalled", verdict.stalled)):
        last, value = before.get(name, {}), str(holds)
        yield {
            "type": name,
            "status": value,
            "observedGeneration": task.meta.generation,
            "lastTransitionTime": last["lastTransitionTime"]
            if last.get("status") == value and "lastTransitionTime" in last
            else stamp(now),
            "reason": verdict.reason,
            "message": verdict.message,
        }


def _execution(row: Execution, digest: str) -> Status:
    outcome = _outcome(row)
    request = outcome.pull_request if outcome else None
    fields = {
        "executionId": str(row.id),
        "attempt": row.attempt,
        "step": line(row.step, STEP_LIMIT) if row.step else None,
        "startedAt": stamp(row.started_at) if row.started_at else None,
        "finishedAt": stamp(row.finished_at) if row.finished_at else None,
        "result": _result(row, outcome),
        "pullRequest": {"branch": line(request.branch, 255), "url": line(request.url, 2048)} if request else None,
        "approval": {"digest": line(digest, 128)} if digest else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _result(row: Execution, outcome: Outcome | None) -> str | None:
    match row.status:
        case "completed" if outcome is not None:
            return line(outcome.sentence, RESULT_LIMIT)
        case "completed":
            return _summary(row.workflow, row.output) or None
        case "error" if row.error is not None:
            return line(f"{row.error.reason}: {row.error.message}", RESULT_LIMIT)
    return None


def _summary(workflow: str, output: object) -> str:
    text = output if isinstance(output, str) else told(workflow, output) or json.dumps(output, ensure_ascii=False, default=str)
    return line(text, RESULT_LIMIT)


def _outcome(row: Execution) -> Outcome | None:
    """What a remediation says of itself; None for other workflows, and for an output that a later version wrote."""
    if row.workflow != WORKFLOW or row.status != "completed":
        return None
    try:
        return Outcome.model_validate(row.output)
    except ValidationError:
        return None


def stamp(at: datetime) -> str:
    """A time as Kubernetes writes it: whole seconds, UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
