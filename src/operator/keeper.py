"""The keeper: does for each Task what `reconcile` says, and shows its status. What it knows in memory only saves requests.

Handlers, mirror and resync all end here, in `settle`: the same look at the same Task, in whatever order and however often. One Task at a
time, any number of Tasks and of replicas. What could not be done now stays in `behind`, and the mirror tries it again.

No replica takes back what another one has shown: memory may decide that nothing is to be written, but a write is decided by a row that was
read after the Task was printed (see `_ask`), and counts only while the Task is still the one that was printed.
"""

import asyncio
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from suture.engine import Engine, Execution, Workflows, is_terminal
from suture.errors import AccessDenied, Conflict, DatabaseUnavailable, IllegalTransition, NotFound, PermanentError, TemporaryError
from suture.operator import conditions
from suture.operator.objects import Objects
from suture.operator.reconcile import Action, Cancel, Enqueue, Guard, Linger, Refuse, Release, Rest, operation_key, owns, reconcile
from suture.operator.resource import FINALIZER, Spec, Task

log = logging.getLogger(__name__)

ACTOR = "operator"

_ROUNDS = 6  # guard, enqueue, cancel, release, and two for an object that moved on meanwhile; more is a quarrel, and waits
_TRIES = 4  # of one status write against another hand that writes at the same time


