"""Children: executions that another one starts, and the tidings that pass between them.

A child and its parent's checkpoint commit together. How a child ended is written in the child's last transaction (see the migration),
and told to its parent by `tend`, which anybody may run as often as it likes: it wakes parents, starts the next children of a map and
cancels orphans. Knows nothing of workflow code (see `run`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from suture.engine.claim import Claim
from suture.engine.database import Database, Row, Session
from suture.engine.ids import uuid7
from suture.engine.payload import decode, digest
from suture.engine.records import Failure
from suture.errors import ChildFailed, Conflict, Suspended

BATCH = 500
"""Ends of children that are told in one transaction."""

CHUNK = 100
"""Inputs of a map that share a row: few rows for many inputs, and little to unpack for one."""

LIMIT = 100_000
"""Inputs of one map."""

ACTOR = "children"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What children are started with."""

    step: str
    workflow: str
    version: int
    queue: str
    priority: int
    labels: str
    """A JSON object."""
    key: str | None = None
    concurrency_key: str | None = None
    run_timeout: timedelta | None = None
    queue_timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended."""

    child: UUID
    status: str
    output: Any
    error: Failure | None
    step: str
    """Of the parent's."""
    item: int
    """Which input of a map."""

    @classmethod
    def from_row(cls, row: Row) -> "Ended":
        output = None if row["output"] is None else decode(row["output"])
        return cls(row["child_id"], row["status"], output, Failure.from_json(row["error"]), row["step_id"], row["item"])

    def failure(self, what: str) -> ChildFailed:
        cause = self.error or Failure("Cancelled", "it was cancelled")
        error = ChildFailed(f"{what} ({self.child}) ended as {self.status}: {cause.reason}: {cause.message}")
        error.child, error.cause = self.child, "Cancelled" if self.status == "cancelled" else cause.reason
        return error


# One child ------------------------------------------------------------------------------------------------------------------------


async def start(claim: Claim, order: Order, text: str, *, started_at: datetime) -> tuple[UUID, UUID]:
    """Start a child exactly once for this step; returns its parent's id, as its result names it, and its own.

    Raises: LeaseLost. Conflict when the operation key is taken.
    """
    output = await claim.persist(lambda: _start(claim, order, text, started_at))
    return UUID(output["parent"]), UUID(output["child"])


async def _start(claim: Claim, order: Order, text: str, started_at: datetime) -> Any:
    child, parent = uuid7(), claim.execution.id
    # The key keeps a second try, whose first is still under way on a connection that was cut, from making a second child.
    key = order.key or f"child:{parent}:{order.step}"
    what = child, order.workflow, order.version, order.queue, order.priority, text, key, digest(text), order.labels
    output = claim.encode({"parent": str(parent), "child": str(child)})
    async with claim.database.transaction() as session:
        claim.held(await session.maybe("lock_held", *claim.fence))
        limits = order.run_timeout, order.queue_timeout
        rest = *limits, claim.actor, output, started_at, order.concurrency_key
        row = await session.maybe("start_child", *claim.fence, order.step, *what, *rest)
        if row is None:
            raise Conflict(f"The operation key {key!r} of the child {order.step} is taken by another task that lives: use another key.")
        await session.none("hint", [order.queue])
    claim.is_parent = True
    return decode(row["output"])


async def ended(claim: Claim, step: str, parent: UUID) -> Ended:
    """How the child of `step` ended. Raises: Suspended while it lives; the execution then waits for its end. LeaseLost."""
    return await claim.persist(lambda: _ended(claim, step, parent))


async def _ended(claim: Claim, step: str, parent: UUID) -> Ended:
    async with claim.database.transaction() as session:
        # The lock comes first: see `lock_parents`.
        claim.held(await session.maybe("lock_held", *claim.fence))
        row = await session.maybe("find_child_result", parent, step)
        if row is not None:
            return Ended.from_row(row)
        claim.held(await session.maybe("suspend", *claim.fence, step, claim.actor, f"waits for the child {step}"))
    raise Suspended


# Many children --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FanOut:
    """A map as it is written once."""

    order: Order
    total: int
    texts: Callable[[], Sequence[str]]
    """The inputs, asked for when they are written."""
    keys: Sequence[str | None] | None
    """The concurrency keys of the children, one for each input."""
    concurrency: int
    collects: bool
    """Whether a failure stops it."""
    started_at: datetime


async def fan_out(claim: Claim, fan: FanOut) -> list[Ended]:
    """How the children of a map ended, in the order of their inputs.

    Raises: Suspended while it is under way: the rows of `fan_outs` say how far it is, and the parent is not run before it is over.
    """
    return await claim.persist(lambda: _fan_out(claim, fan))


