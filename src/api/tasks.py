"""Tasks over HTTP: hand in, look, steer. One door is one call of the engine; answers to proposals are in `approvals`."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from suture.api.bodies import json_of, schema_of
from suture.api.gateway import Gateway, Here, Operator, Viewer
from suture.api.problems import documented
from suture.api.shapes import Line, Page, Shape, Step, Task
from suture.engine import Enqueued, Execution, Session, Status
from suture.errors import Conflict, InvalidRequest
from suture.remediation import incident

router = APIRouter(prefix="/tasks", tags=["tasks"], responses=documented(401, 403, 422, 503))

_RESERVED = "suture.dev/"
IDEMPOTENCY_KEY, REQUEST = f"{_RESERVED}idempotency-key", f"{_RESERVED}request"
"""Labels that remember the key of a request, and the digest of what was asked with it."""

_OPERATORS = frozenset({"uid", "cluster", "task", "generation"})
_OPERATORS_KEY = "task:"
"""What the operator marks its rows with: a caller who could write it would put a row under somebody's resource."""

_FARTHEST = timedelta(days=3653)  # ten years: what is due later was a slip of the pen


def _text_only(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    raise ValueError("send a text: an ISO 8601 duration (PT1H) or a time with its zone (2030-01-01T00:00:00Z)")


Moment = Annotated[AwareDatetime, BeforeValidator(_text_only)]
Name = Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")]
Text = Annotated[str, Query(max_length=512, pattern=r"^[^\x00]*$")]


class TaskRequest(Shape):
    """What is asked."""

    model_config = ConfigDict(extra="forbid")

    type: Name = Field(examples=["remediate"])
    input: JsonValue = None
    operation_key: str | None = Field(None, min_length=1, max_length=512)
    """Unique among living tasks: a second request with it and the same input finds the first one's task."""
    queue: Name = "default"
    priority: int = Field(0, ge=-1_000_000, le=1_000_000)
    deadline: Annotated[timedelta, BeforeValidator(_text_only)] | Moment | None = None
    """An ISO 8601 duration from now, or a time."""
    max_attempts: int | None = Field(None, ge=1, le=1000)
    labels: dict[Annotated[str, Field(min_length=1, max_length=63)], Annotated[str, Field(max_length=512)]] = Field({}, max_length=32)
    run_at: Moment | None = None

    @field_validator("deadline", "run_at")
    @classmethod
    def _can_be_counted(cls, value: datetime | timedelta | None) -> datetime | timedelta | None:
        if value is None or (timedelta(0) < value <= _FARTHEST if isinstance(value, timedelta) else 1970 <= value.year < 9000):
            return value
        raise ValueError("a duration lies between zero and ten years, a time before the year 9000")

    @field_validator("labels")
    @classmethod
    def _are_free(cls, labels: dict[str, str]) -> dict[str, str]:
        if reserved := sorted(label for label in labels if label.startswith(_RESERVED)):
            raise ValueError(f"the label {reserved[0]} is reserved: labels that begin with {_RESERVED} are the gateway's own")
        if reserved := sorted(labels.keys() & _OPERATORS):
            raise ValueError(f"the label {reserved[0]} is reserved: by it the operator knows the rows of its Task resources")
        return labels

    @field_validator("operation_key")
    @classmethod
    def _is_no_resource(cls, key: str | None) -> str | None:
        if key is not None and key.startswith(_OPERATORS_KEY):
            raise ValueError(f"keys that begin with {_OPERATORS_KEY} belong to Task resources: choose another")
        return key


class Cancellation(Shape):
    model_config = ConfigDict(extra="forbid")

    reason: str = Field("cancelled", min_length=1, max_length=1024)


class Revival(Shape):
    model_config = ConfigDict(extra="forbid")

    from_step: Literal["failed", "start"] = "failed"
    """`failed` keeps the finished steps; `start` keeps none."""


class Forking(Shape):
    model_config = ConfigDict(extra="forbid")

    from_step: str = Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]+$")
    version: int | None = Field(None, ge=1, le=1_000_000)
    """Of the workflow; by default the task's own."""


