"""Lists for people and scripts: pull requests, deliveries, dead letters. Each is one call of the rows."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from pydantic import ConfigDict, Field

from suture.api.bodies import json_of, schema_of
from suture.api.gateway import Here, Operator, Viewer
from suture.api.problems import documented
from suture.api.shapes import Change, Letter, Page, Received, Shape

router = APIRouter(responses=documented(401, 403, 422, 503))

Limit = Annotated[int, Query(ge=1, le=200)]
Text = Annotated[str, Query(max_length=512, pattern=r"^[^\x00]*$")]


class Discarding(Shape):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("discarded", min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]*$")


@router.get("/pull-requests", tags=["remediation"])
async def pull_requests(
    _by: Viewer, gateway: Here, task_id: Annotated[UUID | None, Query(alias="taskId")] = None, limit: Limit = 50
) -> Page[Change]:
    """Changes that were opened, youngest first."""
    return Page[Change](items=[Change.of(change) for change in await gateway.records.pull_requests(task_id, limit=limit)])


@router.get("/deliveries", tags=["webhooks"])
async def deliveries(_by: Viewer, gateway: Here, limit: Limit = 50) -> Page[Received]:
    """Webhooks that were let in, youngest first, with what became of each."""
    return Page[Received](items=[Received.of(delivery) for delivery in await gateway.records.deliveries(limit=limit)])


@router.get("/dead-letters", tags=["tasks"])
async def dead_letters(
    *,
    _by: Viewer,
    gateway: Here,
    state: Literal["open", "requeued", "discarded"] | None = None,
    type: Text | None = None,  # noqa: A002 (the field's name everywhere)
    queue: Text | None = None,
    limit: Limit = 50,
) -> Page[Letter]:
    """Tasks that ended in error, youngest first; the open ones need a person."""
    found = await gateway.engine.letters.page(state=state, workflow=type, queue=queue, limit=limit)
    return Page[Letter](items=[Letter.of(letter) for letter in found])


@router.post("/dead-letters/{id}/discard", tags=["tasks"], openapi_extra=schema_of(Discarding), responses=documented(404, 409))
async def discard(by: Operator, asked: Annotated[Discarding, Depends(json_of(Discarding))], id: UUID, gateway: Here) -> Letter:  # noqa: A002
    """Let an open one be, for good; who and why stay in its row."""
    return Letter.of(await gateway.engine.letters.discard(id, actor=by.name, reason=asked.reason))
