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
-- maybe: the output that counts, ours or an earlier one, and whether somebody wishes the execution cancelled; no row: the lease is lost
-- $1 execution uuid, $2 owner uuid, $3 epoch bigint, $4 step text, $5 kind text, $6 output jsonb, $7 attempts int, $8 started_at timestamptz
--
-- The row lock on the execution orders this write with every claim: after a take-over the old epoch finds no row.
-- The conflict turns into a no-op update, because only that returns a row which the statement's snapshot may not see.
with held as materialized (
    select id, cancel_requested_by from suture.workflow_executions
    where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
    for no key update
)
insert into suture.operation_outputs as o (execution_id, step_id, kind, output, attempts, owner_id, epoch, started_at)
select id, $4, $5, $6, $7, $2, $3, $8 from held
on conflict (execution_id, step_id) do update set output = o.output
returning o.output, (select cancel_requested_by from held) as cancel_requested_by

