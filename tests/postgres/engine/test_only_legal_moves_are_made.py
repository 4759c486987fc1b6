"""I9: the database refuses illegal moves from psql too, lets one end happen, and keeps a complete, append-only timeline."""

import asyncio
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from suture.engine import MOVES, STATUSES, Status, is_terminal
from suture.engine.ids import uuid7
from suture.engine.lease import sweep, tidy
from suture.engine.records import Failure
from suture.errors import IllegalTransition, LeaseLost, Suspended
from tests.postgres.engine.stage import LEASE

ROUTES: dict[Status, tuple[Status, ...]] = {
    "enqueued": (),
    "running": ("running",),
    "waiting": ("running", "waiting"),
    "completed": ("running", "completed"),
    "error": ("error",),
    "cancelled": ("cancelled",),
}


async def by_hand(psql, id_, to: Status) -> None:
    await psql.execute(
        """update suture.workflow_executions
           set status = $2, owner_id = case when $2 = 'running' then $3::uuid end,
               epoch = epoch + case when $2 = 'running' then 1 else 0 end,
               started_at = coalesce(started_at, case when $2 = 'running' then clock_timestamp() end),
               started_by = coalesce(started_by, case when $2 = 'running' then 'database user ' || session_user end),
               lease_expires = case when $2 = 'running' then now() end,
               finished_at = case when $2 in ('completed', 'error', 'cancelled') then coalesce(finished_at, now()) end
           where id = $1""",
        id_,
        to,
        uuid7(),
    )


@pytest.mark.parametrize("to", STATUSES)
@pytest.mark.parametrize("origin", STATUSES)
async def test_a_move_by_hand_is_made_where_the_table_says_so_and_nowhere_else(engine, psql, origin, to):
    task = (await engine.enqueue("anything", None, actor="test")).execution
    for status in ROUTES[origin]:
        await by_hand(psql, task.id, status)
    before = await engine.timeline(task.id)
    if to in MOVES[origin]:
        await by_hand(psql, task.id, to)
        last = (await engine.timeline(task.id))[-1]
        user = await psql.fetchval("select session_user")
        by_whom = last.from_status, last.to_status, last.actor
        assert by_whom == (origin, to, f"database user {user}")
        assert last.reason == ("claimed" if to == "running" and last.epoch == 1 else "changed by hand")
        row = await psql.fetchrow("select changed_by, reason from suture.executions where id = $1", task.id)
        assert tuple(row) == (f"database user {user}", "changed by hand")
    elif to == origin:
        await by_hand(psql, task.id, to)  # no move
        assert await engine.timeline(task.id) == before
    else:
        with pytest.raises(asyncpg.PostgresError, match=f"is {origin}: it cannot become {to}") as refused:
            await by_hand(psql, task.id, to)
        assert refused.value.sqlstate == "SU001"
        assert await engine.timeline(task.id) == before
        assert (await engine.get(task.id)).status == origin


@pytest.mark.parametrize(
    ("sql", "complaint"),
    [
        ("update suture.workflow_executions set epoch = epoch - 1", "cannot go back"),
        ("update suture.workflow_executions set id = gen_random_uuid()", "cannot go back"),
        ("update suture.workflow_executions set status = 'running', owner_id = id, lease_expires = now()", "must raise the epoch"),
        ("update suture.workflow_executions set status = 'paused'", "known_status"),
        ("update suture.workflow_executions set owner_id = id", "owned_while_running"),
        ("update suture.workflow_executions set finished_at = now()", "finished_when_ended"),
        ("delete from suture.workflow_executions", "only an ended execution can be removed"),
        (
            "insert into suture.workflow_executions (id, workflow, status, input, input_digest, changed_by, finished_at) "
            "values (gen_random_uuid(), 'x', 'completed', 'null', '', 'me', now())",
            "begins as enqueued",
        ),
        (
            "update suture.workflow_executions set status = 'running', epoch = 1, owner_id = id, lease_expires = now(), started_at = now()",
            "started_when_claimed",
        ),
    ],
)
async def test_what_would_falsify_the_state_is_refused_from_psql(engine, psql, take, sql, complaint):
    await engine.enqueue("anything", None, actor="test")
    if "epoch - 1" in sql:
        await take()
        await psql.execute("update suture.workflow_executions set epoch = epoch + 1")
    with pytest.raises(asyncpg.PostgresError, match=complaint):
        await psql.execute(sql)


