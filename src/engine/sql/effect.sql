-- name: intend
-- maybe: the ledger's row, ours or an earlier one's, or `paused` when nobody may begin it for now; no row: the lease is lost
-- $1 execution uuid, $2 owner uuid, $3 epoch bigint, $4 step text, $5 kind text, $6 key text
--
-- The intent is on disk before the act: whoever comes after a crash knows that the outside must be asked first.
-- Of two executions that want the same effect one holds the intent while it lives; the other has to wait for its outcome. Somebody who
-- is not seen here ended, and was forgotten, long ago: the minute covers an execution younger than this statement's snapshot.
with held as materialized (
    select id, workflow from suture.workflow_executions
    where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
    for no key update
), paused as materialized (
    select held.id from held, suture.paused_steps p
    where suture.covers(p.workflow, held.workflow) and (suture.covers(p.step, $4) or suture.covers(p.step, $5))
    limit 1
), intended as (
    insert into suture.effects as f (kind, key, execution_id, step_id)
    select $5, $6, id, $4 from held where not exists (select from paused)
    on conflict (kind, key) do update set execution_id = case
        when f.state = 'intended' and (
            exists (select from suture.executions e where e.id = f.execution_id and e.finished_at is not null)
            or (f.intended_at < now() - interval '1 minute' and not exists (select from suture.executions e where e.id = f.execution_id)))
        then excluded.execution_id else f.execution_id end
    returning f.state, f.result, f.execution_id
)
select state, result, execution_id from intended
union all
select 'paused', null, id from paused

-- name: confirm
-- maybe: the output that counts; no row: the lease is lost
-- $1 execution uuid, $2 owner uuid, $3 epoch bigint, $4 step text, $5 kind text, $6 key text, $7 result jsonb, $8 attempts int,
-- $9 started_at timestamptz
--
-- The ledger's confirmation and the step's checkpoint are one statement.
with held as materialized (
    select id from suture.workflow_executions
    where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
    for no key update
), confirmed as (
    update suture.effects f
    set state = 'confirmed', result = coalesce(f.result, $7), confirmed_at = coalesce(f.confirmed_at, clock_timestamp())
    from held
    where f.kind = $5 and f.key = $6
    returning f.result
)
insert into suture.operation_outputs as o (execution_id, step_id, kind, output, attempts, owner_id, epoch, started_at)
select $1, $4, 'effect', confirmed.result, $8, $2, $3, $9 from confirmed
on conflict (execution_id, step_id) do update set output = o.output
returning o.output
