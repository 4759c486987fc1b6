"""I8: who waits holds nothing; an event before, during or after the wait is never lost; event and timeout give one outcome."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from suture.engine import Engine, Lease, Run, workflow
from suture.engine.lease import sweep
from suture.errors import IllegalTransition, InvalidRequest, LeaseLost, NotFound, Suspended
from tests.postgres.engine.stage import LEASE, ended, eventually, reached, running


@workflow("asks")
async def asks(run: Run, seconds: float | None) -> str:
    timeout = None if seconds is None else timedelta(seconds=seconds)
    answer = await run.wait("answer", str, timeout=timeout)
    return "timeout" if answer is None else answer


async def test_an_event_that_comes_before_the_wait_is_there_when_it_is_waited_for(engine, database):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    assert (await engine.emit(task.id, "answer", "early", actor="anna")).accepted
    async with running(database, asks):
        assert (await ended(engine, task.id)).output == "early"
    assert "waiting" not in [move.to_status for move in await engine.timeline(task.id)]


async def test_an_event_that_comes_after_the_wait_wakes_it_at_once(engine, database):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    async with running(database, asks, poll=timedelta(minutes=10)):  # only the hint can be this fast
        await reached(engine, task.id, "waiting")
        await shown(engine)
        assert (await engine.emit(task.id, "answer", "late", actor="anna")).accepted
        assert (await ended(engine, task.id)).output == "late"
    assert ("waiting", "enqueued", "anna", "event answer") in [
        (m.from_status, m.to_status, m.actor, m.reason) for m in await engine.timeline(task.id)
    ]


@pytest.mark.parametrize("lock_first", ["wait", "emit"])
async def test_wait_and_event_at_the_same_time_wake_whoever_comes_first_to_the_row(engine, database, psql, take, lock_first):
    """The row is held from outside until both stand in line for it, in either order."""
    task = (await engine.enqueue("asks", None, actor="test")).execution
    claim = await take()
    acts = {
        "wait": lambda: claim.wait("answer", event="answer", timeout=None),
        "emit": lambda: engine.emit(task.id, "answer", "now", actor="anna"),
    }
    order = [lock_first, *(set(acts) - {lock_first})]
    async with psql.transaction():
        await psql.execute("select from suture.workflow_executions where id = $1 for update", task.id)
        lined_up = []
        for number, name in enumerate(order, start=1):
            lined_up.append(asyncio.ensure_future(acts[name]()))

            async def waits(number: int = number) -> bool:
                return await psql.fetchval("select count(*) from pg_locks where not granted") >= number

            await eventually(waits, what=f"{name} waits for the row")
    results = dict(zip(order, await asyncio.gather(*lined_up, return_exceptions=True), strict=True))
    assert results["emit"].accepted
    if lock_first == "wait":
        assert isinstance(results["wait"], Suspended)
        assert (await engine.get(task.id)).status == "enqueued"
    else:
        assert results["wait"] == ("event", "now")


@pytest.mark.parametrize("statements", range(5))
async def test_an_event_between_any_two_statements_of_the_wait_is_not_lost(engine, database, take, statements):
    """The wait's transaction stops after each of its statements while somebody emits on another connection."""
    task = (await engine.enqueue("asks", None, actor="test")).execution
    claim = await take()
    emitting: list[asyncio.Task] = []
    whole = [
        ("maybe", "lock_held", claim.fence),
        ("one", "open_wait", (task.id, "answer", "answer", None)),
        ("maybe", "find_event", (task.id, "answer")),
        ("maybe", "suspend", (*claim.fence, "answer", "worker", "waits")),
    ]
    event = None
    async with database.transaction() as session:
        for number, (kind, name, args) in enumerate(whole):
            if number == statements:
                emitting.append(asyncio.create_task(engine.emit(task.id, "answer", "now", actor="anna")))
                await asyncio.wait(emitting, timeout=0.1)
            row = await getattr(session, kind)(name, *args)
            if name == "find_event" and row is not None:
                event = row
                await session.none("settle_wait", task.id, "answer", "event")
                break
    emitting = emitting or [asyncio.create_task(engine.emit(task.id, "answer", "now", actor="anna"))]
    assert (await emitting[0]).accepted
    found = await engine.get(task.id)
    assert (found.status == "running" and event is not None) or found.status == "enqueued"


