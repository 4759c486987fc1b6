"""The engine's machinery over HTTP: look at queues, schedules and workers, and steer them while work goes on. One door is one call."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path

from suture.api.bodies import json_of, schema_of
from suture.api.gateway import Here, Operator, Viewer
from suture.api.health import STATEMENTS_LIMIT
from suture.api.machinery import GlanceShape, Limitation, PauseShape, Pausing, QueueShape, Released, ScheduleShape, Why, WorkerShape
from suture.api.patience import within
from suture.api.problems import documented
from suture.api.shapes import Task
from suture.engine.glance import glance

router = APIRouter(responses=documented(401, 403, 422, 503))

Name = Annotated[str, Path(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]+$")]
QueueName = Annotated[str, Path(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
Because = Annotated[Why, Depends(json_of(Why))]


@router.get("/queues", tags=["queues"])
async def queues(_by: Viewer, gateway: Here) -> list[QueueShape]:
    """The queues that have work, or were paused or limited, by name."""
    return [QueueShape.of(queue) for queue in await within(STATEMENTS_LIMIT, gateway.engine.queues.list())]


@router.post("/queues/{name}/pause", tags=["queues"], openapi_extra=schema_of(Why))
async def pause(by: Operator, why: Because, name: QueueName, gateway: Here) -> QueueShape:
    """Claim nothing more from a queue; what runs goes on."""
    await gateway.engine.queues.pause(name, actor=by.name, reason=why.reason)
    return QueueShape.of(await gateway.engine.queues.get(name))


@router.post("/queues/{name}/resume", tags=["queues"], openapi_extra=schema_of(Why))
async def resume(by: Operator, why: Because, name: QueueName, gateway: Here) -> QueueShape:
    """Claim from a queue again."""
    await gateway.engine.queues.resume(name, actor=by.name, reason=why.reason)
    return QueueShape.of(await gateway.engine.queues.get(name))


@router.post("/queues/{name}/limits", tags=["queues"], openapi_extra=schema_of(Limitation))
async def limit(by: Operator, asked: Annotated[Limitation, Depends(json_of(Limitation))], name: QueueName, gateway: Here) -> QueueShape:
    """Change what a queue may do at once: what is not named stays, null takes a limit away."""
    limits = asked.changed((await gateway.engine.queues.get(name)).limits)
    await gateway.engine.queues.limit(name, limits, actor=by.name, reason=asked.reason)
    return QueueShape.of(await gateway.engine.queues.get(name))


@router.get("/schedules", tags=["schedules"])
async def schedules(_by: Viewer, gateway: Here) -> list[ScheduleShape]:
    """By name."""
    return [ScheduleShape.of(schedule) for schedule in await gateway.engine.schedules.all()]


@router.post("/schedules/{name}/pause", tags=["schedules"], responses=documented(404))
async def pause_schedule(by: Operator, name: Name, gateway: Here) -> ScheduleShape:
    """Nothing of it fires until it is resumed."""
    await gateway.engine.schedules.pause(name, actor=by.name)
    return ScheduleShape.of(await gateway.engine.schedules.get(name))


@router.post("/schedules/{name}/resume", tags=["schedules"], responses=documented(404))
async def resume_schedule(by: Operator, name: Name, gateway: Here) -> ScheduleShape:
    """Go on at its next time from now."""
    return ScheduleShape.of(await gateway.engine.schedules.resume(name, actor=by.name))


@router.post("/schedules/{name}/run", tags=["schedules"], status_code=201, responses=documented(404))
async def run_schedule(by: Operator, name: Name, gateway: Here) -> Task:
    """Enqueue its workflow once, now."""
    return Task.of(await gateway.engine.get(await gateway.engine.schedules.run_now(name, actor=by.name)))


@router.get("/pauses", tags=["pauses"])
async def pauses(_by: Viewer, gateway: Here) -> list[PauseShape]:
    """Steps that nobody may begin now, by step and workflow."""
    return [PauseShape.of(pause) for pause in await gateway.engine.steps.list()]


@router.post("/pauses", tags=["pauses"], openapi_extra=schema_of(Pausing), status_code=201)
async def pause_steps(by: Operator, asked: Annotated[Pausing, Depends(json_of(Pausing))], gateway: Here) -> Pausing:
    """Let nobody begin a step of this name, or an effect of this kind; what has begun goes on."""
    await gateway.engine.steps.pause(asked.step, workflow=asked.workflow, actor=by.name, reason=asked.reason)
    return asked


@router.post("/pauses/end", tags=["pauses"], openapi_extra=schema_of(Pausing), responses=documented(404))
async def resume_steps(by: Operator, asked: Annotated[Pausing, Depends(json_of(Pausing))], gateway: Here) -> Released:
    """End the pause that was made with the same words."""
    return Released(released=await gateway.engine.steps.resume(asked.step, workflow=asked.workflow, actor=by.name))


@router.get("/workers", tags=["health"])
async def workers(_by: Viewer, gateway: Here) -> list[WorkerShape]:
    """The processes that claim and run, the one with the youngest beat first."""
    return [WorkerShape(**row) for row in await within(STATEMENTS_LIMIT, gateway.engine.database.many("living_workers"))]


@router.get("/glance", tags=["health"])
async def look(_by: Viewer, gateway: Here) -> GlanceShape:
    """What `suture top` shows: cheap enough for every second."""
    return GlanceShape.of(await within(STATEMENTS_LIMIT, glance(gateway.engine.database)))
