"""Approvals: a person looks at a proposal and answers it. The first answer counts; each later one is told so.

The console uses `answer` too, so that every door gives the same answer to the same click.
"""

from typing import Annotated, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import ConfigDict, Field, model_validator

from suture.api.bodies import json_of, schema_of
from suture.api.gateway import Approver, Gateway, Here, Viewer
from suture.api.problems import documented
from suture.api.shapes import Page, Question, Shape
from suture.errors import Conflict, IllegalTransition, NotFound
from suture.remediation.incident import Approval, Decision, answer_event

router = APIRouter(tags=["approvals"], responses=documented(401, 403, 422, 503))

State = Literal["pending", "approved", "rejected", "expired", "void"]


class Consent(Shape):
    model_config = ConfigDict(extra="forbid")

    digest: str = Field(min_length=1, max_length=128, examples=["9f86d081884c7d65…"])
    """Of the proposal that was looked at."""
    reason: str = Field("", max_length=4096)


class Refusal(Consent):
    @model_validator(mode="after")
    def _explains(self) -> Self:
        if not self.reason.strip():
            raise ValueError("a rejection needs a reason: it is what the next proposal learns from")
        return self


@router.get("/approvals")
async def approvals(
    _by: Viewer, gateway: Here, state: State | None = None, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> Page[Question]:
    """Proposals, youngest first."""
    return Page[Question](items=[Question.of(approval) for approval in await gateway.records.approvals(state=state, limit=limit)])


@router.get("/tasks/{id}/approval", responses=documented(404))
async def show(_by: Viewer, id: UUID, gateway: Here) -> Question:  # noqa: A002
    """The newest proposal of a task: cause, citations, diff, and the digest that an answer has to name."""
    await gateway.engine.get(id)
    approval = await gateway.records.approval(id)
    if approval is None:
        raise NotFound(f"Task {id} has proposed nothing yet.")
    return Question.of(approval)


@router.post("/tasks/{id}/approve", openapi_extra=schema_of(Consent), responses=documented(404, 409))
async def approve(by: Approver, asked: Annotated[Consent, Depends(json_of(Consent))], id: UUID, gateway: Here) -> Question:  # noqa: A002
    """Let the change be delivered. Repeating the same answer changes nothing."""
    return Question.of(
        await answer(gateway, id, Decision(verdict="approved", by=by.name, reason=asked.reason.strip(), digest=asked.digest))
    )


@router.post("/tasks/{id}/reject", openapi_extra=schema_of(Refusal), responses=documented(404, 409))
async def reject(by: Approver, asked: Annotated[Refusal, Depends(json_of(Refusal))], id: UUID, gateway: Here) -> Question:  # noqa: A002
    """Refuse the change, with the reason. Repeating the same answer changes nothing."""
    return Question.of(
        await answer(gateway, id, Decision(verdict="rejected", by=by.name, reason=asked.reason.strip(), digest=asked.digest))
    )


async def answer(gateway: Gateway, task_id: UUID, decision: Decision) -> Approval:
    """Answer the open question of a task, and tell its execution, or neither.

    Raises: NotFound. Conflict, IllegalTransition with what stands instead.
    """
    try:
        return await _decide(gateway, task_id, decision)
    except (Conflict, IllegalTransition, NotFound) as refusal:
        stands = await gateway.records.approval(task_id)
        if stands is not None and stands.decision is not None:
            return _compared(task_id, decision, stands)
        raise refusal from None


async def _decide(gateway: Gateway, task_id: UUID, decision: Decision) -> Approval:
    async with gateway.engine.transaction() as session:
        # The execution's lock comes first, as in every transaction: see the top of the schema.
        event = await gateway.engine.emit(
            task_id, answer_event(decision.digest), decision.model_dump(mode="json"), actor=decision.by, session=session
        )
        if event.accepted:
            return await gateway.records.decide(session, task_id, decision)
    raise Conflict(f"Task {task_id} was answered by {event.emitted_by} at {event.emitted_at:%Y-%m-%d %H:%M:%S} UTC.")


def _compared(task_id: UUID, decision: Decision, stands: Approval) -> Approval:
    """The standing answer, where the new one only repeats it.

    Raises: Conflict that says who decided what, and when.
    """
    earlier = stands.decision
    assert earlier is not None
    if (earlier.verdict, earlier.by, earlier.digest) == (decision.verdict, decision.by, decision.digest):
        return stands
    raise Conflict(
        f"Task {task_id} was {earlier.verdict} by {earlier.by} at {stands.decided_at:%Y-%m-%d %H:%M:%S} UTC; the first answer counts."
    )
