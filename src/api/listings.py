"""Lists for people and scripts: pull requests, deliveries, dead letters. Each is one call of the rows."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from suture.api.gateway import Here, Viewer
from suture.api.problems import documented
from suture.api.shapes import Change, Letter, Page, Received

router = APIRouter(responses=documented(401, 403, 422, 503))

Limit = Annotated[int, Query(ge=1, le=200)]


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
async def dead_letters(_by: Viewer, gateway: Here, limit: Limit = 50) -> Page[Letter]:
    """Tasks that need a person, youngest first."""
    return Page[Letter](items=[Letter.of(letter) for letter in await gateway.engine.dead_letters(limit=limit)])
