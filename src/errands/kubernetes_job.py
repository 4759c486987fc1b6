"""`kubernetes-job`: a Job of Kubernetes is created once, waited for as a row, and its end is kept.

Its name is made of the execution's id, so that a try finds what an earlier one has created. Between two looks the execution takes no
worker; a look comes after a tenth of the time that it has waited, or at once when somebody tells of the end (see the operator). Who deletes
the Job of an execution that was cancelled: `reaper`.
"""

import itertools
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from suture.clients.jobs import EXECUTION, Jobs, Object, has_ended
from suture.engine import Retry, Run, workflow
from suture.errands.job_manifest import gone, job_name, manifest, result, sentence, told_by
from suture.errands.requests import KUBERNETES_JOB, Answered, JobRequest, JobResult, ended_event
from suture.errors import AccessDenied, Conflict, InvalidRequest, JobFailed, NotFound, ServiceUnavailable
from suture.redaction import redact_bytes

_PATIENT = Retry(attempts=8, initial=timedelta(seconds=2), maximum=timedelta(minutes=10))
"""An API server that is away for half an hour costs nothing."""

_FIRST, _GROWTH, _LONGEST = 1.0, 1.1, 600.0  # seconds and factor: an end is seen at most a tenth late, a day takes a hundred looks

_KUBELET = 3  # tries for a log, of a kubelet that is restarting; then the result is kept without it

Look = Literal["runs", "ended", "gone"]


class Created(Answered):
    """Which Job it is."""

    namespace: str
    name: str
    uid: str
    execution: str


@workflow(KUBERNETES_JOB, version=1)
async def kubernetes_job(run: Run, request: JobRequest) -> JobResult:
    """One Job, from its creation to its kept end. A Job that fails is a failure (`JobFailed`)."""
    jobs: Jobs = run.resources[Jobs]
    namespace = jobs.permitted(request.namespace or run.execution.labels.get("namespace"))
    for round_ in itertools.count(1):
        job = await _create(run, jobs, request, namespace, round_)
        await _wait(run, jobs, job, round_)
        name = _named("result", round_)
        kept = await run.step(name, collect, jobs, job, request.log_bytes, run.failures(name) < _KUBELET, retry=_PATIENT)
        if kept.succeeded:
            return kept
        if job.execution == str(run.id):
            raise JobFailed(sentence(kept))
        # Requeued from the failed step: the Job that failed belongs to the execution before this one, which now makes its own.
    raise AssertionError("unreachable")


async def _create(run: Run, jobs: Jobs, request: JobRequest, namespace: str, round_: int) -> Created:
    wanted = manifest(request, namespace=namespace, execution=run.id, task=run.execution.labels.get("task"))
    return await run.effect(
        _named("create", round_),
        kind=KUBERNETES_JOB,
        key=f"{namespace}/{job_name(run.id)}",
        find=lambda: find(jobs, namespace, run.id),
        act=lambda: create(jobs, wanted, run.id),
        returns=Created,
        retry=_PATIENT,
    )


async def _wait(run: Run, jobs: Jobs, job: Created, round_: int) -> None:
    """Come back when the Job has ended, or is gone."""
    told = False
    for turn in itertools.count(1):
        seen: Look = await run.step(_named("look", round_, turn), look, jobs, job, retry=_PATIENT)
        if seen != "runs":
            return
        pause, name = pause_before_look(turn + 1), _named("wait", round_, turn)
        if told:  # that was too early; the event stays, so waiting for it again would be no wait
            await run.sleep(name, pause)
        else:
            told = await run.wait(name, dict[str, Any], event=ended_event(job.name), timeout=pause) is not None


async def find(jobs: Jobs, namespace: str, execution: UUID) -> Created | None:
    """The Job that an earlier try has created."""
    found = await jobs.find(namespace, job_name(execution))
    return _identity(found, execution) if found is not None else None


async def create(jobs: Jobs, wanted: Object, execution: UUID) -> Created:
    return _identity(await jobs.create(wanted), execution)


async def look(jobs: Jobs, job: Created) -> Look:
    found = await _present(jobs, job)
    if found is None:
        return "gone"
    return "ended" if has_ended(found) else "runs"


async def collect(jobs: Jobs, job: Created, log_bytes: int, patient: bool) -> JobResult:  # noqa: FBT001 (a step's arguments)
    """The end of the Job, and of its log. `patient`: a log that cannot be read now is worth another try."""
    found = await _present(jobs, job)
    if found is None:
        return gone(job.namespace, job.name)
    pods = await jobs.pods(found)
    kept = result(found, pods)
    place = told_by(pods, succeeded=kept.succeeded)
    if place is None or not log_bytes:
        return kept.model_copy(update={"log_note": "" if place else "Its pods are gone."})
    try:
        log, cut = await jobs.log(job.namespace, *place, limit=log_bytes)
    except (NotFound, AccessDenied, InvalidRequest, ServiceUnavailable) as error:
        if patient and isinstance(error, ServiceUnavailable):
            raise
        return kept.model_copy(update={"log_note": str(error)[:500]})
    return kept.model_copy(update={"log": redact_bytes(log).decode("utf-8", "replace"), "log_truncated": cut})


def pause_before_look(turn: int) -> timedelta:
    """How long to wait before look number `turn` (from 2).

    >>> [round(pause_before_look(n).total_seconds(), 1) for n in (2, 10, 30, 100)]
    [1.0, 2.1, 14.4, 600.0]
    """
    return timedelta(seconds=min(_LONGEST, _FIRST * _GROWTH ** min(turn - 2, 100)))


async def _present(jobs: Jobs, job: Created) -> Object | None:
    found = await jobs.find(job.namespace, job.name)
    return found if found is not None and found["metadata"]["uid"] == job.uid else None


def _identity(job: Object, execution: UUID) -> Created:
    metadata = job["metadata"]
    if (metadata.get("labels") or {}).get(EXECUTION) != str(execution):
        raise Conflict(f"There is a Job {metadata['namespace']}/{metadata['name']} that is not of task {execution}: delete it.")
    return Created(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"], execution=str(execution))


def _named(step: str, round_: int, turn: int = 1) -> str:
    named = step if turn == 1 else f"{step}-{turn}"
    return named if round_ == 1 else f"{named} of round {round_}"
