"""What a Task needs next: from its spec, its metadata and its row to one action. Pure and level-triggered.

Which changes run what. Every field that decides an execution is immutable by the schema, so a Task names one operation for its whole
life: key `task:UID`, or `task:NAMESPACE/KEY` where the spec has an `operationKey`. The generation is no part of the key, because what stays
mutable, `cancel` and the end of `suspend`, raises the generation and must steer the same execution, not start another. Hence one row at
most for each (uid, generation), and the same row for all generations of a uid; the engine's unique key makes that hold for any number of
replicas, repeats and restarts.

Tasks that share an `operationKey` share the execution of the first; it belongs to the Task whose uid it carries, and only that one cancels
it. An execution that ended is never run again by its Task, also when retention has removed the row.
The finalizer is there while the execution lives, and no longer: a finished Task can be deleted with nobody there to release it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from suture.engine import Execution, Workflows, is_terminal
from suture.errands.requests import JobRequest
from suture.errors import InvalidRequest, PermanentError
from suture.operator.resource import FINALIZER, Meta, Spec
from suture.remediation.incident import WORKFLOW, Incident


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is to be done but to show what is."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Add the finalizer: before there is a row, so that no deletion ever leaves one behind unseen."""


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Add the row, or find it."""

    workflow: str
    version: int
    input: Mapping[str, object]
    operation_key: str
    queue: str
    priority: int
    max_attempts: int | None
    deadline_at: datetime | None
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Ask the engine to cancel the row."""

    id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class Linger:
    """The Task is deleted and the cancellation is under way: wait for its end, a bounded time."""


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the finalizer."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The spec cannot be run: say why, and look again only when it changes."""

    reason: str
    message: str


Action = Rest | Guard | Enqueue | Cancel | Linger | Release | Refuse


def reconcile(spec: Spec | InvalidRequest, meta: Meta, row: Execution | None, *, workflows: Workflows) -> Action:
    """The next action; `Rest`, `Linger` and `Refuse` are the last ones. The same values give the same action, however often."""
    if meta.deleting:
        return _leave(meta, row)
    if row is not None:
        return _steer(spec, meta, row)
    if meta.ended:
        return _unguarded(meta)
    if isinstance(spec, InvalidRequest):
        return _refused(spec)
    if spec.cancel or spec.suspend:
        return _unguarded(meta)
    return _begin(spec, meta, workflows)


def owns(meta: Meta, row: Execution) -> bool:
    """Whether the execution is this Task's own, and not one that it shares by its operation key."""
    return row.labels.get("uid") == meta.uid


def labels(meta: Meta) -> dict[str, str]:
    """What a row carries to find its Task again."""
    return {"uid": meta.uid, "namespace": meta.namespace, "task": meta.name, "generation": str(meta.generation)}


def operation_key(spec: Spec, meta: Meta) -> str:
    """The name of the operation that the Task asks for. A uid holds no slash, a namespace neither: the two forms never meet."""
    return f"task:{meta.namespace}/{spec.operation_key}" if spec.operation_key else f"task:{meta.uid}"


def _leave(meta: Meta, row: Execution | None) -> Action:
    if FINALIZER not in meta.finalizers:
        return Rest()
    if row is None or is_terminal(row.status) or not owns(meta, row):
        return Release()
    return Linger() if row.cancel_requested_by else Cancel(row.id, "the Task was deleted")


def _steer(spec: Spec | InvalidRequest, meta: Meta, row: Execution) -> Action:
    if is_terminal(row.status) or not owns(meta, row):
        return _unguarded(meta)
    if FINALIZER not in meta.finalizers:
        return Guard()
    if isinstance(spec, Spec) and spec.cancel and not row.cancel_requested_by:
        return Cancel(row.id, "spec.cancel of the Task is true")
    return Rest()


def _begin(spec: Spec, meta: Meta, workflows: Workflows) -> Action:
    try:
        workflow = workflows.get(spec.type)
        _stays_at_home(meta, workflow.read_input(spec.input))
    except PermanentError as error:
        return _refused(error)
    if FINALIZER not in meta.finalizers:
        return Guard()
    return Enqueue(
        workflow=spec.type,
        version=workflow.version,
        input=spec.input,
        operation_key=operation_key(spec, meta),
        queue=spec.queue,
        priority=spec.priority,
        max_attempts=spec.max_attempts,
        # From the creation, not from now: found late or found twice, it is the same moment.
        deadline_at=meta.created_at + spec.deadline if spec.deadline else None,
        labels=labels(meta),
    )


def _stays_at_home(meta: Meta, request: object) -> None:
    """Who may create Tasks in one namespace must not, through us, read what fails in another, nor run anything there."""
    if isinstance(request, Incident) and request.workload.namespace != meta.namespace:
        raise InvalidRequest(
            f"input.workload.namespace is {request.workload.namespace!r}: a Task of type {WORKFLOW} can only name a workload of its own "
            f"namespace, {meta.namespace!r}. Create the Task there."
        )
    if isinstance(request, JobRequest) and request.namespace not in (None, meta.namespace):
        raise InvalidRequest(
            f"input.namespace is {request.namespace!r}: the Job of a Task runs in the Task's namespace, {meta.namespace!r}. Leave it out."
        )


def _unguarded(meta: Meta) -> Action:
    return Release() if FINALIZER in meta.finalizers else Rest()


def _refused(error: PermanentError) -> Refuse:
    return Refuse(error.reason, error.message)
