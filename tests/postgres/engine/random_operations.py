"""A machine that does random operations, legal and illegal, from several connections, and knows what each must do to the rows.

Before each operation the rows are known; a few lines of Python say how they must look after it. Whatever happens, `snapshot` says what
holds of any moment and between two. The database's time is moved in ticks that lie far from every limit.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from suture.engine import LIVE, Lease
from suture.engine.claim import Claim
from suture.engine.ids import uuid7
from suture.engine.lease import beat, sweep, tidy
from suture.engine.records import Execution, Failure
from suture.errors import Conflict, IllegalTransition, LeaseLost, Suspended
from tests.postgres.engine.judged import Ground, Judged
from tests.postgres.engine.snapshot import check, follow

TICK = 40.0  # seconds of the database; a lease has 30, a pause and a wait have 60, a deadline 100
LEASE = Lease(grace=timedelta(seconds=5), crash_limit=1, restart=timedelta(0))
OWNERS = tuple(uuid7() for _ in range(3))
QUEUES = ("left", "right")
STEPS = st.sampled_from(("one", "two", "three"))
NTH = st.sampled_from((0, 0, 0, 1, 1, 2, 3, 5, 8))
"""Which of the executions or claims so far, from the youngest: what is drawn must not hang on what came of it."""
EVENTS = st.sampled_from(("go", "stop"))
VALUES = st.integers(0, 3)
BY_HAND = {
    "update suture.workflow_executions set status = 'completed', finished_at = now() where id = $1": {"enqueued", "waiting", "error"},
    "update suture.workflow_executions set status = 'enqueued' where id = $1": {"running", "completed", "error", "cancelled"},
    "update suture.workflow_executions set status = 'waiting', finished_at = null where id = $1": {"enqueued", "completed", "cancelled"},
    "update suture.workflow_executions set epoch = epoch - 1 where id = $1": {"enqueued", "running", "waiting", "completed", "error"},
    "update suture.workflow_executions set owner_id = gen_random_uuid() where id = $1": {"enqueued", "waiting", "completed"},
    "delete from suture.workflow_executions where id = $1": {"enqueued", "running", "waiting"},
    "update suture.workflow_executions set created_by = 'nobody' where id = $1": {"enqueued", "running", "waiting", "completed", "error"},
    "update suture.workflow_executions set started_by = 'nobody' where id = $1": {"running", "waiting", "completed"},
    "update suture.workflow_executions set changed_by = 'nobody' where id = $1": {"enqueued", "running", "waiting", "completed", "error"},
    "update suture.moves set actor = 'nobody' where execution_id = $1": {"waiting"},
    "delete from suture.moves where execution_id = $1": {"waiting"},
}
"""What a person may try at psql, and in which states of the row it must be refused."""


def machine(ground: Ground) -> Callable[[], "Operations"]:
    return lambda: Operations(ground)


class Operations(Judged):
    # Handing in ----------------------------------------------------------------------------------------------------------------

    @initialize()
    def begin(self) -> None:
        self.enqueue_anew(None, 1, "left", deadline=False)

    @rule(key=st.sampled_from((None, None, "a", "b")), value=VALUES, queue=st.sampled_from(QUEUES), deadline=st.booleans())
    def enqueue(self, key: str | None, value: int, queue: str, deadline: bool) -> None:
        known = self.known(key)
        if known is None:
            self.enqueue_anew(key, value, queue, deadline=deadline)
            return
        id_, row = known
        work = self.engine.enqueue("w", value, actor="client", operation_key=key, queue=queue)
        if row["input"] != value:
            self.does(work, None, Conflict)
        else:
            answer = self.does(work, None)
            assert (str(answer.execution.id), answer.created) == (id_, False)

    @rule(key=st.sampled_from(("a", "b")), value=VALUES, reuse=st.sampled_from(("reject", "new")))
    def enqueue_again(self, key: str, value: int, reuse: Any) -> None:
        known = self.known(key)
        if known is None or (known[1]["status"] not in LIVE and reuse == "new"):
            self.enqueue_anew(key, value, "left", deadline=False, reuse=reuse)
            return
        work = self.engine.enqueue("w", value, actor="client", operation_key=key, reuse=reuse)
        refused = known[1]["input"] != value or known[1]["status"] not in LIVE
        self.does(work, None, Conflict if refused else None)

    # Claims --------------------------------------------------------------------------------------------------------------------

    @rule(owner=st.sampled_from(OWNERS), batch=st.integers(1, 3), queues=st.sampled_from((QUEUES[:1], QUEUES[1:], QUEUES)))
    def claim(self, owner: UUID, batch: int, queues: tuple[str, ...]) -> None:
        due = {
            id_ for id_, e in self.now["executions"].items()
            if e["status"] == "enqueued" and e["due"] and e["queue"] in queues and e["queue"] not in self.now["paused"]
        }  # fmt: skip
        rows = self.ground.run(self.claimed(owner, batch, queues))
        taken = {str(row["id"]) for row in rows}
        assert taken <= due
        assert len(taken) == len(rows) == min(batch, len(due))
        expected = self.after()
        for id_ in taken:
            expected["executions"][id_] |= {"status": "running", "owner": str(owner), "epoch": expected["executions"][id_]["epoch"] + 1}
        self.does(asyncio.sleep(0), expected)
        self.claims += [Claim(self.database, Execution.from_row(row), owner, "worker") for row in rows]

    async def claimed(self, owner: UUID, batch: int, queues: tuple[str, ...]) -> Any:
        return await self.database.many("claim", owner, list(queues), ["w"], [1], batch, LEASE.duration, "worker", 99, False)

    @rule(nth=NTH, step=STEPS, value=VALUES)
    def checkpoint(self, nth: int, step: str, value: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        work = claim.checkpoint(step, value, kind="step", attempts=1, started_at=datetime.now(UTC))
        if row := self.row(expected, claim):
            kept = expected["outputs"].setdefault(str(claim.execution.id), {}).setdefault(step, value)
            assert self.does(work, expected) == kept
            assert claim.cancel_requested >= bool(row["wish"])
        else:
            self.does(work, None, LeaseLost)

    @rule(nth=NTH, value=VALUES)
    def complete(self, nth: int, value: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        if row := self.row(expected, claim):
            self.end(row, "completed")
            row["output"] = value
        self.does(claim.complete(value), expected, None if row else LeaseLost)

    @rule(nth=NTH)
    def fail(self, nth: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        if row := self.row(expected, claim):
            self.bury(expected, str(claim.execution.id))
        self.does(claim.fail(Failure("Bad", "bad")), expected, None if row else LeaseLost)

    @rule(nth=NTH, later=st.booleans())
    def retry(self, nth: int, later: bool) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        if row := self.row(expected, claim):
            self.put_back(row, due=not later)
            row["attempt"] += 1
        delay, attempt = timedelta(seconds=60 * later), row["attempt"] if row else 9
        work = claim.retry(Failure("Bad", "bad", "one"), delay=delay, step_attempts=1, attempt=attempt)
        self.does(work, expected, None if row else LeaseLost)

    @rule(nth=NTH)
    def finish_cancel(self, nth: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        row = self.row(expected, claim)
        wished = bool(row and row["wish"])
        if row and wished:
            self.end(row, "cancelled")
        self.does(claim.finish_cancel(), expected, None if wished else LeaseLost)

    @rule(nth=NTH)
    def hand_back(self, nth: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected = self.after()
        if row := self.row(expected, claim):
            self.put_back(row)
        rows = self.does(self.database.many("hand_back", claim.owner, [claim.execution.id], [claim.epoch], "worker", "drain"), expected)
        assert len(rows) == bool(row)

    @rule(nth=NTH)
    def heartbeat(self, nth: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        held = self.row(self.now, claim)
        found = self.does(beat(self.database, claim.owner, [claim], lease=LEASE), None)
        assert bool(found.lost) == (held is None)
        assert held is None or bool(found.cancelled) == bool(held["wish"])
        row = self.row(self.now, claim)
        assert row is None or not row["expired"]

    # Waits and effects ---------------------------------------------------------------------------------------------------------

    @rule(nth=NTH, event=EVENTS, timed=st.booleans())
    def wait(self, nth: int, event: str, timed: bool) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected, id_ = self.after(), str(claim.execution.id)
        work = claim.wait(event, event=event, timeout=timedelta(seconds=60) if timed else None)
        row = self.row(expected, claim)
        if row is None:
            self.does(work, None, LeaseLost)
            return
        wait = expected["waits"].setdefault(f"{id_} {event}", {"event": event, "outcome": None, "over": False})
        came = expected["events"].get(id_, {})
        wait["outcome"] = wait["outcome"] or ("event" if event in came else "timeout" if wait["over"] else None)
        if wait["outcome"]:
            assert self.does(work, expected) == (wait["outcome"], came[event] if wait["outcome"] == "event" else None)
            return
        self.forgive(row)
        if row["wish"]:
            self.end(row, "cancelled")
        else:
            row |= {"status": "waiting", "owner": None}
        self.does(work, expected, Suspended)

    @rule(nth=NTH, event=EVENTS, value=VALUES)
    def emit(self, nth: int, event: str, value: int) -> None:
        id_ = self.id_number(nth)
        expected, key = self.after(), str(id_)
        row, wait = expected["executions"][key], expected["waits"].get(f"{id_} {event}")
        new = event not in expected["events"].get(key, {})
        late = wait is not None and (wait["outcome"] == "timeout" or (wait["outcome"] is None and wait["over"]))
        work = self.engine.emit(id_, event, value, actor="anna")
        if row["status"] not in LIVE or (new and late):
            self.does(work, None, IllegalTransition)
            return
        first = expected["events"].setdefault(key, {}).setdefault(event, value)
        if new and row["status"] == "waiting" and row["step"] == event:
            row |= {"status": "enqueued", "due": True}
        answer = self.does(work, expected)
        assert (answer.payload, answer.accepted) == (first, new)

    @rule(nth=NTH, key=st.sampled_from(("x", "y")), value=VALUES)
    def effect(self, nth: int, key: str, value: int) -> None:
        claim = self.claim_number(nth)
        if claim is None:
            return
        expected, id_ = self.after(), str(claim.execution.id)
        if self.row(expected, claim) is None:
            self.does(claim.intend(key, kind="k", key=key), None, LeaseLost)
            return
        known = expected["effects"].setdefault(key, {"execution": id_, "state": "intended", "result": None})
        if known["state"] == "intended" and expected["executions"][known["execution"]]["finished"]:
            known["execution"] = id_
        intent = "done" if known["state"] == "confirmed" else "ours" if known["execution"] == id_ else "theirs"
        assert self.does(claim.intend(key, kind="k", key=key), expected) == (intent, known["result"])
        if intent == "ours":
            expected = self.after()
            expected["effects"][key] |= {"state": "confirmed", "result": value}
            kept = expected["outputs"].setdefault(id_, {}).setdefault(key, value)
            work = claim.confirm(key, value, kind="k", key=key, attempts=1, started_at=datetime.now(UTC))
            assert self.does(work, expected) == kept

    # Steering ------------------------------------------------------------------------------------------------------------------

    @rule(nth=NTH)
    def cancel(self, nth: int) -> None:
        id_ = self.id_number(nth)
        expected = self.after()
        row = expected["executions"][str(id_)]
        refused = row["status"] not in LIVE and row["status"] != "cancelled"
        if row["status"] in LIVE:
            row["wish"] = row["wish"] or "anna"
        if row["status"] in ("enqueued", "waiting"):
            self.end(row, "cancelled")
        self.does(self.engine.cancel(id_, actor="anna"), expected, IllegalTransition if refused else None)

    @rule(nth=NTH, start=st.booleans())
    def requeue(self, nth: int, start: bool) -> None:
        id_ = self.id_number(nth)
        letter = self.now["letters"].get(str(id_))
        known = self.known(self.now["executions"][str(id_)]["key"])
        work = self.engine.requeue(id_, actor="anna", from_step="start" if start else "failed")
        if letter is None or letter["successor"] or (known and known[1]["status"] in LIVE):
            self.does(work, None, Conflict if letter and not letter["successor"] else IllegalTransition)
            return
        before, successor = self.now, self.ground.run(work)
        self.now = self.ground.look()
        check(self.now)
        follow(before, self.now)
        key = str(successor.id)
        assert self.now["letters"][str(id_)]["successor"] == key
        assert self.now["executions"][key]["origin"] == str(id_)
        assert self.now["outputs"].get(key, {}) == ({} if start else before["outputs"].get(str(id_), {}))
        self.ids.append(successor.id)

    @rule(queue=st.sampled_from(QUEUES), stop=st.booleans())
    def pause(self, queue: str, stop: bool) -> None:
        expected = self.after()
        expected["paused"] = sorted({*expected["paused"], queue} if stop else {*expected["paused"]} - {queue})
        queues = self.engine.queues
        self.does(queues.pause(queue, actor="anna") if stop else queues.resume(queue, actor="anna"), expected)

    # Time ----------------------------------------------------------------------------------------------------------------------

    @rule(ticks=st.integers(1, 3))
    def time_passes(self, ticks: int) -> None:
        self.does(self.shift(TICK * ticks), None)

    async def shift(self, seconds: float) -> None:
        psql = self.ground.psql
        moved = {
            "workflow_executions": ("lease_expires", "run_at", "deadline_at", "updated_at", "finished_at"),
            "workflow_waits": ("wake_at",),
            "effects": ("intended_at",),
        }
        async with psql.transaction():
            await psql.execute("set local session_replication_role = replica")  # past the triggers: nobody changes anything
            for table, columns in moved.items():
                shifted = ", ".join(f"{column} = {column} - make_interval(secs => {seconds})" for column in columns)
                await psql.execute(f"update suture.{table} set {shifted}")

    @rule()
    def sweep(self) -> None:
        expected = self.after()
        moved = 0
        for id_, row in expected["executions"].items():
            if row["status"] == "running" and row["expired"]:
                self.forgive(row)
                over = row["crashes"] >= LEASE.crash_limit and not row["wish"]
                self.bury(expected, id_) if over else self.put_back(row)
                row["crashes"] += 1
                moved += 1
        for id_, row in expected["executions"].items():
            wait = expected["waits"].get(f"{id_} {row['step']}")
            if row["status"] == "waiting" and wait and wait["over"] and wait["outcome"] is None:
                row |= {"status": "enqueued", "due": True}
                moved += 1
        for id_, row in expected["executions"].items():
            if row["overdue"] and row["status"] in LIVE and not (row["status"] == "running" and row["wish"]):
                self.bury(expected, id_)
                moved += 1
        assert self.does(sweep(self.database, lease=LEASE), expected) == moved

    @rule()
    def tidy(self) -> None:
        expected = self.after()
        old = {id_ for id_, row in expected["executions"].items() if row["finished"] and row["old"] and row["living"]}
        unmet = {f"{wait}" for wait, found in expected["waits"].items() if wait.split()[0] in old and found["outcome"] is None}
        expected["waits"] = {wait: found for wait, found in expected["waits"].items() if wait not in unmet}
        assert self.does(tidy(self.database, keep_ended=timedelta(seconds=100), keep_workers=timedelta(days=1)), expected) == len(old)
        assert {id_ for id_ in old if self.now["executions"][id_]["living"]} == set()

    # What is not allowed, and what happens at once -----------------------------------------------------------------------------

    @rule(nth=NTH, sql=st.sampled_from(sorted(BY_HAND)))
    def by_hand(self, nth: int, sql: str) -> None:
        id_ = self.id_number(nth)
        row = self.now["executions"][str(id_)]
        if row["status"] not in BY_HAND[sql] or not row["living"] or ("epoch - 1" in sql and not row["epoch"]):
            return

        async def work() -> None:
            try:
                await self.ground.psql.execute(sql, id_)
            except asyncpg.PostgresError as error:
                assert error.sqlstate in {"SU001", "SU002", "23514", "23505"}, error  # noqa: PT017 (one of many places, and the state tells which)
                return
            raise AssertionError(f"{sql} was let through on an execution that is {row['status']}")

        self.does(work(), None)

    @rule(nth=NTH, other_nth=NTH, owner=st.sampled_from(OWNERS), value=VALUES, which=st.sets(st.integers(0, 7), min_size=2, max_size=4))
    def at_once(self, nth: int, other_nth: int, owner: UUID, value: int, which: set[int]) -> None:
        """Several operations on connections of their own: whatever came first, all that must hold does."""
        claim, other = self.claim_number(nth), self.claim_number(other_nth)
        if claim is None or other is None:
            return
        id_ = claim.execution.id
        works: list[Callable[[], Coroutine[Any, Any, Any]]] = [
            lambda: claim.complete(value),
            lambda: self.engine.cancel(id_, actor="anna"),
            lambda: sweep(self.database, lease=LEASE),
            lambda: other.checkpoint("one", value, kind="step", attempts=1, started_at=datetime.now(UTC)),
            lambda: self.engine.emit(id_, "go", value, actor="anna"),
            lambda: claim.wait("go", event="go", timeout=None),
            lambda: self.database.many("hand_back", claim.owner, [id_], [claim.epoch], "worker", "drain"),
            lambda: other.fail(Failure("Bad", "bad")),
        ]
        holds = self.row(self.now, claim) is not None

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(works[n]() for n in sorted(which)), return_exceptions=True)

        before, answers = self.now, dict(zip(sorted(which), self.ground.run(all_of_them()), strict=True))
        self.now = self.ground.look()
        check(self.now)
        follow(before, self.now)
        allowed = (LeaseLost, Suspended, IllegalTransition)
        assert [a for a in answers.values() if isinstance(a, BaseException) and not isinstance(a, allowed)] == []
        if 0 in answers and not isinstance(answers[0], BaseException):
            assert holds
            assert self.now["executions"][str(id_)]["status"] == "completed"
        if 4 in answers and not isinstance(answers[4], BaseException) and answers[4].accepted:
            assert self.now["events"][str(id_)]["go"] == value
            row = self.now["executions"][str(id_)]
            assert (row["status"], row["step"]) != ("waiting", "go"), "the wake-up was lost"
