"""The stream: tasks as they move, as server-sent events. Each listener polls the rows: several processes need no bus."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import StreamingResponse

from suture.api.gateway import Gateway, Here, Viewer
from suture.api.problems import documented, plainly
from suture.api.shapes import Task
from suture.errors import DatabaseUnavailable

router = APIRouter(tags=["tasks"])

PAUSE = 1.0  # seconds between two looks: a person does not see faster, and a look is one indexed statement
HEARTBEAT = 15  # looks without news until a comment is sent: a proxy cuts a silent connection after 30 s or more


@router.get(
    "/tasks/stream",
    response_class=StreamingResponse,
    responses=documented(401, 403, 422, 503) | plainly("text/event-stream"),
)
async def stream(
    _by: Viewer,
    gateway: Here,
    label: Annotated[
        str, Query(min_length=1, max_length=63, pattern=r"^[^\x00]+$", description="Only tasks that carry this label")
    ] = "workload",
) -> StreamingResponse:
    """Each task that moves from now on, as an event `task`. One may come twice; none is missed while the connection lasts."""
    cursor = await gateway.engine.cursor()
    return StreamingResponse(_events(gateway, cursor, label), media_type="text/event-stream")


async def _events(gateway: Gateway, cursor: str, label: str) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    told: dict[UUID, datetime] = {}
    silent = 0
    while not gateway.draining:
        try:
            cursor, changed = await gateway.engine.changed_since(cursor, label=label)
        except DatabaseUnavailable:
            changed = []  # the cursor stays where it was: nothing is missed
        now = {task.id: task for task in map(Task.of, changed)}
        news = [task for task in now.values() if told.get(task.id) != task.updated_at]
        told = {task.id: task.updated_at for task in now.values()}  # what the cursor has passed needs no memory
        for task in news:
            yield f"event: task\nid: {task.id}\ndata: {task.model_dump_json(by_alias=True)}\n\n"
        silent = 0 if news else silent + 1
        if silent % HEARTBEAT == HEARTBEAT - 1:
            yield ": still here\n\n"
        await asyncio.sleep(PAUSE)
