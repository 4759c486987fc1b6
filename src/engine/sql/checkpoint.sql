-- name: load_checkpoints
-- many: the finished steps of an execution
-- $1 execution uuid
select step_id, kind, output, attempts, owner_id, epoch, started_at, finished_at
from suture.operation_outputs where execution_id = $1 order by finished_at, step_id

-- name: load_failures
-- many: the steps that failed so far, with their attempts
-- $1 execution uuid
select step_id, attempts, error, failed_at from suture.operation_failures where execution_id = $1

-- name: checkpoint
-- one: the places in $2, from 1, whose claim still holds (null: all of them; the others are lost), and those that somebody wishes cancelled
-- $1 owner uuid, $2 executions uuid[] (in order), $3 epochs bigint[], $4 steps text[], $5 kinds text[], $6 outputs jsonb[],
-- $7 attempts int[], $8 started_at timestamptz[]; of $3, $5 and $7 one element does for all
--
-- The steps of many executions are one statement: one commit for all that gathered while the last one was on its way.
-- The row lock on each execution orders this write with every claim: after a take-over the old epoch finds no row. Owner and epoch are the
-- whole fence: an execution that does not run has no owner.
-- Lateral, one look by primary key for each row: joined, the planner trusts its statistics of running rows, which come and go, and
-- compares all with all. For the same reason nothing here joins two of its own results.
-- Fails as a whole where a step was written before, see `checkpoint_again`: to be ready for that would cost each row a quarter more, and it
-- happens only when the answer to a commit was lost.
with held as materialized (
    select w.nth, w.id, e.cancel_requested_by, w.epoch, w.step, w.kind, w.output, w.attempts, w.started_at
    from unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::jsonb[], $7::int[], $8::timestamptz[]) with ordinality
        as w (id, epoch, step, kind, output, attempts, started_at, nth)
    cross join lateral (
        select x.cancel_requested_by from suture.workflow_executions x
        where x.id = w.id and x.owner_id = $1 and x.epoch = coalesce(w.epoch, ($3::bigint[])[1])
        for no key update
    ) as e
), kept as (
    insert into suture.operation_outputs (execution_id, step_id, kind, output, attempts, owner_id, epoch, started_at, finished_at)
    select id, step, coalesce(kind, ($5::text[])[1]), output, coalesce(attempts, ($7::int[])[1]), $1, coalesce(epoch, ($3::bigint[])[1]),
           started_at, statement_timestamp()
    from held
)
select case when count(*) < cardinality($2::uuid[]) then coalesce(array_agg(nth), '{}') end as held,
       array_agg(nth) filter (where cancel_requested_by is not null) as cancelled
from held

-- name: checkpoint_again
-- many: for each step whose claim still holds: an earlier output, which then counts, or null when ours does; and a row without a step for
-- each execution that somebody wishes cancelled. What is missing is lost
-- $1 owner uuid, $2 executions uuid[] (in order), $3 epochs bigint[], $4 steps text[], $5 kinds text[], $6 outputs jsonb[],
-- $7 attempts int[], $8 started_at timestamptz[]; of $3, $5 and $7 one element does for all
--
-- The conflict turns into a no-op update, because only that returns a row which the statement's snapshot may not see. A row is ours when it
-- has this statement's time: whoever wrote an earlier one committed before our claim was made.
with held as materialized (
    select w.id, e.cancel_requested_by, w.epoch, w.step, w.kind, w.output, w.attempts, w.started_at
    from unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::jsonb[], $7::int[], $8::timestamptz[])
        as w (id, epoch, step, kind, output, attempts, started_at)
    cross join lateral (
        select x.cancel_requested_by from suture.workflow_executions x
        where x.id = w.id and x.owner_id = $1 and x.epoch = coalesce(w.epoch, ($3::bigint[])[1])
        for no key update
    ) as e
), kept as (
    insert into suture.operation_outputs as o
        (execution_id, step_id, kind, output, attempts, owner_id, epoch, started_at, finished_at)
    select id, step, coalesce(kind, ($5::text[])[1]), output, coalesce(attempts, ($7::int[])[1]), $1, coalesce(epoch, ($3::bigint[])[1]),
           started_at, statement_timestamp()
    from held
    on conflict (execution_id, step_id) do update set output = o.output
    returning o.execution_id, o.step_id, case when o.finished_at <> statement_timestamp() or o.owner_id <> $1 then o.output end as earlier
)
select execution_id, step_id, earlier from kept
union all
select id, null, null from held where cancel_requested_by is not null
