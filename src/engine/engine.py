"""The engine as its clients see it: hand in executions, look at them, steer them. Running them is the `Runner`'s.

One method is one statement or one transaction. Works on the rows alone: any number of processes may use it at the same time.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from suture.engine.children import tend
from suture.engine.database import Database, Row, Session
from suture.engine.fork import FromStep, fork, requeue
from suture.engine.history import History
from suture.engine.ids import uuid7
from suture.engine.intake import Intake, New
from suture.engine.letters import DeadLetters
from suture.engine.payload import LIMIT, admit, admit_keys, admit_name, decode, digest
from suture.engine.queues import Queues
from suture.engine.records import Checkpoint, DeadLetter, Enqueued, Event, Execution, Health, Move
from suture.engine.schedules import Schedules
from suture.engine.states import LIVE
from suture.engine.steps import Steps
from suture.errors import Conflict, DatabaseUnavailable, IllegalTransition, InvalidRequest, NotFound

Reuse = Literal["return", "reject", "new"]
"""What an operation key of an ended execution means: its answer again, a refusal, or a new execution."""

_FIRST, _MOST = 50, 400
"""Rows of a bulk that one statement takes: the next are made ready while Postgres writes these. The first are few, as nothing is being
written while they are made, and each statement takes twice as many as the one before it."""


class Engine:
    """One database's executions. Any number may stand side by side, in any number of processes."""

    def __init__(self, database: Database, *, payload_limit: int = LIMIT) -> None:
        self.database, self._limit = database, payload_limit
        self.queues = Queues(database)
        """Looked at, paused and limited."""
        self.steps = Steps(database)
        """Kinds of steps, paused and resumed."""
        self.schedules = Schedules(database, payload_limit=payload_limit)
        """What is due again and again."""
        self.letters = DeadLetters(database)
        """What needs a person."""
        self.history = History(database)
        """What ended, in numbers."""
        self._intake = Intake(database)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """A transaction that `enqueue` and `emit` can join, so that the caller's own rows commit with them or not at all."""
        async with self.database.transaction(lent=True) as session:
            yield session

    async def enqueue(
        self,
        workflow: str,
        input: object,  # noqa: A002 (the field's name everywhere)
        *,
        actor: str,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        operation_key: str | None = None,
        reuse: Reuse = "return",
        concurrency_key: str | None = None,
        labels: Mapping[str, str] | None = None,
        run_at: datetime | None = None,
        deadline_at: datetime | None = None,
        queue_timeout: timedelta | None = None,
        run_timeout: timedelta | None = None,
        max_attempts: int | None = None,
        forked_from: UUID | None = None,
        reason: str = "requested",
        session: Session | None = None,
    ) -> Enqueued:
        """Add an execution, or find the one that this operation key already names.

        Idempotent by `operation_key`: unique among the living; `reuse` says what an ended one means.
        It ends in error by itself when nobody has begun it `queue_timeout` after it was due, or when it has not ended `run_timeout` after
        it was begun, or by `deadline_at`.
        Of one `concurrency_key` in a queue one lives at a time, from its first claim to its end, or as many as `Limits.per_key` says.
        A point of `priority` is worth a minute of waiting, up to a day, or down to an hour: nobody starves.
        Raises: Conflict when the key names another workflow or input, or `reuse` is "reject"; PayloadUnfit, PayloadTooLarge.
        """
        _check_names(workflow=workflow, queue=queue, actor=actor, operation_key=operation_key, concurrency_key=concurrency_key)
        _check_times(run_at=run_at, deadline_at=deadline_at)
        timed = queue_timeout is not None or run_timeout is not None
        text = admit(input, limit=self._limit)
        tags = admit(dict(labels), what="labels", limit=self._limit) if labels else "{}"
        if operation_key is None and concurrency_key is None and session is None and not timed:
            new = New(
                uuid7(), workflow, version, queue, priority, text, tags, run_at, max_attempts, deadline_at, actor, reason, forked_from
            )
            return Enqueued(await self._intake.put(new), created=True)
        content = workflow, digest(text) if operation_key is not None else None
        row = uuid7(), workflow, version, queue, priority, text, operation_key, content[1], tags
        rest = run_at, max_attempts, deadline_at, actor, reason, forked_from
        insert, keyed = _insert(concurrency_key, lone=session is None)
        async with self._joined(session) as inside:
            known = await self._known(inside, operation_key, reuse)
            found = known or await inside.one(insert, *row, *rest, *keyed)
            if timed and known is None and found["created"]:
                await inside.none("limit_times", found["id"], queue_timeout, run_timeout)
            if session is not None:
                await session.none("hint", [queue])
        created = known is None and found["created"]
        if created and session is None:
            self._intake.hints.soon({queue})
        if not created and (found["workflow"], found["input_digest"]) != content:
            raise Conflict(
                f"The operation key {operation_key!r} belongs to {found['workflow']} {found['id']} with another input: "
                "use another key for another request."
            )
        return Enqueued(Execution.from_row(found), created)

    async def enqueue_many(
        self,
        workflow: str,
        inputs: Sequence[object],
        *,
        actor: str,
        version: int = 1,
        queue: str = "default",
        priority: int = 0,
        concurrency_keys: Sequence[str | None] | None = None,
        labels: Mapping[str, str] | None = None,
        run_at: datetime | None = None,
        reason: str = "requested",
    ) -> list[UUID]:
        """Add an execution for each of `inputs`, all or none; their ids, in the same order. `concurrency_keys` has one for each, or None.

        Without operation keys: whoever may call twice uses `enqueue`. Raises: InvalidRequest, PayloadUnfit, PayloadTooLarge.
        """
        _check_names(workflow=workflow, queue=queue, actor=actor)
        _check_times(run_at=run_at)
        tags = admit(dict(labels or {}), what="labels", limit=self._limit)
        rest = workflow, version, queue, priority, tags, run_at, actor, reason
        if concurrency_keys is not None:
            keys = admit_keys(concurrency_keys, len(inputs))
            ids, texts = self._admitted(inputs)
            await self.database.none("enqueue_many_keyed", ids, texts, keys, *rest)
        elif len(inputs) <= _FIRST:
            ids, texts = self._admitted(inputs)
            await self.database.none("enqueue_many", ids, texts, *rest)
        else:
            async with self.database.transaction() as inside:
                ids = await self._enqueue_in_pieces(inside, inputs, rest)
        self._intake.hints.soon({queue})
        return ids

    async def _enqueue_in_pieces(self, session: Session, inputs: Sequence[object], rest: tuple[object, ...]) -> list[UUID]:
        written: asyncio.Task[None] | None = None
        all_ids: list[UUID] = []
        try:
            for piece in _pieces(len(inputs)):
                ids, texts = self._admitted(inputs[piece], piece.start)
                if written is not None:
                    await written
                written = asyncio.create_task(session.none("enqueue_many", ids, texts, *rest))
                all_ids += ids
                await asyncio.sleep(0)  # it is on its way before the next ones are made
            if written is not None:
                await written
            return all_ids
        finally:
            if written is not None and not written.done():
                written.cancel()  # the connection is free for the rollback when it has ended
                await asyncio.wait([written])

    def _admitted(self, inputs: Sequence[object], first: int = 0) -> tuple[list[UUID], list[str]]:
        """An id for each of `inputs`, and its text; complaints count from `first`."""
        texts = [admit(one, what=f"input {number}", limit=self._limit) for number, one in enumerate(inputs, first)]
        return [uuid7() for _ in texts], texts

    async def _known(self, session: Session, operation_key: str | None, reuse: Reuse) -> Row | None:
        """The execution that answers for this key; None: a new one is due."""
        if operation_key is None:
            return None
        # Between the look at the key's executions and the insert, nobody else may pass with it.
        await session.none("lock_key", operation_key)
        found = await session.maybe("last_with_key", operation_key)
        if found is None or found["status"] in LIVE or reuse == "return":
            return found
        if reuse == "reject":
            raise Conflict(f"The operation key {operation_key!r} was used by {found['id']}, which ended as {found['status']}.")
        return None

    async def get(self, id: UUID) -> Execution:  # noqa: A002
        """Raises: NotFound."""
        row = await self.database.maybe("get", id)
        if row is None:
            raise NotFound(f"There is no task {id}.")
        return Execution.from_row(row)

    async def page(
        self,
        *,
        statuses: Sequence[str] | None = None,
        workflow: str | None = None,
        queue: str | None = None,
        labels: Mapping[str, str] | None = None,
        before: UUID | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        limit: int = 50,
    ) -> list[Execution]:
        """Executions, youngest first, at most `limit`; the last one's id as `before` gives the next page."""
        wanted = json.dumps(dict(labels)) if labels else None
        rows = await self.database.many("page", statuses, workflow, queue, wanted, before, created_before, created_after, limit)
        return [Execution.from_row(row) for row in rows]

    async def cancel(self, id: UUID, *, actor: str, reason: str = "cancelled", session: Session | None = None) -> Execution:  # noqa: A002
        """Cancel at once what nobody runs; ask the worker of what runs. Asking twice changes nothing. Its living children go with it.

        Raises: NotFound. IllegalTransition when it has ended, but for one that is cancelled already.
        """
        _check_names(actor=actor)
        async with self._joined(session) as inside:
            row = await inside.maybe("cancel", id, actor, reason)
        if row is not None:
            if session is None and (row["has_children"] or row["parent_id"]):
                with suppress(DatabaseUnavailable):  # any worker's sweep does it, too
                    await tend(self.database)
            return Execution.from_row(row)
        ended = await self.get(id)
        if ended.status != "cancelled":
            raise IllegalTransition(f"Task {id} is {ended.status}: it cannot be cancelled. Allowed are: {_allowed(ended)}.")
        return ended

    async def emit(self, id: UUID, name: str, payload: object, *, actor: str, session: Session | None = None) -> Event:  # noqa: A002
        """Tell the execution a fact from outside. The first of a name counts; a later one gets the first back, not accepted.

        Raises: NotFound. IllegalTransition when the execution has ended. PayloadUnfit, PayloadTooLarge.
        """
        _check_names(event=name, actor=actor)
        text = admit(payload, what="payload", limit=self._limit)
        async with self._joined(session) as inside:
            # The lock comes first, in a statement of its own: see Claim.wait.
            locked = await inside.maybe("lock_execution", id)
            if locked is None or locked["status"] not in LIVE:
                raise await self._not_waiting(id, name)
            if first := await inside.maybe("find_event", id, name):
                return _event(name, first, accepted=False)
            wait = await inside.maybe("is_wait_over", id, name)
            if wait is not None and wait["over"]:
                raise IllegalTransition(f"Task {id} no longer waits for {name}: the time is over.")
            row = await inside.one("emit", id, name, text, actor)
            await inside.maybe("wake_for_event", id, name, actor)
        return _event(name, row, accepted=row["ours"])

    async def checkpoints(self, id: UUID) -> list[Checkpoint]:  # noqa: A002
        """The finished steps, in the order in which they finished."""
        return [Checkpoint.from_row(row) for row in await self.database.many("load_checkpoints", id)]

    async def timeline(self, id: UUID) -> list[Move]:  # noqa: A002
        """Every move, in order: who, when, from where to where, why."""
        return [Move.from_row(row) for row in await self.database.many("timeline", id)]

    async def cursor(self) -> str:
        """A point in the history of this database: `changed_since` it misses no move that commits later."""
        return str((await self.database.one("cursor"))["cursor"])

    async def changed_since(self, cursor: str, *, label: str) -> tuple[str, list[Execution]]:
        """Executions with `label` that moved since `cursor`, and the new cursor. A poll for mirrors: may name one twice, misses none."""
        async with self.database.session() as session:
            later = str((await session.one("cursor"))["cursor"])
            rows = await session.many("changed_since", cursor, label)
        return later, [Execution.from_row(row) for row in rows]

    async def dead_letters(self, *, limit: int = 50) -> list[DeadLetter]:
        """Youngest first; `letters` has the rest of what can be done with them."""
        return await self.letters.page(limit=limit)

    async def requeue(self, id: UUID, *, actor: str, from_step: FromStep = "failed") -> Execution:  # noqa: A002
        """Run a dead letter again as a new execution, which keeps the finished steps unless it goes from the start.

        Raises: NotFound when there is no such task. IllegalTransition when it is no dead letter, or was requeued or discarded before.
        Conflict when its operation key is taken by another one that lives.
        """
        _check_names(actor=actor)
        return await requeue(self.database, id, actor=actor, from_step=from_step)

    async def fork(self, id: UUID, *, from_step: str, actor: str, version: int | None = None) -> Execution:  # noqa: A002
        """Run an ended execution again, as a new one, from one of its steps; what had finished before that step did is kept.

        Events are kept, but for those that answered a wait which is not; an outside effect that is confirmed is not done again. The new
        one has no operation key. Raises: NotFound, with the steps that there are. IllegalTransition when it has not ended.
        """
        _check_names(actor=actor)
        return await fork(self.database, id, from_step=from_step, actor=actor, version=version)

    async def expire(self, worker: str) -> list[UUID]:
        """End the leases of everyone called `worker`, for whoever knows that it is gone; its work is recovered by the next sweep.

        Safe when it lives after all: its next heartbeat renews what nobody has taken yet, and the epoch fences the rest.
        """
        return [row["id"] for row in await self.database.many("expire_owner", worker)]

    async def health(self, *, overdue: timedelta = timedelta(minutes=1)) -> Health:
        """The numbers that say whether work flows, and what holds it up."""
        async with self.database.session() as session:
            latency = await session.one("latency")
            seconds = latency["seconds"] or [None, None, None]
            return Health(
                depth=[dict(r) for r in await session.many("depth")],
                workers=[{**r, "id": str(r["id"])} for r in await session.many("living_workers")],
                endings=[dict(r) for r in await session.many("endings")],
                latency_seconds=dict(zip(("p50", "p95", "p99"), seconds, strict=True)),
                dead_letters=(await session.one("dead_count"))["count"],
                unclaimable=[dict(r) for r in await session.many("unclaimable", overdue)],
                queues=[dict(r) for r in await session.many("steered_queues")],
                paused_steps=[dict(r) for r in await session.many("paused_steps")],
                schedules=[dict(r) for r in await session.many("schedule_times")],
            )

    async def ping(self) -> None:
        """Raises: DatabaseUnavailable."""
        await self.database.one("ping")

    @asynccontextmanager
    async def _joined(self, session: Session | None) -> AsyncIterator[Session]:
        if session is not None:
            yield session
        else:
            async with self.database.transaction() as own:
                yield own

    async def _not_waiting(self, id: UUID, name: str) -> IllegalTransition:  # noqa: A002
        ended = await self.get(id)
        return IllegalTransition(f"Task {id} is {ended.status}: it waits for no {name}.")


def _insert(concurrency_key: str | None, *, lone: bool) -> tuple[str, tuple[object, ...]]:
    """The statement that inserts, and what it takes beside the execution: without a key nobody else is looked at."""
    return ("enqueue", ()) if concurrency_key is None else ("enqueue_keyed", (concurrency_key, lone))


def _pieces(count: int) -> Iterator[slice]:
    first, size = 0, _FIRST
    while first < count:
        yield slice(first, first + size)
        first, size = first + size, min(2 * size, _MOST)


def _allowed(execution: Execution) -> str:
    return "requeue" if execution.status == "error" else "nothing, it has ended"


def _event(name: str, row: Row, *, accepted: bool) -> Event:
    return Event(name, decode(row["payload"]), row["emitted_by"], row["emitted_at"], accepted=accepted)


def _check_names(**names: str | None) -> None:
    for what, name in names.items():
        if name is not None:
            admit_name(name, what.replace("_", " "))


def _check_times(**times: datetime | None) -> None:
    for what, time in times.items():
        if time is not None and time.tzinfo is None:
            raise InvalidRequest(f"The time {what} {time:%Y-%m-%dT%H:%M:%S} has no time zone: add one, for example +00:00.")