async def test_a_hundred_races_of_wait_and_event_lose_none(engine, database):
    ids = [(await engine.enqueue("asks", None, actor="test")).execution.id for _ in range(100)]
    async with running(database, asks, concurrency=32):
        await asyncio.gather(*(engine.emit(id_, "answer", str(id_), actor="anna") for id_ in ids))
        for id_ in ids:
            assert (await ended(engine, id_)).output == str(id_)


async def test_the_first_event_of_a_name_wins_and_the_later_gets_it_back(engine, database):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    answers = await asyncio.gather(*(engine.emit(task.id, "answer", str(n), actor=f"person {n}") for n in range(10)))
    (first,) = [a for a in answers if a.accepted]
    assert {a.payload for a in answers} == {first.payload}
    assert {a.emitted_by for a in answers} == {first.emitted_by}
    async with running(database, asks):
        assert (await ended(engine, task.id)).output == first.payload
    with pytest.raises(IllegalTransition, match="is completed: it waits for no answer"):
        await engine.emit(task.id, "answer", "after", actor="anna")


async def test_a_timeout_that_was_met_refuses_the_event_and_the_outcome_agrees(engine, database, pass_time):
    task = (await engine.enqueue("asks", 60, actor="test")).execution
    async with running(database, asks):
        await reached(engine, task.id, "waiting")
    await pass_time(61)
    with pytest.raises(IllegalTransition, match="the time is over"):
        await engine.emit(task.id, "answer", "too late", actor="anna")
    async with running(database, asks):
        assert (await ended(engine, task.id)).output == "timeout"


async def test_an_event_in_time_counts_although_it_is_read_after_the_timeout(engine, database, pass_time):
    task = (await engine.enqueue("asks", 60, actor="test")).execution
    async with running(database, asks):
        await reached(engine, task.id, "waiting")
    await pass_time(59)
    assert (await engine.emit(task.id, "answer", "in time", actor="anna")).accepted
    await pass_time(10)
    again = await engine.emit(task.id, "answer", "in time", actor="anna")  # a client that lost the answer asks again
    assert (again.accepted, again.payload) == (False, "in time")
    async with running(database, asks):
        assert (await ended(engine, task.id)).output == "in time"


async def test_event_and_timeout_that_race_give_one_outcome_that_both_sides_agree_on(engine, database):
    ids = [(await engine.enqueue("asks", 0.2, actor="test")).execution.id for _ in range(40)]

    async def answer(id_: UUID, delay: float) -> bool:
        await asyncio.sleep(delay)
        try:
            return (await engine.emit(id_, "answer", "event", actor="anna")).accepted
        except IllegalTransition:
            return False

    async def begun() -> bool:
        return not await engine.page(statuses=["enqueued"])

    async with running(database, asks, concurrency=40):
        await eventually(begun)
        accepted = await asyncio.gather(*(answer(id_, n * 0.01) for n, id_ in enumerate(ids)))
        outputs = [(await ended(engine, id_)).output for id_ in ids]
    assert outputs == ["event" if yes else "timeout" for yes in accepted]


async def test_many_sweeps_wake_a_sleeper_once(engine, database, pass_time, take):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    claim = await take()
    with pytest.raises(Suspended):
        await claim.wait("nap", event=None, timeout=timedelta(hours=1))
    assert await sweep(database, lease=LEASE) == 0
    await pass_time(3601)
    assert sum(await asyncio.gather(*(sweep(database, lease=LEASE) for _ in range(6)))) == 1
    assert (await engine.get(task.id)).status == "enqueued"


async def test_a_sleep_goes_on_from_its_first_moment_however_often_it_is_entered(engine, database, pass_time, take):
    await engine.enqueue("asks", None, actor="test")
    claim = await take()
    with pytest.raises(Suspended):
        await claim.wait("nap", event=None, timeout=timedelta(hours=1))
    await pass_time(1800)
    async with database.session() as session:
        await session.connection.execute("update suture.workflow_executions set status = 'enqueued'")
    claim = await take()
    with pytest.raises(Suspended):
        await claim.wait("nap", event=None, timeout=timedelta(hours=1))
    await pass_time(1801)
    assert await sweep(database, lease=LEASE) == 1


async def test_a_wait_of_no_time_is_over_at_once(engine, take):
    await engine.enqueue("asks", None, actor="test")
    claim = await take()
    assert await claim.wait("nap", event=None, timeout=timedelta(seconds=-5)) == ("timeout", None)


