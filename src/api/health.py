"""Health: probes for the kubelet, numbers for people, gauges for Prometheus and KEDA. All from rows; changes nothing.

Each look at the rows has a time limit of its own, after which the statement is cancelled: a monitor must not hurt what it watches.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from suture.api import metrics
from suture.api.gateway import Gateway, Here, Viewer
from suture.api.patience import within
from suture.api.problems import documented, plainly
from suture.api.shapes import Shape
from suture.engine import Health
from suture.errors import DatabaseUnavailable, ServiceUnavailable

router = APIRouter(tags=["health"])

STATEMENTS_LIMIT = 5.0  # seconds for all the numbers of a page
PROBE_LIMIT = 2.0  # seconds; the kubelet's own patience is 1 to 3


class Numbers(Shape):
    """The numbers that say whether work flows."""

    depth: list[dict[str, Any]] = Field(
        description="queue, status, count, oldest_seconds; of the enqueued also due, delayed, parked (behind others with their concurrency "
        "key), due_seconds"
    )
    workers: list[dict[str, Any]] = Field(description="id, name, version, queues, presence, beat_seconds, running")
    endings: list[dict[str, Any]] = Field(description="workflow, attempt, ended, failed: over the last hour")
    latency_seconds: dict[str, float | None] = Field(description="p50, p95, p99 from creation to the first claim")
    dead_letters: int
    unclaimable: list[dict[str, Any]] = Field(description="workflow, version, count of what is overdue")
    queues: list[dict[str, Any]] = Field(
        description="name, paused, concurrency, per_key, starts_per_second, reason, changed_at, changed_by: those paused or limited"
    )
    paused_steps: list[dict[str, Any]] = Field(description="step, workflow, held, reason, paused_at, paused_by")
    schedules: list[dict[str, Any]] = Field(description="name, paused, problem, next_at, last_at, fired_count, missed_count, skipped_count")


class Scale(Shape):
    queue: str
    value: int = Field(description="Executions that are running, or due and may run: none of a paused queue, no more than its limit")


class Alive(Shape):
    status: str


@router.get("/healthz")
async def alive() -> Alive:
    """Whether the process answers; says nothing of Postgres."""
    return Alive(status="ok")


@router.get("/readyz", responses=documented(503))
async def ready(gateway: Here) -> Alive:
    """Whether requests should come here: Postgres answers, and the process is not about to stop."""
    if gateway.draining:
        raise ServiceUnavailable("This gateway is about to stop.")
    try:
        await within(PROBE_LIMIT, gateway.engine.ping())
    except DatabaseUnavailable as error:
        gateway.lost(error)
        # Anybody may ask: where Postgres is looked for, and as whom, is for the log.
        raise DatabaseUnavailable("Postgres does not answer as it should: the log of the gateway says why.") from None
    gateway.found()
    return Alive(status="ready")


@router.get("/health", responses=documented(401, 403, 503))
async def numbers(_by: Viewer, gateway: Here) -> Numbers:
    """Depth, workers, endings, latency, dead letters; what is paused or limited, and the schedules."""
    return Numbers.model_validate(await look(gateway), from_attributes=True)


@router.get("/metrics", responses=documented(401, 403) | plainly("text/plain"))
async def prometheus(_by: Viewer, gateway: Here) -> Response:
    """Prometheus' text; while Postgres is away, `suture_database_up` is 0 and the rest of the rows is missing."""
    try:
        health = await look(gateway)
    except DatabaseUnavailable:
        health = None
    return Response(metrics.page(gateway.traffic, health), media_type=metrics.MEDIA_TYPE)


@router.get("/scale/{queue}", responses=documented(401, 403, 422, 503))
async def scale(_by: Viewer, queue: Annotated[str, Path(max_length=63, pattern=r"^[^\x00]+$")], gateway: Here) -> Scale:
    """How much work a queue has, for KEDA's metrics-api scaler (`valueLocation: value`)."""
    found = await within(STATEMENTS_LIMIT, gateway.engine.queues.get(queue))
    wanted = found.running + (0 if found.paused else found.due)
    return Scale(queue=queue, value=max(found.running, min(wanted, found.limits.concurrency or wanted)))


async def look(gateway: Gateway) -> Health:
    """Raises: DatabaseUnavailable, also when it takes too long."""
    return await within(STATEMENTS_LIMIT, gateway.engine.health())