async def _fan_out(claim: Claim, fan: FanOut) -> list[Ended]:
    parent, step = claim.execution.id, fan.order.step
    async with claim.database.transaction() as session:
        claim.held(await session.maybe("lock_held", *claim.fence))
        found = await session.maybe("find_map", parent, step)
        if not (found["over"] if found else not await _open(session, claim, fan)):
            claim.held(await session.maybe("suspend", *claim.fence, step, claim.actor, f"waits for the children of {step}"))
        else:
            rows = await session.many("child_results", parent, [step])
            value = {"parent": str(parent), "total": fan.total}
            await claim.checkpoint_in(session, step, value, kind="map", attempts=1, started_at=fan.started_at)
            await session.none("close_map", parent, step)
            return [Ended.from_row(row) for row in rows]
    raise Suspended


async def _open(session: Session, claim: Claim, fan: FanOut) -> bool:
    """Write the map down and start its first children; false when there is nothing to do."""
    parent, order = claim.execution.id, fan.order
    texts = fan.texts()
    inherited: set[int] = set()
    if claim.execution.forked_from:
        inherited = {row["item"] for row in await session.many("inherited_results", parent, order.step, texts)}
    if fan.total == len(inherited):
        return False
    items = [item for item in range(fan.total) if item not in inherited]
    what = order.workflow, order.version, order.queue, order.priority, order.labels
    await session.none("open_map", parent, order.step, *what, fan.concurrency, len(items), fan.collects, claim.actor)
    keys = fan.keys and [fan.keys[item] for item in items]
    await session.none("put_inputs", parent, order.step, items, [texts[item] for item in items], CHUNK, keys)
    await _feed(session, [(parent, order.step, slot) for slot in range(min(fan.concurrency, len(items)))])
    await session.none("hint", [order.queue])
    claim.is_parent = True
    return True


async def results(claim: Claim, parent: UUID, steps: Sequence[str]) -> list[Ended]:
    """How the children of these steps ended, as far as they have; of a map in the order of its inputs."""
    rows = await claim.persist(lambda: claim.database.many("child_results", parent, steps))
    return [Ended.from_row(row) for row in rows]


# Tidings --------------------------------------------------------------------------------------------------------------------------


async def tend(database: Database) -> int:
    """Tell parents that their children have ended, and children that their parent has. Returns how much there was to tell.

    Raises: DatabaseUnavailable.
    """
    told = 0
    while kinds := {row["kind"] for row in await database.many("tidings")}:
        # One generation after the other: a child that is cancelled here has children itself.
        batch = await _tell_parents(database) if "child ended" in kinds else 0
        batch += await _tell_children(database) if kinds - {"child ended"} else 0
        if batch == 0:
            break  # somebody else is at it
        told += batch
    return told


async def _tell_children(database: Database) -> int:
    return int((await database.one("cancel_orphans", BATCH))["told"])


async def _tell_parents(database: Database) -> int:
    async with database.transaction() as session:
        told = await session.many("take_endings", BATCH)
        if told:
            living = {row["id"]: row for row in await session.many("lock_parents", sorted({row["parent_id"] for row in told}))}
            await _tell(session, [row for row in told if row["parent_id"] in living], living)
    return len(told)


async def _tell(session: Session, told: Sequence[Row], living: dict[UUID, Row]) -> None:
    counts: dict[tuple[UUID, str], list[int]] = {}
    for row in told:
        count = counts.setdefault((row["parent_id"], row["step_id"]), [0, 0])
        count[0] += 1
        count[1] += row["failed"]
    keys = sorted(counts)
    columns = [k[0] for k in keys], [k[1] for k in keys], [counts[k][0] for k in keys], [counts[k][1] for k in keys]
    maps = await session.many("count_endings", *columns)
    await _go_on(session, maps)
    under_way = {(row["parent_id"], row["step_id"]) for row in maps if not (row["idle"] and row["room"] == 0)}
    awaited = [parent for parent, step in keys if (parent, step) not in under_way and living[parent]["step"] == step]
    if awaited:
        await session.many("wake_parents", awaited, ACTOR)


async def _go_on(session: Session, maps: Sequence[Row]) -> None:
    """Start as many children of each map as ended, or stop the map whose child has failed."""
    slots = [(row["parent_id"], row["step_id"], row["started"] + n) for row in maps for n in range(row["room"])]
    if slots:
        await _feed(session, slots)
        await session.none("hint", list({row["queue"] for row in maps if row["room"]}))
    failed = [(row["parent_id"], row["step_id"]) for row in maps if row["stopped"] and row["first_failure"] and not row["idle"]]
    if failed:
        await session.none("tell_failed_maps", *map(list, zip(*failed, strict=True)))


async def _feed(session: Session, slots: Sequence[tuple[UUID, str, int]]) -> None:
    parents, steps, numbers = zip(*slots, strict=True)
    await session.none("feed_map", list(parents), list(steps), list(numbers), [uuid7() for _ in slots], CHUNK)
