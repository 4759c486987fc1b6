"""The replay: what earlier runs of an execution recorded, met again by name; says loudly when the code no longer fits it.

Steps are found by name, not by position. What is checked, and why it gives no false alarm:
- A step may be added anywhere, at any time.
- Two steps that one claim recorded are met in the order in which that claim began them.
- A step that an earlier run had begun and not finished (a wait, a step that failed) goes on when all that is recorded has been met:
  it was, when the step began. A step that was added in front of recorded ones is marked, and is no such witness.
- A workflow ends when all that is recorded has been met: a removed step is found here at the latest.
The two in the middle hold for steps in the workflow's own line, one after the other. Tasks beside it (gather, TaskGroup) come in whatever
order their locks and lengths make: they are not checked, but all of theirs is, when the line goes on behind them. Before anything is called
missing, they get the turns of the event loop to come to it.
What decides which step comes next must itself come from steps, patches or the input: not from a clock, a random number or a timer of the
workflow's own. Knows nothing of what steps do (see `run`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from suture.engine.records import Checkpoint, Execution
from suture.engine.results import restored
from suture.errors import ReplayMismatch

ADDED = "added:"
"""Begins the name under which a step is marked that was added in front of recorded ones."""

_NONE: frozenset[str] = frozenset()

_TURNS = 100  # of the event loop without progress: then no other task is on its way to a recorded step


class Replay:
    """One run's look at what is recorded."""

    def __init__(
        self, execution: Execution, done: dict[str, Checkpoint], failures: dict[str, int], *, line: "asyncio.Task[Any] | None" = None
    ) -> None:
        # Most runs are the first: nothing is recorded.
        self._done = {name: found for name, found in done.items() if found.kind != "added"} if done else done
        self._marked = {name.removeprefix(ADDED) for name, found in done.items() if found.kind == "added"} if done else _NONE
        self._begun = {name for name in (*failures, execution.step) if name} - self._done.keys() if failures or execution.step else _NONE
        self._before = _predecessors(self._done.values()) if done else {}
        self._line = line
        """The task in which the workflow's function runs."""
        self._met: set[str] = set()
        self.left = len(self._done)
        """How many recorded steps have not been met."""
        self._waited = execution.step
        self.mismatch: ReplayMismatch | None = None
        """What did not fit: once it is known nothing goes on, whatever the workflow makes of the error."""

    def meet(self, name: str, kind: str) -> Checkpoint | None:
        """The record of step `name`, which has its turn now. Raises: ReplayMismatch for a name that was used before, or another kind."""
        if self.mismatch:
            raise self.mismatch
        if name in self._met:
            raise self._wrong(f"The step name {name!r} is used twice in one run: give each step its own, e.g. {name}-2.")
        self._met.add(name)
        found = self._done.get(name)
        if found is None:
            return None
        self.left -= 1
        if found.kind not in (kind, "failure"):
            raise self._wrong(f"{name!r} is recorded as a {found.kind} and the code now has a {kind}: give the new one another name.")
        return found

    def missing(self, name: str) -> set[str]:
        """The recorded steps that should have been met before `name`, as far as that is known for sure."""
        if not self._done:
            return set()
        if name in self._begun and name not in self._marked:
            return self._owed()
        before = self._before.get(name)
        return {before} if before is not None and before not in self._met else set()

    def missing_at_end_of(self, child: str) -> set[str]:
        """The recorded steps that should have been met before the end of a child is waited for, where an earlier run waited for it."""
        return self._owed() if self.left and child == self._waited else set()

    @property
    def in_line(self) -> bool:
        """Whether the workflow's own line of steps asks, and not a task beside it."""
        return asyncio.current_task() is self._line

    def is_marked(self, name: str) -> bool:
        """Whether the step was added in front of recorded ones in an earlier run."""
        return name in self._marked

    def named(self, kind: str) -> list[str]:
        """The recorded steps of a kind."""
        return [name for name, found in self._done.items() if found.kind == kind]

    def unmet(self) -> set[str]:
        """The recorded steps that have not been met."""
        return self._done.keys() - self._met

    def _owed(self) -> set[str]:
        """The recorded steps without which the code is another: all but patches that were taken."""
        return {name for name in self.unmet() if not _is_retired(self._done[name])}

    async def let_others_come(self, awaited: set[str]) -> set[str]:
        """Let the run's other tasks go on, as long as they meet recorded steps; which of `awaited` nobody met."""
        left, met, turns = awaited - self._met, len(self._met), 0
        while left and turns < _TURNS:
            await asyncio.sleep(0)
            turns = 0 if len(self._met) > met else turns + 1
            met, left = len(self._met), left - self._met
        return left

    async def expect(self, name: str, missing: set[str]) -> None:
        """Raises: ReplayMismatch when nobody comes to `missing` before `name` goes on."""
        if left := await self.let_others_come(missing):
            raise self._wrong(
                f"The code comes to {name!r} without {_listed(left)}, which an earlier run did before it: the workflow's code has "
                "changed. Put the step back, or branch with `run.patched`, then requeue this task."
            )

    def read(self, declared: TypeAdapter[Any], kept: Any, what: str) -> Any:
        """An earlier run's result in its declared type. Raises: ReplayMismatch when the type has changed and it does not fit."""
        try:
            return restored(declared, kept, what=what)
        except ReplayMismatch as mismatch:
            self.mismatch = mismatch
            raise

    def is_past(self) -> bool:
        """Whether an earlier run went further than this one is now."""
        return bool(self.unmet() or self._begun - self._met)

    def finish(self) -> None:
        """Raises: ReplayMismatch when the workflow ends and recorded steps were not met, but for patches that were taken."""
        if self.mismatch:
            raise self.mismatch
        if self._done and (left := self._owed()):
            raise self._wrong(
                f"The code has ended without {_listed(left)}, which an earlier run did: the workflow's code has changed. "
                "Put the step back, or branch with `run.patched`, then requeue this task."
            )

    def _wrong(self, message: str) -> ReplayMismatch:
        self.mismatch = ReplayMismatch(message)
        return self.mismatch


def _predecessors(done: Iterable[Checkpoint]) -> dict[str, str]:
    """For each step the one that the same claim began before it. Between claims nothing is said: code may have changed between them.

    The neighbour is enough: it has one itself, so that all before it were met.
    """
    claims: dict[tuple[UUID, int], list[Checkpoint]] = defaultdict(list)
    for found in done:
        if not _is_retired(found):
            claims[found.owner_id, found.epoch].append(found)
    before: dict[str, str] = {}
    for steps in claims.values():
        steps.sort(key=lambda found: found.started_at)
        before.update((later.step_id, earlier.step_id) for earlier, later in pairwise(steps))
    return before


def _is_retired(found: Checkpoint) -> bool:
    """A patch that was taken may be removed from the code: what follows it is the only way now."""
    return found.kind == "patch" and found.output is True


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(map(repr, found[:5])) + more