@router.post("", status_code=201, openapi_extra=schema_of(TaskRequest), responses=documented(409, 413) | {200: {"model": Task}})
async def create(
    *,
    by: Operator,
    asked: Annotated[TaskRequest, Depends(json_of(TaskRequest))],
    gateway: Here,
    request: Request,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Task:
    """Hand in a task. With an Idempotency-Key the same request gets the same task again (200), and another body is refused (409)."""
    given = dict(asked.labels)
    if idempotency_key is not None:
        given |= {IDEMPOTENCY_KEY: f"{by.name}:{idempotency_key}", REQUEST: hashlib.sha256(await request.body()).hexdigest()}
    async with gateway.engine.transaction() as session:
        done = await _earlier(session, given) or await _enqueue(gateway, session, asked, actor=by.name, labels=given)
    response.status_code = 201 if done.created else 200
    response.headers["Location"] = f"/tasks/{done.execution.id}"
    return Task.of(done.execution)


@router.get("")
async def page(
    *,
    _by: Viewer,
    gateway: Here,
    request: Request,
    response: Response,
    status: Annotated[list[Status] | None, Query()] = None,
    type: Text | None = None,  # noqa: A002 (the field's name everywhere)
    queue: Text | None = None,
    workload: Annotated[Text | None, Query(examples=["Deployment/shop/web"])] = None,
    created_before: Annotated[AwareDatetime | None, Query(alias="createdBefore")] = None,
    created_after: Annotated[AwareDatetime | None, Query(alias="createdAfter")] = None,
    before: UUID | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Page[Task]:
    """Tasks, youngest first; `next` is the address of the page that follows."""
    found = await gateway.engine.page(
        statuses=status,
        workflow=type,
        queue=queue,
        labels={"workload": workload} if workload else None,
        before=before,
        created_before=_bounded(created_before),
        created_after=_bounded(created_after),
        limit=limit + 1,  # one more tells whether a page follows
    )
    following = _next(request, found[limit - 1]) if len(found) > limit else None
    if following:
        response.headers["Link"] = f'<{following}>; rel="next"'
    return Page[Task](items=[Task.of(execution) for execution in found[:limit]], next=following)


@router.get("/{id}", responses=documented(404))
async def show(_by: Viewer, id: UUID, gateway: Here) -> Task:  # noqa: A002
    """The task as it stands."""
    return Task.of(await gateway.engine.get(id))


@router.get("/{id}/timeline", responses=documented(404))
async def timeline(_by: Viewer, id: UUID, gateway: Here) -> list[Line]:  # noqa: A002
    """What happened to it, in order."""
    await gateway.engine.get(id)
    return [Line.of(move) for move in await gateway.engine.timeline(id)]


@router.get("/{id}/steps", responses=documented(404))
async def steps(_by: Viewer, id: UUID, gateway: Here) -> list[Step]:  # noqa: A002
    """The finished steps, in the order in which they finished."""
    await gateway.engine.get(id)
    return [Step.of(checkpoint) for checkpoint in await gateway.engine.checkpoints(id)]


@router.post("/{id}/cancel", openapi_extra=schema_of(Cancellation), responses=documented(404, 409))
async def cancel(by: Operator, asked: Annotated[Cancellation, Depends(json_of(Cancellation))], id: UUID, gateway: Here) -> Task:  # noqa: A002
    """Cancel at once what nobody runs; ask the worker of what runs. Asking twice changes nothing."""
    async with gateway.engine.transaction() as session:
        return Task.of(await withdraw(gateway, session, id, actor=by.name, reason=asked.reason))


@router.post("/{id}/retry", status_code=201, openapi_extra=schema_of(Revival), responses=documented(404, 409))
async def retry(by: Operator, asked: Annotated[Revival, Depends(json_of(Revival))], id: UUID, gateway: Here) -> Task:  # noqa: A002
    """Run a dead letter again, as a new task."""
    return Task.of(await gateway.engine.requeue(id, actor=by.name, from_step=asked.from_step))


@router.post("/{id}/fork", status_code=201, openapi_extra=schema_of(Forking), responses=documented(404, 409))
async def fork(by: Operator, asked: Annotated[Forking, Depends(json_of(Forking))], id: UUID, gateway: Here) -> Task:  # noqa: A002
    """Run an ended task again, as a new one, from one of its steps; what had finished before that step is kept."""
    return Task.of(await gateway.engine.fork(id, from_step=asked.from_step, actor=by.name, version=asked.version))


async def withdraw(gateway: Gateway, session: Session, task_id: UUID, *, actor: str, reason: str) -> Execution:
    """Cancel a task and, where that was at once, take back the question that it put to people."""
    execution = await gateway.engine.cancel(task_id, actor=actor, reason=reason, session=session)
    if execution.status == "cancelled":
        await gateway.records.close_question(task_id, state="void", session=session)
    return execution


def labels_of(workload: incident.Workload) -> dict[str, str]:
    """What every remediation is found by."""
    return {"namespace": workload.namespace, "workload": str(workload)}


async def _earlier(session: Session, labels: Mapping[str, str]) -> Enqueued | None:
    """What an earlier request with this Idempotency-Key got."""
    if (key := labels.get(IDEMPOTENCY_KEY)) is None:
        return None
    # Held to the end of the transaction: of two requests at once the second looks after the first has committed.
    await session.none("lock_key", f"{IDEMPOTENCY_KEY} {key}")
    rows = await session.many("with_labels", json.dumps({IDEMPOTENCY_KEY: key}), 50)
    if not rows:
        return None
    first = Execution.from_row(rows[-1])  # a requeued successor carries the same labels
    if first.labels.get(REQUEST) != labels[REQUEST]:
        raise Conflict(f"The Idempotency-Key was used for another request, which became task {first.id}: use a new key for a new request.")
    return Enqueued(first, created=False)


async def _enqueue(gateway: Gateway, session: Session, asked: TaskRequest, *, actor: str, labels: Mapping[str, str]) -> Enqueued:
    workflow = gateway.workflows.get(asked.type)
    given = workflow.read_input(asked.input)
    return await gateway.engine.enqueue(
        workflow.name,
        workflow.input.dump_python(given, mode="json"),
        actor=actor,
        version=workflow.version,
        queue=asked.queue,
        priority=asked.priority,
        # A workload may fail again: only a key that the caller chose also stands for what has ended.
        operation_key=asked.operation_key or _key(given),
        reuse="return" if asked.operation_key else "new",
        labels={**_labels(given), **labels},
        run_at=asked.run_at,
        deadline_at=await _deadline(session, asked.deadline),
        max_attempts=asked.max_attempts,
        session=session,
    )


def _key(given: object) -> str | None:
    """One remediation at a time for each workload, by whatever door it comes."""
    return given.workload.key if isinstance(given, incident.Incident) else None


def _labels(given: object) -> dict[str, str]:
    return labels_of(given.workload) if isinstance(given, incident.Incident) else {}


async def _deadline(session: Session, asked: timedelta | datetime | None) -> datetime | None:
    if not isinstance(asked, timedelta):
        return asked
    now: datetime = (await session.one("ping"))["at"]  # the database's clock decides when it is over
    return now + asked


def _bounded(moment: datetime | None) -> datetime | None:
    if moment is not None and not 1970 <= moment.year < 9000:
        raise InvalidRequest(f"query: the year {moment.year} is too far away.")
    return moment


def _next(request: Request, last: Execution) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "before"]
    return f"{request.url.path}?{urlencode([*kept, ('before', str(last.id))])}"
