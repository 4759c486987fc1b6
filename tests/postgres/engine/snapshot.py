"""What the engine's tables say at one moment, and what must hold of any moment, and between a moment and the next."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any

from suture.engine import LIVE, MOVES

State = dict[str, Any]

_LOOK = """
select json_build_object(
    'executions', coalesce((select json_object_agg(id, e) from (
        select id, status, owner_id as owner, epoch, crashes, attempt, operation_key as key, workflow, input, output, queue, step,
               error ->> 'reason' as reason, cancel_requested_by as wish, finished_at is not null as finished, forked_from as origin,
               coalesce(lease_expires < now(), false) as expired, run_at <= now() as due, coalesce(deadline_at < now(), false) as overdue,
               coalesce(finished_at < now() - interval '100 s', false) as old, extract(epoch from finished_at) as ended_at,
               exists (select from suture.operation_outputs o
                       where o.execution_id = x.id and o.epoch > coalesce(x.crash_epoch, 0) and o.finished_at >= x.created_at) as progress,
               (select count(*) from suture.workflow_executions l where l.id = x.id) as living,
               (select count(*) from suture.workflow_history h where h.id = x.id) as archived
        from suture.executions x) e), '{}'),
    'outputs', coalesce((select json_object_agg(execution_id, o) from (
        select execution_id, json_object_agg(step_id, output) as o from suture.operation_outputs group by 1) s), '{}'),
    'events', coalesce((select json_object_agg(execution_id, v) from (
        select execution_id, json_object_agg(name, payload) as v from suture.events group by 1) s), '{}'),
    'waits', coalesce((select json_object_agg(execution_id || ' ' || step_id, w) from (
        select execution_id, step_id, event, outcome, coalesce(wake_at <= now(), false) as over from suture.workflow_waits) w), '{}'),
    'effects', coalesce((select json_object_agg(key, json_build_object('execution', execution_id, 'state', state, 'result', result))
        from suture.effects), '{}'),
    'letters', coalesce((select json_object_agg(execution_id, d) from (
        select execution_id, reason, requeued_as as successor from suture.dead_letters) d), '{}'),
    'paused', (select coalesce(json_agg(name order by name), '[]') from suture.queues where paused),
    'timeline', coalesce((select json_object_agg(execution_id, t) from (
        select execution_id, json_agg(json_build_array(id, from_status, to_status, epoch) order by id) as t
        from suture.timeline group by 1) s), '{}'))
"""
_EMPTIED = (
    "workflow_executions, workflow_history, operation_outputs, operation_failures, workflow_waits, events, effects, moves, "
    "dead_letters, queues, workers"
)


async def look(psql: Any) -> State:
    found: State = json.loads(await psql.fetchval(_LOOK))
    return found


async def empty(psql: Any) -> None:
    """Forget all that was, the timeline too."""
    async with psql.transaction():
        await psql.execute("set local session_replication_role = replica")
        await psql.execute(f"truncate {', '.join(f'suture.{table.strip()}' for table in _EMPTIED.split(','))}")


# Told by the clock, or bookkeeping of where a row lies: no statement is asked to keep them.
_CLOCK = {"expired", "due", "overdue", "old", "ended_at", "living", "archived", "progress"}


def compare(expected: State, found: State) -> None:
    """What was to be expected is there, and nothing else."""
    assert found["executions"].keys() == expected["executions"].keys()
    for id_, execution in expected["executions"].items():
        row = found["executions"][id_]
        # Where a row ran last and the reason of its last failure are told for people: no decision hangs on them.
        hard = {k: v for k, v in execution.items() if k not in _CLOCK | {"step", "reason"}}
        assert {k: row[k] for k in hard} == hard, f"{id_} is not as expected"
    for table in ("outputs", "events", "effects", "paused"):
        assert found[table] == expected[table], table
    waits = [{k: (w["event"], w["outcome"]) for k, w in state["waits"].items()} for state in (expected, found)]
    assert waits[1] == waits[0]
    assert {k: v["successor"] for k, v in found["letters"].items()} == {k: v["successor"] for k, v in expected["letters"].items()}


def check(found: State) -> None:
    """What must hold at any moment."""
    for id_, e in found["executions"].items():
        assert (e["status"] == "running") == (e["owner"] is not None)
        assert e["finished"] == (e["status"] not in LIVE)
        assert e["living"] + e["archived"] == 1, f"{id_} lies in {e['living']} rows and {e['archived']} of the history"
        assert e["archived"] == 0 or e["finished"]
        assert (e["status"] == "error") == (id_ in found["letters"])
        moves = found["timeline"][id_]
        assert moves[0][1:3] == [None, "enqueued"]
        assert all(later[1] == earlier[2] for earlier, later in pairwise(moves)), "a gap in the timeline"
        assert all(to in MOVES[origin] for _, origin, to, _ in moves[1:])
        assert moves[-1][2] == e["status"]
        assert sum(to not in LIVE for _, _, to, _ in moves) <= 1
        epochs = [epoch for *_, epoch in moves]
        assert epochs == sorted(epochs)
        claims = [epoch for _, _, to, epoch in moves if to == "running"]
        assert len(claims) == len(set(claims)), "two claims of one epoch"
    keys = Counter(e["key"] for e in found["executions"].values() if e["key"] and e["status"] in LIVE)
    assert all(count == 1 for count in keys.values()), keys


def follow(before: State, after: State) -> None:
    """What must hold between a moment and any later one."""
    for id_, was in before["executions"].items():
        now = after["executions"][id_]
        assert now["epoch"] >= was["epoch"]
        assert was["status"] in LIVE or _ended(now) == _ended(was), f"{id_} had ended and has changed"
        assert after["timeline"][id_][: len(before["timeline"][id_])] == before["timeline"][id_], "the timeline was rewritten"
    for table in ("outputs", "events"):
        for id_, kept in before[table].items():
            assert after[table].get(id_, {}).items() >= kept.items(), f"{table} of {id_} have changed"
    for key, effect in before["effects"].items():
        assert effect["state"] != "confirmed" or after["effects"][key] == effect, "a confirmed effect has changed"


def _ended(execution: State) -> State:
    return {k: v for k, v in execution.items() if k not in _CLOCK}