@pytest.mark.parametrize("where", ["live", "moved to the history"])
@pytest.mark.parametrize(
    "sql",
    [
        "update suture.{table} set created_at = created_at - interval '1 h'",
        "update suture.{table} set created_by = 'nobody'",
        "update suture.{table} set created_reason = 'none'",
        "update suture.{table} set started_at = started_at - interval '1 s'",
        "update suture.{table} set started_by = 'nobody'",
        "update suture.{table} set finished_at = finished_at + interval '1 s'",
        "update suture.{table} set changed_by = 'nobody'",
        "update suture.{table} set reason = 'none'",
        "update suture.{table} set changed_xid = changed_xid + 1",
        "update suture.moves set actor = 'nobody'",
        "update suture.moves_default set reason = 'none'",
        "delete from suture.moves",
        "truncate suture.moves",
        "truncate suture.workflow_history",
        "truncate suture.workflow_history_default",
    ],
)
async def test_the_timeline_is_append_only_wherever_its_lines_stand(engine, database, psql, take, pass_time, sql, where):
    """Of one that was handed back, went on and was completed: what its own row tells, and what the other table does."""
    id_ = UUID("11111111-1111-4111-8111-111111111111")  # of no month: its lines lie in the default
    await psql.execute("insert into suture.workflow_executions (id, workflow, input) values ($1, 'anything', 'null')", id_)
    first = await take()
    await database.many("hand_back", first.owner, [id_], [1], "worker one", "handed back")
    await (await take()).complete("done")
    if where != "live":
        await pass_time(7200)
        assert await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1)) == 1
    before = await engine.timeline(id_)
    assert len(before) == 5

    with pytest.raises(asyncpg.PostgresError, match="append-only"):
        await psql.execute(sql.format(table="workflow_executions" if where == "live" else "workflow_history"))

    assert await engine.timeline(id_) == before


async def test_what_went_well_is_told_by_its_row_alone(engine, database, psql, take, pass_time):
    """Nothing else is written for it, and nothing is lost when it moves to the history."""
    task = (await engine.enqueue("anything", None, actor="anna", reason="asked in chat")).execution
    await (await take("one")).complete("done")
    told = [
        (1, "anna", None, "enqueued", "asked in chat", 0),
        (2, "worker one", "enqueued", "running", "claimed", 1),
        (3, "worker one", "running", "completed", "finished", 1),
    ]

    async def lines() -> list[tuple[object, ...]]:
        return [(m.id, m.actor, m.from_status, m.to_status, m.reason, m.epoch) for m in await engine.timeline(task.id)]

    assert await lines() == told
    moments = [move.at for move in await engine.timeline(task.id)]
    assert moments == sorted(moments)
    await pass_time(7200)
    await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1))
    assert await psql.fetchval("select count(*) from suture.workflow_history") == 1
    assert await lines() == told
    assert await psql.fetchval("select count(*) from suture.moves") == 0


async def test_two_moves_in_one_transaction_are_each_told_by_who_made_them(engine):
    async with engine.transaction() as session:
        task = (await engine.enqueue("anything", None, actor="anna", session=session)).execution
        await engine.cancel(task.id, actor="bert", reason="a mistake", session=session)
    assert [(m.actor, m.to_status, m.reason) for m in await engine.timeline(task.id)] == [
        ("anna", "enqueued", "requested"),
        ("bert", "cancelled", "a mistake"),
    ]


