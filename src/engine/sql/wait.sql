-- name: lock_held
-- maybe: the database's time; no row: the lease is lost
-- $1 execution uuid, $2 owner uuid, $3 epoch bigint
select now() as at from suture.workflow_executions
where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
for no key update

-- name: lock_execution
-- maybe: its status
-- $1 execution uuid
select status from suture.workflow_executions where id = $1 for no key update

-- name: open_wait
-- one: the wait, as it stands: its first wake_at counts, however often it is entered
-- $1 execution uuid, $2 step text, $3 event text, $4 timeout interval
insert into suture.workflow_waits as w (execution_id, step_id, event, wake_at) values ($1, $2, $3, now() + $4)
on conflict (execution_id, step_id) do update set step_id = w.step_id
returning w.wake_at, w.outcome, w.wake_at <= now() as due, w.created_at

-- name: find_event
-- maybe: its payload and who emitted it
-- $1 execution uuid, $2 name text
select payload, emitted_by, emitted_at from suture.events where execution_id = $1 and name = $2

-- name: settle_wait
-- none
-- $1 execution uuid, $2 step text, $3 outcome text
update suture.workflow_waits set outcome = $3 where execution_id = $1 and step_id = $2 and outcome is null

-- name: suspend
-- maybe: the id; no row: the lease is lost
-- $1 execution uuid, $2 owner uuid, $3 epoch bigint, $4 step text, $5 actor text, $6 reason text
--
-- A cancel that was wished for meanwhile is done instead: nobody looks for such a wish among the waiting.
-- Whoever has come here with a step finished since its worker was lost is no suspect any more: see `recover`.
update suture.workflow_executions e
set status = case when cancel_requested_by is null then 'waiting' else 'cancelled' end,
    finished_at = case when cancel_requested_by is null then null else now() end,
    owner_id = null, lease_expires = null, step = $4, updated_at = now(),
    changed_xid = suture.xid(), changed_by = coalesce(cancel_requested_by, $5), reason = coalesce(cancel_reason, $6),
    crashes = case when crashes > 0 and exists (
        select from suture.operation_outputs o
        where o.execution_id = e.id and o.epoch > coalesce(e.crash_epoch, 0) and o.finished_at >= e.created_at
    ) then 0 else crashes end
where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
returning id

-- name: limit_times
-- none
-- $1 execution uuid, $2 queue_timeout interval, $3 run_timeout interval
--
-- In the transaction that adds the execution. When it is begun, the trigger `begin_run` makes a deadline of run_timeout.
update suture.workflow_executions set start_by = greatest(run_at, now()) + $2, run_timeout = $3 where id = $1

-- name: is_wait_over
-- maybe: whether the last wait for this event ended, or must end, without it; no row: nobody waited for it yet
-- $1 execution uuid, $2 event text
--
-- Under the execution's row lock: an event that is let in before the time is over is the outcome, one that comes later is refused.
select coalesce(outcome = 'timeout', wake_at <= clock_timestamp(), false) as over
from suture.workflow_waits where execution_id = $1 and event = $2 order by created_at desc limit 1

-- name: emit
-- one: the event that counts, and whether it is ours
-- $1 execution uuid, $2 name text, $3 payload jsonb, $4 emitted_by text
insert into suture.events as v (execution_id, name, payload, emitted_by, emitted_at) values ($1, $2, $3, $4, statement_timestamp())
on conflict (execution_id, name) do update set name = v.name
returning v.payload, v.emitted_by, v.emitted_at, v.emitted_at = statement_timestamp() as ours

-- name: wake_for_event
-- maybe: the id, when it was waiting for this event
-- $1 execution uuid, $2 event text, $3 actor text
update suture.workflow_executions e
set status = 'enqueued', run_at = now(), updated_at = now(), changed_xid = suture.xid(), changed_by = $3, reason = 'event ' || $2
from suture.workflow_waits w
where e.id = $1 and e.status = 'waiting' and w.execution_id = e.id and w.step_id = e.step and w.event = $2 and w.outcome is null
returning e.id, pg_notify('suture_due', e.queue)::text as notified

-- name: wake_due
-- many: the ids that are due again
-- $1 batch int, $2 actor text
--
-- Any worker, as often as it likes. The outcome is decided when the execution resumes, under its row lock: here it is only woken.
with due as materialized (
    select e.id, w.event
    from suture.workflow_waits w
    join suture.workflow_executions e on e.id = w.execution_id
    where w.outcome is null and w.wake_at <= now() and e.status = 'waiting' and e.step = w.step_id
    limit $1
    for no key update of e skip locked
)
update suture.workflow_executions e
set status = 'enqueued', run_at = now(), updated_at = now(), changed_xid = suture.xid(), changed_by = $2,
    reason = case when due.event is null then 'slept' else 'no event ' || due.event || ' in time' end
from due
where e.id = due.id
returning e.id, pg_notify('suture_due', e.queue)::text as notified
