"""A run's children: how they are ordered, awaited and read back. The rows are the affair of `children`.

Knows nothing of other steps (see `run`).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from suture.engine import children
from suture.engine.children import LIMIT, Ended, FanOut, Order
from suture.engine.claim import Claim
from suture.engine.payload import admit, admit_keys, admit_name
from suture.engine.records import Checkpoint
from suture.engine.replay import Replay
from suture.engine.results import adapter, returned
from suture.engine.workflows import Function, Workflows
from suture.errors import ChildFailed, InvalidRequest


@dataclass(frozen=True, slots=True)
class Child:
    """A child execution that was started by this one."""

    name: str
    """The step that started it."""
    id: UUID
    parent: UUID
    """Whose child it is: this execution, or the one that this was requeued from."""
    declared: TypeAdapter[Any]
    family: "Family"

    async def result(self) -> Any:
        """What the child returned, in its declared type. Until it has ended, this execution waits as a row and holds no worker.

        Raises: ChildFailed when the child ended in error or was cancelled, in this run as in any later one.
        """
        return self.family.read(await self.family.ended(self), f"The child {self.name}", self.declared)


class Family:
    """The children of one run."""

    def __init__(self, claim: Claim, replay: Replay, workflows: Workflows) -> None:
        self._claim, self._replay, self._workflows = claim, replay, workflows
        self._known: dict[str, Ended] | None = None

    def order(
        self,
        step: str,
        workflow: str | Function,
        *,
        version: int | None,
        queue: str | None,
        priority: int | None,
        labels: Mapping[str, str] | None,
        returns: Any,
    ) -> tuple[Order, TypeAdapter[Any]]:
        """What children of this step are started with, and what they return."""
        parent = self._claim.execution
        name, newest = self._workflows.named(workflow)
        declared = adapter(returns) if isinstance(workflow, str) or returns is not Any else returned(workflow)
        order = Order(
            step=step,
            workflow=admit_name(name, "workflow"),
            version=newest if version is None else version,
            queue=admit_name(queue or parent.queue, "queue"),
            priority=parent.priority if priority is None else priority,
            labels=admit(dict(labels or {}), what="labels", limit=self._claim.payload_limit),
        )
        return order, declared

    async def start(
        self,
        order: Order,
        declared: TypeAdapter[Any],
        input: object,  # noqa: A002 (the field's name everywhere)
        done: Checkpoint | None,
        now: Callable[[], datetime],
    ) -> Child:
        """The child of this step, started now or before."""
        if done is None:
            text = admit(input, limit=self._claim.payload_limit)
            parent, child = await children.start(self._claim, order, text, started_at=now())
        else:
            parent, child = UUID(done.output["parent"]), UUID(done.output["child"])
        return Child(order.step, child, parent, declared, self)

    async def ended(self, child: Child) -> Ended:
        """How the child ended. Raises: Suspended while it lives."""
        if self._claim.cancel_requested:
            raise asyncio.CancelledError
        self._claim.step = child.name
        if self._replay.in_line and (missing := self._replay.missing_at_end_of(child.name)):
            await self._replay.expect(child.name, missing)
        if self._known is None:
            self._known = await self._load()
        if child.name not in self._known:
            self._known[child.name] = await children.ended(self._claim, child.name, child.parent)
        return self._known[child.name]

    async def _load(self) -> dict[str, Ended]:
        """How those ended that earlier runs started, at one look."""
        steps = self._replay.named("child")
        found = await children.results(self._claim, self._claim.execution.id, steps) if steps else []
        return {one.step: one for one in found}

    async def map(
        self,
        order: Order,
        inputs: Sequence[object],
        concurrency: int,
        *,
        keys: Sequence[str | None] | None,
        collects: bool,
        started_at: datetime,
    ) -> list[Ended]:
        """How the children ended, in the order of the inputs. Raises: Suspended while there are some that live or have not begun."""
        checked = None if keys is None else admit_keys(keys, len(inputs))
        if concurrency < 1:
            raise InvalidRequest(f"The map {order.step} is to run {concurrency} children at a time: 1 is the fewest.")
        if len(inputs) > LIMIT:
            raise InvalidRequest(f"The map {order.step} has {len(inputs):,} inputs and the limit is {LIMIT:,}: map over parts of them.")

        def texts() -> list[str]:
            limit = self._claim.payload_limit
            return [admit(one, what=f"input {number}", limit=limit) for number, one in enumerate(inputs)]

        return await children.fan_out(self._claim, FanOut(order, len(inputs), texts, checked, concurrency, collects, started_at))

    async def mapped(self, done: Checkpoint, step: str) -> list[Ended]:
        """How the children of a map ended that was over in an earlier run."""
        return await children.results(self._claim, UUID(done.output["parent"]), [step]) if done.output["total"] else []

    def read_all(self, ended: Sequence[Ended], step: str, declared: TypeAdapter[Any], *, collects: bool) -> list[Any]:
        """The results of a map. Raises: ChildFailed of the first that failed, unless failures are collected."""
        failed = sorted((one for one in ended if one.status != "completed"), key=lambda one: (one.status != "error", one.item))
        if failed and not collects:
            raise failed[0].failure(f"The child {step}[{failed[0].item}]")
        return [self._read_or_keep(one, f"The child {step}[{one.item}]", declared) for one in ended]

    def read(self, one: Ended, what: str, declared: TypeAdapter[Any]) -> Any:
        """Raises: ChildFailed, ReplayMismatch."""
        if one.status != "completed":
            raise one.failure(what)
        return self._replay.read(declared, one.output, what)

    def _read_or_keep(self, one: Ended, what: str, declared: TypeAdapter[Any]) -> Any:
        try:
            return self.read(one, what, declared)
        except ChildFailed as failure:
            return failure
