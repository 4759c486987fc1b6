"""Dead letters: executions that ended in error and need a person, who runs them again or lets them be.

A letter is open until it is requeued or discarded, once and for good. It goes when its execution goes (see `retention`).
"""

from typing import Literal
from uuid import UUID

from suture.engine.database import Database
from suture.engine.fork import FromStep, requeue
from suture.engine.payload import admit_name
from suture.engine.records import DeadLetter, Execution
from suture.errors import Conflict, IllegalTransition, NotFound

State = Literal["open", "requeued", "discarded"]


class DeadLetters:
    """Listed, run again and let be; `Engine.requeue` does one."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self,
        *,
        state: State | None = None,
        workflow: str | None = None,
        reason: str | None = None,
        queue: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Youngest first, at most `limit`; the last one's `execution_id` as `before` gives the next page."""
        rows = await self._database.many("dead_letters", state, workflow, reason, queue, before, limit)
        return [DeadLetter.from_row(row) for row in rows]

    async def requeue_many(
        self,
        *,
        actor: str,
        workflow: str | None = None,
        reason: str | None = None,
        queue: str | None = None,
        from_step: FromStep = "failed",
        limit: int = 1000,
    ) -> list[Execution]:
        """Run the open ones that fit again, youngest first, each in a transaction of its own; returns their successors.

        Those whose operation key is taken by a living execution stay open, as do those that somebody else takes meanwhile.
        """
        admit_name(actor, "actor")
        made = []
        for letter in await self.page(state="open", workflow=workflow, reason=reason, queue=queue, limit=limit):
            try:
                made.append(await requeue(self._database, letter.execution_id, actor=actor, from_step=from_step))
            except (Conflict, IllegalTransition, NotFound):
                continue
        return made

    async def discard(self, id: UUID, *, actor: str, reason: str) -> DeadLetter:  # noqa: A002
        """Let it be: it is no longer open, and can't be requeued. Who and why stay in its row; the execution stays as it ended.

        Raises: NotFound. IllegalTransition when it is not open.
        """
        admit_name(actor, "actor")
        admit_name(reason, "reason")
        row = await self._database.maybe("discard_letter", id, actor, reason)
        if row is not None:
            return DeadLetter.from_row(row)
        letter = await self._find(id)
        what = f"was requeued as {letter.requeued_as}" if letter.requeued_as else f"was discarded by {letter.discarded_by}"
        raise IllegalTransition(f"The dead letter {id} {what}: only an open one can be discarded.")

    async def discard_many(
        self, *, actor: str, reason: str, workflow: str | None = None, failed_for: str | None = None, queue: str | None = None
    ) -> int:
        """Let all be that fit, `failed_for` being the reason for which they failed; returns how many."""
        admit_name(actor, "actor")
        admit_name(reason, "reason")
        return len(await self._database.many("discard_letters", workflow, failed_for, queue, actor, reason))

    async def _find(self, id_: UUID) -> DeadLetter:
        row = await self._database.maybe("find_letter", id_)
        if row is None:
            raise NotFound(f"There is no dead letter {id_}.")
        return DeadLetter.from_row(row)
