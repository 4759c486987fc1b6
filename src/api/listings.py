"""Lists for people and scripts: pull requests, deliveries, dead letters; and the switch of a queue. Each is one call of the rows."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import Field

from suture.api.gateway import Here, Operator, Viewer
from suture.api.health import STATEMENTS_LIMIT
from suture.api.patience import within
from suture.api.problems import documented
from suture.api.shapes import Change, Letter, Page, Received, Shape, Worker

router = APIRouter(responses=documented(401, 403, 422, 503))

Limit = Annotated[int, Query(ge=1, le=200)]
QueueName = Annotated[str, Path(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]


class Queue(Shape):
    name: str
    paused: bool = Field(description="Whether nothing is claimed from it; what runs goes on.")


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


@router.get("/workers", tags=["health"])
async def workers(_by: Viewer, gateway: Here) -> list[Worker]:
    """The processes that claim and run, the one with the youngest beat first."""
    return [Worker(**row) for row in await within(STATEMENTS_LIMIT, gateway.engine.database.many("living_workers"))]


@router.post("/queues/{name}/pause", tags=["queues"])
async def pause(by: Operator, name: QueueName, gateway: Here) -> Queue:
    """Claim nothing more from a queue."""
    await gateway.engine.queues.pause(name, actor=by.name)
    return Queue(name=name, paused=True)


@router.post("/queues/{name}/resume", tags=["queues"])
async def resume(by: Operator, name: QueueName, gateway: Here) -> Queue:
    """Claim from a queue again."""
    await gateway.engine.queues.resume(name, actor=by.name)
    return Queue(name=name, paused=False)