@dataclass(slots=True)
class Known:
    """One Task in memory, with its row."""

    task: Task
    row: Execution | None = None
    asked: str = ""
    """The version of the Task after which the row was read: for another one the row may be older than what is shown."""
    refusal: Refuse | None = None
    refused: int = -1
    """Generation that the engine refused: it is asked again when the spec changes."""
    digest: str = ""
    """Of the proposal that a person is, or was, asked to approve."""
    leaving: float | None = None
    """When its deletion was seen first, on the monotonic clock."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Keeper:
    """`patience`: how long a deleted Task may wait for the end of its execution before it is released all the same."""

    def __init__(self, engine: Engine, objects: Objects, workflows: Workflows, *, patience: timedelta = timedelta(seconds=10)) -> None:
        self.engine, self.objects = engine, objects
        self.known: dict[str, Known] = {}
        """By uid."""
        self.behind: set[str] = set()
        """The uids that must be looked at again."""
        self._sharers: defaultdict[UUID, set[str]] = defaultdict(set)  # uids of the Tasks that show an execution of another Task
        self._workflows, self._patience = workflows, patience.total_seconds()

    # What is seen ------------------------------------------------------------------------------------------------------------

    async def heed(self, task: Task) -> None:
        """Look at the Task as it was printed just now."""
        await self.settle(self.meet(task))

    def meet(self, task: Task) -> Known:
        """The Task in memory, brought up to what was printed."""
        known = self.known.get(task.meta.uid)
        if known is None:
            known = self.known[task.meta.uid] = Known(task)
        elif _newer(task, known.task):
            known.task = _lean(task, known.row)
        if task.meta.deleting and known.leaving is None:
            known.leaving = time.monotonic()
        return known

    def forget(self, uid: str) -> None:
        """The Task is gone."""
        known = self.known.pop(uid, None)
        self.behind.discard(uid)
        if known is not None and known.row is not None and known.row.id in self._sharers:
            self._sharers[known.row.id].discard(uid)
            if not self._sharers[known.row.id]:
                del self._sharers[known.row.id]

    def moved(self, row: Execution) -> list[Known]:
        """The Tasks that show the row; those to which it is news are `behind` now."""
        showing = [self.known[uid] for uid in (row.labels.get("uid", ""), *self._sharers.get(row.id, ())) if uid in self.known]
        for known in showing:
            if known.row is None or _younger(row, known.row):
                known.row, known.asked = conditions.summarized(row), ""
                self.behind.add(known.task.meta.uid)
        return showing

    def overdue(self) -> list[Known]:
        """Deleted Tasks that have waited long enough."""
        return [known for known in self.known.values() if self._waited(known)]

    # What is done ------------------------------------------------------------------------------------------------------------

    async def settle(self, known: Known) -> None:
        """Bring row and status of the Task to what it asks for. Never raises: what failed is in `behind`, or waits for the resync."""
        uid = known.task.meta.uid
        async with known.lock:
            if self.known.get(uid) is not known:
                return  # it went while we waited
            self.behind.discard(uid)
            try:
                await self._settle(known)
            except NotFound:
                self.forget(uid)
            except (TemporaryError, Conflict) as error:
                self.behind.add(uid)
                log.debug("later: %s", error, extra={"task": str(known.task.meta.name)})
            except AccessDenied as error:
                log.error("%s. Does the operator's role hold this verb?", error)
            except Exception:  # the border between somebody's object and all the others: one must not stop the rest
                log.exception("could not reconcile", extra={"namespace": known.task.meta.namespace, "task": known.task.meta.name})

    async def _settle(self, known: Known) -> None:
        if self._waited(known):
            return await self._release_late(known)
        try:
            await self._reach(known)
        except DatabaseUnavailable:
            if known.row is None:
                await self._show(known, away=True)
            raise
        if not _released(known.task):
            await self._show(known)
        return None

    async def _reach(self, known: Known) -> None:
        """Act until nothing is left to do."""
        if known.row is None:
            await self._ask(known)
        for _ in range(_ROUNDS):
            action = await self._next(known)
            if isinstance(action, Rest | Linger | Refuse):
                known.refusal = action if isinstance(action, Refuse) else None
                return
            try:
                await self._act(known, action)
            except Conflict as error:
                if isinstance(action, Enqueue):
                    self._refuse(known, error)
                else:
                    await self._again(known)
            except PermanentError as error:
                if not isinstance(action, Enqueue):
                    raise
                self._refuse(known, error)
        raise Conflict("the Task keeps changing")

    async def _next(self, known: Known) -> Action:
        while not isinstance(action := self._choose(known), Rest | Linger | Refuse) and not _is_fresh(known):
            await self._ask(known)
        return action

    def _choose(self, known: Known) -> Action:
        meta = known.task.meta
        if known.row is None and known.refusal and known.refused == meta.generation and not meta.deleting:
            return Release() if FINALIZER in meta.finalizers else known.refusal
        return reconcile(known.task.spec, meta, known.row, workflows=self._workflows)

    async def _act(self, known: Known, action: Action) -> None:
        match action:
            case Guard() | Release():
                before = known.task
                self._printed(known, before, await self.objects.guard(before, guarded=isinstance(action, Guard)))
            case Enqueue():
                self._take(known, await self._enqueue(action))
                known.task = known.task.without_input()
            case Cancel():
                self._take(known, await self._cancel(action))

    def _take(self, known: Known, row: Execution) -> None:
        known.row, known.asked = conditions.summarized(row), ""
        if not owns(known.task.meta, row):
            self._sharers[row.id].add(known.task.meta.uid)

    async def _enqueue(self, wanted: Enqueue) -> Execution:
        cluster = await self.objects.cluster_id()
        found = await self.engine.enqueue(
            wanted.workflow,
            wanted.input,
            actor=ACTOR,
            version=wanted.version,
            queue=wanted.queue,
            priority=wanted.priority,
            operation_key=wanted.operation_key,
            labels={**wanted.labels, "cluster": cluster},
            deadline_at=wanted.deadline_at,
            max_attempts=wanted.max_attempts,
            reason=f"Task {wanted.labels['namespace']}/{wanted.labels['task']}",
        )
        return found.execution

    async def _cancel(self, wanted: Cancel) -> Execution:
        try:
            return await self.engine.cancel(wanted.id, actor=ACTOR, reason=wanted.reason)
        except IllegalTransition:
            return await self.engine.get(wanted.id)  # it ended first

    def _refuse(self, known: Known, error: PermanentError) -> None:
        known.refusal, known.refused = Refuse(error.reason, error.message), known.task.meta.generation

    async def _ask(self, known: Known) -> None:
        """Read the row, with what only its checkpoints tell.

        What is shown was decided by a row that was read before it was shown. Ours, read after that, is the same one or a later one.
        """
        version, before = known.task.meta.resource_version, known.row
        found = await self._find(known)
        digest = ""
        if found is not None:
            found, digest = await self._with_checkpoints(found)
        if known.row is not before:
            return  # the mirror heard of another one meanwhile: whoever needs to know asks again
        if found is not None:
            self._take(known, found)
            known.digest = digest
        elif known.task.meta.ended:
            known.row = None  # removed by retention; without the mark of its end, what is known of it still counts
        known.asked = version

    async def _find(self, known: Known) -> Execution | None:
        """The Task's youngest row: a requeued dead letter has a successor with the same labels. Else the one that it shares."""
        task = known.task
        own = await self.engine.page(labels={"uid": task.meta.uid}, limit=1)
        if own:
            return own[0]
        try:
            shared = await self.engine.get(known.row.id if known.row is not None else UUID(task.execution_id or ""))
        except (NotFound, ValueError):
            return None  # there is none, retention has removed it, or somebody's hand wrote nonsense
        # A hand that may write a status must not make us print another tenant's execution there.
        names_it = isinstance(task.spec, Spec) and shared.operation_key == operation_key(task.spec, task.meta)
        return shared if names_it else None

    async def _with_checkpoints(self, row: Execution) -> tuple[Execution, str]:
        """The row, when it has ended with the step that ran last, and the digest of what was proposed last."""
        done = await self.engine.checkpoints(row.id)
        outputs = [c.output for c in done if isinstance(c.output, dict)]
        proposed = [o["digest"] for o in outputs if {"digest", "diff", "base"} <= o.keys() and isinstance(o["digest"], str)]
        step = done[-1].step_id if done and row.step is None and is_terminal(row.status) else row.step
        return row._replace(step=step), proposed[-1] if proposed else ""

    async def _release_late(self, known: Known) -> None:
        """The bound counts, not the execution: a namespace must not hang on Postgres. The resync cancels what still lives."""
        log.warning("released before its execution ended", extra={"namespace": known.task.meta.namespace, "task": known.task.meta.name})
        for _ in range(_ROUNDS):
            try:
                known.task = await self.objects.guard(known.task, guarded=False)
            except Conflict:
                await self._again(known)
            else:
                return

    def _waited(self, known: Known) -> bool:
        guarded = known.leaving is not None and FINALIZER in known.task.meta.finalizers
        return guarded and time.monotonic() - (known.leaving or 0) >= self._patience

    # What is shown -----------------------------------------------------------------------------------------------------------

    async def _show(self, known: Known, *, away: bool = False) -> None:
        """Write the status when it is not what the API server shows. `away`: Postgres is, so that nothing is known."""
        for _ in range(_TRIES):
            wanted = self._unknown(known) if away else await self._wanted(known)
            if wanted is None:
                return
            before = known.task
            try:
                written = await self.objects.apply_status(before, wanted, conditions.surplus(before.status, wanted))
            except Conflict:
                await self._again(known)
                continue
            self._printed(known, before, written)
            await self._tell(before, known, wanted)
            return
        self.behind.add(known.task.meta.uid)

    async def _wanted(self, known: Known) -> conditions.Status | None:
        """The status to write; None when the one that is shown is right."""
        while (wanted := self._difference(known)) is not None and not _is_fresh(known):
            await self._ask(known)
            self.behind.add(known.task.meta.uid)  # another row may ask for another action, too
        return wanted

    def _difference(self, known: Known, *, away: bool = False) -> conditions.Status | None:
        if known.row is None and known.task.meta.ended:
            return None  # retention removed the row: the last status is all that is left to know
        now = datetime.now(UTC)
        wanted = conditions.status(known.task, known.row, now=now, refusal=known.refusal, away=away, digest=known.digest)
        return wanted if conditions.differs(known.task.status, wanted) else None

    def _unknown(self, known: Known) -> conditions.Status | None:
        """What to say while Postgres is away: nothing where another replica, or we in another life, have shown an execution."""
        silent = known.task.execution_id is not None or known.task.meta.deleting
        return None if silent else self._difference(known, away=True)

    def _printed(self, known: Known, before: Task, after: Task) -> None:
        """Our own write made `after` of `before`, and nobody's came between: what was read for the one holds for the other."""
        if _newer(after, known.task):
            known.asked = after.meta.resource_version if known.asked == before.meta.resource_version else ""
            known.task = _lean(after, known.row)

    async def _tell(self, before: Task, known: Known, wanted: conditions.Status) -> None:
        """One Kubernetes Event for each reason and step; only the replica whose write counted tells it."""
        if (before.status.get("reason"), before.status.get("step")) == (wanted["reason"], wanted.get("step")):
            return
        about = f"{wanted.get('executionId', '')}/{wanted.get('step', '')}"
        stalled = any(c["type"] == "Stalled" and c["status"] == "True" for c in wanted["conditions"])
        try:
            await self.objects.tell(known.task, wanted["reason"], wanted["message"], warning=stalled, about=about)
        except (PermanentError, TemporaryError) as error:
            log.debug("an event was not told: %s", error)  # the status is the truth, an event a courtesy

    async def _again(self, known: Known) -> None:
        """Look at the Task as it is now. Raises: NotFound when it is gone, or another one has its name."""
        meta = known.task.meta
        found = await self.objects.get(meta.namespace, meta.name)
        if found.meta.uid != meta.uid:
            raise NotFound(f"{meta.namespace}/{meta.name} is another Task now")
        known.task = _lean(found, known.row)
        if found.meta.deleting and known.leaving is None:
            known.leaving = time.monotonic()


def _released(task: Task) -> bool:
    return task.meta.deleting and not task.meta.finalizers


def _is_fresh(known: Known) -> bool:
    return known.asked == known.task.meta.resource_version


def _lean(task: Task, row: Execution | None) -> Task:
    return task.without_input() if row is not None else task


def _newer(task: Task, than: Task) -> bool:
    """A watch may print what is older than the answer to our own write. One resource's versions are numbers of one sequence."""
    ours, theirs = task.meta.resource_version, than.meta.resource_version
    return not (ours.isdigit() and theirs.isdigit()) or int(ours) >= int(theirs)


def _younger(row: Execution, than: Execution) -> bool:
    """Ids are UUIDv7: a successor has a greater one. An end is never taken back, and the same again is no news."""
    if row.id != than.id:
        return row.id > than.id
    if is_terminal(than.status) or row.updated_at < than.updated_at:
        return False
    return (row.updated_at, row.status, row.step) != (than.updated_at, than.status, than.step)
