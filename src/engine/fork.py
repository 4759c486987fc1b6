"""Forks: an execution that has ended runs again as a new one, from one of its steps; a requeued dead letter from the step that failed.

The new execution gets copies of what was recorded before that step, so that nothing of it is done again; the old one stays as it ended.
Outside effects have a ledger of their own: one that is confirmed for its kind and key is not done again by a fork either.
Knows no workflow code: where the recorded steps no longer fit it, the run says so.
"""

from datetime import datetime
from typing import Literal
from uuid import UUID

from suture.engine.database import Database, Row, Session
from suture.engine.ids import uuid7
from suture.engine.records import Execution
from suture.engine.states import is_terminal
from suture.errors import Conflict, IllegalTransition, NotFound

FromStep = Literal["failed", "start"]


async def fork(database: Database, id: UUID, *, from_step: str, actor: str, version: int | None = None) -> Execution:  # noqa: A002
    """Run an ended execution again from `from_step`: what had finished before that step did is kept, `from_step` itself is not.

    It has the same input, labels and concurrency key and no operation key. Events are kept, but for those that answered a wait which is
    not: who approved then has not approved now. `version` is that of the code to run, the same by default.
    Raises: NotFound, with the steps that there are, IllegalTransition when it has not ended.
    """
    successor = uuid7()
    async with database.transaction() as session:
        source = await _ended(session, id)
        cut = await _fork_point(session, source, from_step)
        await _insert(session, source, successor, keyed=False, version=version, actor=actor, reason=f"forked from {id} at {from_step}")
        await _copy(session, id, successor, from_step=from_step, until=cut)
        return await _forked(session, successor, source["queue"])


async def requeue(database: Database, id: UUID, *, actor: str, from_step: FromStep = "failed") -> Execution:  # noqa: A002
    """Run a dead letter again as a new execution, which keeps the operation key, and the finished steps unless it goes from the start.

    What came after the step that failed, to clean up, is done again if it fails again. Raises: NotFound when there is no such task.
    IllegalTransition when it is no dead letter, or was requeued or discarded before. Conflict when its operation key is taken by another
    one that lives.
    """
    successor = uuid7()
    async with database.transaction() as session:
        source = await _find(session, id)
        if await session.maybe("mark_requeued", id, successor) is None:
            raise IllegalTransition(f"Task {id} is {source['status']} and no dead letter that waits: it cannot be requeued.")
        made = await _insert(session, source, successor, keyed=True, version=None, actor=actor, reason=f"requeued from {id}")
        if not made["created"]:
            raise Conflict(
                f"The operation key {source['operation_key']!r} of task {id} is taken by {made['id']}, which lives: wait for its end."
            )
        if from_step == "failed":
            failed = await session.maybe("find_step", id, source["step"])
            # A step that is finished is none that failed: the code between it and the next one was.
            cut = failed["finished_at"] if failed and failed["kind"] == "failure" else None
            await _copy(session, id, successor, from_step=source["step"] if cut else None, until=cut)
            await session.none("copy_results", id, successor, cut)
        return await _forked(session, successor, source["queue"])


async def _find(session: Session, id_: UUID) -> Row:
    row = await session.maybe("get", id_)
    if row is None:
        raise NotFound(f"There is no task {id_}.")
    return row


async def _ended(session: Session, id_: UUID) -> Row:
    row = await _find(session, id_)
    if not is_terminal(row["status"]):
        raise IllegalTransition(f"Task {id_} is {row['status']}: only what has ended can be forked. Cancel it first, or wait for its end.")
    return row


async def _fork_point(session: Session, source: Row, step: str) -> datetime | None:
    """When the step's record was written; None when it began and has none, so that all that is recorded came before it."""
    found = await session.maybe("find_step", source["id"], step)
    if found is not None:
        return found["finished_at"]  # type: ignore[no-any-return]
    if step != source["step"]:
        recorded = [row["step_id"] for row in await session.many("load_checkpoints", source["id"])]
        known = ", ".join(map(repr, dict.fromkeys([*recorded, source["step"] or ""]))) if recorded or source["step"] else "none"
        raise NotFound(f"Task {source['id']} has no step {step!r}. Its steps are: {known}.")
    return None


async def _insert(session: Session, source: Row, successor: UUID, *, keyed: bool, version: int | None, actor: str, reason: str) -> Row:
    return await session.one("insert_fork", source["id"], successor, keyed, version, actor, reason)


async def _copy(session: Session, source: UUID, successor: UUID, *, from_step: str | None, until: datetime | None) -> None:
    await session.none("copy_checkpoints", source, successor, from_step, until)
    await session.none("copy_events", source, successor)


async def _forked(session: Session, successor: UUID, queue: str) -> Execution:
    await session.none("hint", [queue])
    return Execution.from_row(await _find(session, successor))