async def test_who_waits_holds_no_slot_no_connection_and_no_timer(engine, database, psql):
    ids = [(await engine.enqueue("asks", 3600, actor="test")).execution.id for _ in range(30)]
    last = await engine.enqueue("asks", 3600, actor="test", priority=-5)
    async with running(database, asks, concurrency=1, lease=Lease(grace=timedelta(seconds=20))) as runner:
        for id_ in [*ids, last.execution.id]:
            await reached(engine, id_, "waiting")
        await eventually(lambda: empty(runner))
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert not [name for name in names if name.startswith("execution")]

        async def idle() -> bool:
            return not await psql.fetchval(
                "select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()"
            )

        await eventually(idle)
    rows = await psql.fetch("select owner_id, lease_expires from suture.workflow_executions")
    assert {tuple(row) for row in rows} == {(None, None)}


async def test_an_event_for_nobody_is_refused(engine, database):
    with pytest.raises(NotFound):
        await engine.emit(UUID(int=1), "answer", 1, actor="anna")
    task = (await engine.enqueue("asks", None, actor="test")).execution
    with pytest.raises(InvalidRequest, match="control character"):
        await engine.emit(task.id, "a\0b", 1, actor="anna")


async def test_a_payload_that_does_not_fit_ends_in_the_dead_letters_with_its_fields(engine, database):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    await engine.emit(task.id, "answer", {"secret": 1}, actor="anna")
    async with running(database, asks):
        done = await ended(engine, task.id)
    assert (done.status, done.error.reason, done.attempt) == ("error", "InvalidRequest", 1)
    assert "The payload of the event answer does not fit: it: Input should be a valid string" in done.error.message


async def test_a_wait_that_lost_its_lease_writes_nothing(engine, database, take, psql, pass_time):
    task = (await engine.enqueue("asks", None, actor="test")).execution
    claim = await take()
    await pass_time(31)
    await sweep(database, lease=LEASE)
    with pytest.raises(LeaseLost):
        await claim.wait("answer", event="answer", timeout=None)
    assert await psql.fetch("select from suture.workflow_waits") == []
    assert (await Engine(database).get(task.id)).status == "enqueued"


async def shown(engine):
    async def look() -> bool:
        return any(w["presence"] for w in (await engine.health()).workers)

    await eventually(look)


async def test_of_two_events_past_the_look_the_first_counts(engine, database):
    """Neither saw the other's row when it looked: the second gets the first one's back all the same."""
    task = (await engine.enqueue("asks", None, actor="test")).execution
    first = await database.one("emit", task.id, "answer", '"first"', "anna")
    second = await database.one("emit", task.id, "answer", '"second"', "bob")
    assert (first["ours"], second["ours"]) == (True, False)
    assert (second["payload"], second["emitted_by"]) == ('"first"', "anna")


async def test_an_outcome_once_settled_stays(engine, database, psql, take):
    """Its run was lost between the outcome and the checkpoint; whatever comes later, the next run hears the same."""
    task = (await engine.enqueue("asks", None, actor="test")).execution
    claim = await take()
    assert await claim.wait("answer", event="answer", timeout=timedelta(0)) == ("timeout", None)
    await database.many("hand_back", claim.owner, [task.id], [claim.epoch], "worker", "test")
    await psql.execute("insert into suture.events (execution_id, name, payload, emitted_by) values ($1, 'answer', '1', 'anna')", task.id)
    await database.none("settle_wait", task.id, "answer", "event")
    assert await (await take()).wait("answer", event="answer", timeout=timedelta(0)) == ("timeout", None)


async def empty(runner) -> bool:
    return runner.running == 0


async def test_a_sleeper_whose_row_is_in_somebody_s_hands_is_passed_by(engine, database, psql, pass_time, take):
    """The next sweep looks again: none waits for a lock while others are due."""
    for _ in range(2):
        await engine.enqueue("asks", None, actor="test")
    for _ in range(2):
        with pytest.raises(Suspended):
            await (await take()).wait("nap", event=None, timeout=timedelta(hours=1))
    await pass_time(3601)
    async with psql.transaction():
        await psql.execute("select from suture.workflow_executions order by id limit 1 for update")
        assert await asyncio.wait_for(sweep(database, lease=LEASE), 30) == 1
    assert await sweep(database, lease=LEASE) == 1
