"""Steps that nobody may begin for now: paused by name or kind in all workflows or some, live. "Open no more pull requests."

An execution that comes to one is suspended, a row and nothing else, and goes on when the pause ends. What has begun goes on: a pause takes
back nothing. A worker hears of a pause within milliseconds, without a listening connection within a poll; an effect asks the database
itself, in the statement that notes its intent. Knows no workflow code (see `run`).
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from suture.engine.claim import Claim
from suture.engine.database import Database, Session
from suture.engine.payload import admit_name
from suture.engine.records import reader
from suture.errors import DatabaseUnavailable, NotFound, Suspended

log = logging.getLogger(__name__)

CHANNEL = "suture_steps"

ANY = "*"

_AWAY = 0.5  # seconds between two tries while Postgres is away


@dataclass(frozen=True, slots=True)
class PausedStep:
    """A pause as it stands."""

    step: str
    """A step's name, or the kind of an effect; `*` stands for any text."""
    workflow: str
    paused_by: str
    paused_at: datetime
    reason: str
    held: int = 0
    """Executions that wait for its end."""

    def covers(self, workflow: str, step: str) -> bool:
        """Whether `step` of `workflow` is among them."""
        return bool(_pattern(self.workflow).fullmatch(workflow) and _pattern(self.step).fullmatch(step))


class Steps:
    """Pauses of steps, by what they cover."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pause(self, step: str, *, actor: str, workflow: str = ANY, reason: str = "") -> None:
        """Let nobody begin a step of this name, or an effect of this kind; `*` stands for any text. Again: another reason."""
        async with self._changed(step, workflow, actor) as session:
            await session.none("pause_steps", step, workflow, actor, reason)

    async def resume(self, step: str, *, actor: str, workflow: str = ANY) -> int:
        """End the pause that was made with the same words; returns how many executions go on at once. Raises: NotFound."""
        async with self._changed(step, workflow, actor) as session:
            await session.none("close_steps")
            if await session.maybe("resume_steps", step, workflow) is None:
                where = "" if workflow == ANY else f" of {workflow}"
                raise NotFound(f"There is no pause of {step!r}{where}: `list` tells which there are.")
            return len(await session.many("wake_held", actor))

    async def list(self) -> Sequence[PausedStep]:
        """By step and workflow."""
        return list(map(reader(PausedStep), await self._database.many("paused_steps")))

    @asynccontextmanager
    async def _changed(self, step: str, workflow: str, actor: str) -> AsyncIterator[Session]:
        for what, name in {"step": step, "workflow": workflow, "actor": actor}.items():
            admit_name(name, what)
        async with self._database.transaction() as session:
            yield session
            await session.none("tell_steps")


class Pauses:
    """What a worker knows of the pauses."""

    def __init__(self, database: Database | None = None, *, poll: timedelta = timedelta(seconds=1)) -> None:
        self._database, self._poll = database, poll.total_seconds()
        self._known: Sequence[PausedStep] = ()
        self._hears, self._told = False, asyncio.Event()

    def cover(self, workflow: str, step: str) -> bool:
        """Whether nobody may begin this step now."""
        return bool(self._known) and any(pause.covers(workflow, step) for pause in self._known)

    def told(self, *, hears: bool) -> None:
        """Something may have changed; `hears` says whether changes are heard of, or have to be asked for with each poll."""
        self._hears = hears
        self._told.set()

    async def follow(self) -> None:
        """Keep up with the pauses, for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None if self._hears else self._poll):
                    await self._told.wait()
            self._told.clear()
            try:
                await self.read()
            except DatabaseUnavailable as error:
                log.debug("no pauses for now: %s", error)
                self.told(hears=False)  # until it is heard of again: the connection that listens greets when it is back
                await asyncio.sleep(_AWAY)

    async def read(self) -> None:
        """Raises: DatabaseUnavailable."""
        if self._database is not None:
            self._known = await Steps(self._database).list()


async def stand_aside(claim: Claim, step: str, *, kind: str | None = None) -> None:
    """Suspend the execution in front of `step`, unless the pause has ended meanwhile. Raises: Suspended, LeaseLost."""
    await claim.persist(lambda: _stand_aside(claim, step, kind or step))


async def _stand_aside(claim: Claim, step: str, kind: str) -> None:
    async with claim.database.transaction() as session:
        # Before the execution's row: whoever ends a pause holds this lock alone, and then wakes everyone that it finds.
        await session.none("share_steps")
        pause = await session.maybe("find_pause", claim.execution.workflow, step, kind)
        if pause is None:
            return
        why = f"{step} is paused by {pause['paused_by']}" + (f": {pause['reason']}" if pause["reason"] else "")
        claim.held(await session.maybe("suspend", *claim.fence, step, claim.actor, why))
        await session.none("note_held", claim.execution.id, claim.execution.workflow, step, kind)
    raise Suspended


@lru_cache(maxsize=1024)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, text.split(ANY))), re.DOTALL)