async def test_of_many_ends_at_once_one_is_made(engine, database, take, pass_time):
    for _ in range(12):
        task = (await engine.enqueue("anything", None, actor="test")).execution
        claim = await take()
        await pass_time(31)
        results = await asyncio.gather(
            claim.complete("done"),
            claim.fail(Failure("Bad", "bad")),
            engine.cancel(task.id, actor="anna"),
            sweep(database, lease=LEASE),
            claim.retry(Failure("Bad", "bad"), delay=timedelta(0), step_attempts=1, attempt=2),
            return_exceptions=True,
        )
        unexpected = [r for r in results if isinstance(r, BaseException) and not isinstance(r, LeaseLost | IllegalTransition)]
        assert unexpected == []
        if not (await engine.get(task.id)).finished_at:
            await engine.cancel(task.id, actor="anna")
        moves = await engine.timeline(task.id)
        assert len([move for move in moves if is_terminal(move.to_status)]) == 1
        assert is_terminal(moves[-1].to_status)
        assert [m.from_status for m in moves[1:]] == [m.to_status for m in moves[:-1]]  # no gap


async def test_the_timeline_tells_the_whole_story_of_an_execution(engine, database, take, pass_time, psql):
    task = (await engine.enqueue("anything", None, actor="anna", reason="asked in chat")).execution
    first = await take("one")
    await pass_time(31)
    await sweep(database, lease=LEASE)
    second = await take("two")
    await second.retry(Failure("RateLimited", "slow down", "push"), delay=timedelta(seconds=2), step_attempts=1, attempt=2)
    await pass_time(3)
    third = await take("three")
    with pytest.raises(Suspended):
        await third.wait("approval", event="approval", timeout=None)
    await engine.emit(task.id, "approval", True, actor="boss")
    fourth = await take("four")
    await fourth.complete("done")

    moves = await engine.timeline(task.id)
    assert [(m.actor, m.from_status, m.to_status, m.reason) for m in moves] == [
        ("anna", None, "enqueued", "asked in chat"),
        ("worker one", "enqueued", "running", "claimed"),
        ("recovery", "running", "enqueued", "lease expired"),
        ("worker two", "enqueued", "running", "claimed"),
        ("worker two", "running", "enqueued", "RateLimited: try again in 2 s"),
        ("worker three", "enqueued", "running", "claimed"),
        ("worker three", "running", "waiting", "waits for approval"),
        ("boss", "waiting", "enqueued", "event approval"),
        ("worker four", "enqueued", "running", "claimed"),
        ("worker four", "running", "completed", "finished"),
    ]
    assert [m.epoch for m in moves] == [0, 1, 1, 2, 2, 3, 3, 3, 4, 4]
    assert first.epoch == 1
    assert [m.at for m in moves[4:]] == sorted(m.at for m in moves[4:])


async def test_ended_executions_leave_the_live_table_and_can_still_be_asked_for(engine, database, take, pass_time, psql):
    task = (await engine.enqueue("anything", {"n": 1}, actor="test", labels={"a": "b"})).execution
    await (await take()).complete("done")
    alive = (await engine.enqueue("anything", None, actor="test")).execution
    await pass_time(70 * 86400)  # months in which nobody tidied
    assert await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1)) == 1
    assert [r["id"] for r in await psql.fetch("select id from suture.workflow_executions")] == [alive.id]
    found = await engine.get(task.id)
    assert (found.status, found.output, found.input) == ("completed", "done", {"n": 1})
    assert [e.id for e in await engine.page(labels={"a": "b"})] == [task.id]


async def test_what_has_just_ended_stays_in_the_live_table(engine, database, take, psql):
    await engine.enqueue("anything", None, actor="test")
    await (await take()).complete("done")
    assert await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1)) == 0
    assert await psql.fetchval("select count(*) from suture.workflow_executions") == 1


async def test_a_wait_that_nobody_came_back_to_goes_with_its_execution(engine, database, take, pass_time, psql):
    task = (await engine.enqueue("anything", None, actor="test")).execution
    with pytest.raises(Suspended):
        await (await take()).wait("nap", event=None, timeout=timedelta(hours=1))
    await engine.cancel(task.id, actor="anna")
    await pass_time(7200)
    await tidy(database, keep_ended=timedelta(hours=1), keep_workers=timedelta(days=1))
    assert await psql.fetchval("select count(*) from suture.workflow_waits") == 0
