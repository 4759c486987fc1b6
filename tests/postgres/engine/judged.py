"""How an operation on the engine is judged: the rows before it are known, what they must be after it is said, and the rest stays.

Knows the few ways in which a row ends, goes back or begins; which operations there are is `random_operations`'.
"""

import asyncio
import copy
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
from hypothesis.stateful import RuleBasedStateMachine

from suture.engine import LIVE, Database, Engine
from suture.engine.claim import Claim
from suture.errors import LeaseLost, Suspended, SutureError
from tests.postgres.engine.snapshot import State, check, compare, empty, follow, look


class Ground:
    """A database with several connections, and the loop in which they live."""

    def __init__(self, url: str, *, direct: str | None = None) -> None:
        self.judged = 0
        """Operations so far."""
        self._loop = asyncio.new_event_loop()
        self.database = Database(url, size=6)
        self.engine = Engine(self.database)
        self.run(self.database.open())
        self.psql: Any = self.run(asyncpg.connect(direct or url))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(work)

    def look(self) -> State:
        self.judged += 1
        found: State = self.run(look(self.psql))
        return found

    def close(self) -> None:
        self.run(self.psql.close())
        self.run(self.database.close())
        self._loop.close()


class Judged(RuleBasedStateMachine):
    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self.ground, self.engine, self.database = ground, ground.engine, ground.database
        self.ground.run(empty(ground.psql))
        self.now: State = ground.look()
        self.ids: list[UUID] = []
        self.claims: list[Claim] = []

    def id_number(self, nth: int) -> UUID:
        return self.ids[-1 - nth % len(self.ids)]

    def claim_number(self, nth: int) -> Claim | None:
        return self.claims[-1 - nth % len(self.claims)] if self.claims else None

    def does(self, work: Coroutine[Any, Any, Any], expected: State | None, refusal: type[Exception] | None = None) -> Any:
        """The answer of `work`, after which the rows are as expected; with a refusal, as they were."""
        try:
            answer = self.ground.run(work)
        except (SutureError, Suspended, LeaseLost) as error:
            if refusal is None or not isinstance(error, refusal):
                raise
            answer = error
        else:
            assert refusal is None, f"{refusal} was due, and {answer!r} came"
        before, self.now = self.now, self.ground.look()
        check(self.now)
        follow(before, self.now)
        compare(before if expected is None else expected, self.now)
        return answer

    def after(self) -> State:
        return copy.deepcopy(self.now)

    def row(self, state: State, claim: Claim) -> State | None:
        """The row that the claim holds."""
        row: State = state["executions"][str(claim.execution.id)]
        return row if (row["status"], row["owner"], row["epoch"]) == ("running", str(claim.owner), claim.epoch) else None

    def put_back(self, row: State, *, due: bool = True) -> None:
        if row["wish"]:
            self.end(row, "cancelled")
        else:
            row |= {"status": "enqueued", "owner": None, "due": due}

    def forgive(self, row: State) -> None:
        """A step that was finished since the last loss begins the count of crashes anew."""
        row["crashes"] = 0 if row["progress"] else row["crashes"]

    def end(self, row: State, status: str) -> None:
        row |= {"status": status, "owner": None, "finished": True}

    def bury(self, state: State, id_: str) -> None:
        self.end(state["executions"][id_], "error")
        state["letters"][id_] = {"successor": None}

    def known(self, key: str | None) -> tuple[str, State] | None:
        """The living execution with this key, or else the one that ended last."""
        with_key = [(id_, e) for id_, e in self.now["executions"].items() if key and e["key"] == key]
        return max(with_key, key=lambda one: (one[1]["status"] in LIVE, one[1]["ended_at"] or 0), default=None)

    def enqueue_anew(self, key: str | None, value: int, queue: str, *, deadline: bool, reuse: Any = "return") -> None:
        async def work() -> Any:
            at = await self.database.one("ping")
            until = at["at"] + timedelta(seconds=100) if deadline else None
            return await self.engine.enqueue(
                "w", value, actor="client", operation_key=key, queue=queue, deadline_at=until, reuse=reuse
            )  # fmt: skip

        before, answer = self.now, self.ground.run(work())
        self.now = self.ground.look()
        assert answer.created
        check(self.now)
        follow(before, self.now)
        new = self.now["executions"][str(answer.execution.id)]
        assert self.now["executions"].keys() - before["executions"].keys() == {str(answer.execution.id)}
        assert (new["status"], new["epoch"], new["attempt"], new["crashes"], new["input"]) == ("enqueued", 0, 1, 0, value)
        self.ids.append(answer.execution.id)
