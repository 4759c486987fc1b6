"""The story: a failing workload becomes one reviewed pull request. A named step a line, in the order in which they happen.

Each step is committed before the next begins; a worker that dies is replaced, and the story goes on where it stopped. What a step does
is told elsewhere: `freezing`, `diagnosis`, `proposal`, `delivery`.
"""

from datetime import timedelta

from suture.engine import NEVER, Retry, Run, workflow
from suture.remediation.delivery import deliver, delivery_key, find_delivered
from suture.remediation.freezing import diagnose_frozen, freeze
from suture.remediation.incident import APPROVAL, WORKFLOW, Decision, Diagnosis, Finding, Incident, Outcome, Proposal, answer_event
from suture.remediation.proposal import Refusal, propose
from suture.remediation.tools import Delivered, Frozen, Tools

ROUNDS = 5
"""How often a change is proposed anew because its base moved while a person was thinking."""

_PATIENT = Retry(attempts=8, initial=timedelta(seconds=2), maximum=timedelta(minutes=10))
"""For what talks to others: an outage of the cluster or the forge of about half an hour costs nothing."""


@workflow(WORKFLOW, version=1)
async def remediate(run: Run, incident: Incident) -> Outcome:
    """One incident, from the first look at the cluster to the open pull request."""
    tools: Tools = run.resources[Tools]
    frozen: Frozen = await run.step("freeze-evidence", freeze, tools, run.id, incident, retry=_PATIENT)
    diagnosis: Diagnosis = await run.step("diagnose", diagnose_frozen, tools, run.id, incident, retry=NEVER)
    if diagnosis.cause is None:
        return Outcome(state="reported", sentence=f"Nothing that explains the failure of {incident.workload} was found in the evidence.")
    if not diagnosis.cause.changes:
        return _reported(diagnosis.cause, diagnosis.cause.advice)
    for round_ in range(1, ROUNDS + 1):
        proposal = await run.step(_named("propose", round_), propose, tools, incident, diagnosis.cause, frozen.digest, retry=_PATIENT)
        if isinstance(proposal, Refusal):
            return _reported(diagnosis.cause, proposal.reason)
        outcome = await _approve_and_deliver(run, tools, proposal, round_)
        if outcome is not None:
            return outcome
    return _reported(diagnosis.cause, f"The base of the change moved {ROUNDS} times while it was looked at.")


async def _approve_and_deliver(run: Run, tools: Tools, proposal: Proposal, round_: int) -> Outcome | None:
    """The outcome, or None when the base moved: then what was approved is void and must be proposed again."""
    await run.step(_named("ask", round_), tools.ask, run.id, proposal)
    decision = await run.wait(_named(APPROVAL, round_), Decision, event=answer_event(proposal.digest), timeout=tools.approval_timeout)
    if decision is None:
        await run.step(_named("expire", round_), tools.expire, run.id)
        return _ended("expired", proposal, f"Nobody answered within {tools.approval_timeout}.")
    if decision.verdict == "rejected":
        return _ended("rejected", proposal, f"Rejected by {decision.by}: {decision.reason or 'no reason given'}.")
    delivered: Delivered = await run.effect(
        _named("deliver", round_),
        kind="pull-request",
        key=delivery_key(tools, proposal),
        find=lambda: find_delivered(tools, proposal),
        act=lambda: deliver(tools, proposal, decision),
        returns=Delivered,
        retry=_PATIENT,
    )
    if delivered.pull_request is None:
        await run.step(_named("void", round_), tools.void, run.id)
        return None
    await run.step(_named("record", round_), tools.record, run.id, proposal, delivered.pull_request)
    sentence = f"{proposal.cause.sentence} The change is on branch {delivered.pull_request.branch}."
    return Outcome(state="proposed", sentence=sentence, cause=proposal.cause.code, pull_request=delivered.pull_request)


def _named(step: str, round_: int) -> str:
    return step if round_ == 1 else f"{step}-{round_}"


def _reported(cause: Finding, advice: str) -> Outcome:
    return Outcome(state="reported", sentence=f"{cause.sentence} {advice}".strip(), cause=cause.code)


def _ended(state: str, proposal: Proposal, sentence: str) -> Outcome:
    return Outcome.model_validate({"state": state, "sentence": sentence, "cause": proposal.cause.code})
