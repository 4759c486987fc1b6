-- name: register
-- none
-- $1 id uuid, $2 name text, $3 version text, $4 queues text[]
insert into suture.workers (id, name, version, queues) values ($1, $2, $3, $4) on conflict (id) do nothing

-- name: deregister
-- none
-- $1 id uuid
update suture.workers set stopped_at = clock_timestamp(), presence = false, absent_since = null where id = $1

-- name: beat
-- many: id and epoch of what is still held, and whether somebody wishes it cancelled; what is missing is lost. And of what the owner holds
-- beside that
-- $1 owner uuid, $2 ids uuid[], $3 epochs bigint[], $4 steps text[], $5 lease interval
--
-- One statement renews all that a worker holds. No indexed column changes: a HOT update.
-- Rows are locked in the order of their ids, as everywhere, so that a beat and a batch of cancels cannot deadlock.
with beaten as (
    update suture.workers set beat_at = now() where id = $1
), held as materialized (
    select e.id, wanted.step
    from unnest($2::uuid[], $3::bigint[], $4::text[]) as wanted (id, epoch, step)
    join suture.workflow_executions e on e.id = wanted.id
    where e.owner_id = $1 and e.epoch = wanted.epoch and e.status = 'running'
    order by e.id
    for no key update of e
), renewed as (
    update suture.workflow_executions e
    set lease_expires = now() + $5, step = coalesce(held.step, e.step)
    from held
    where e.id = held.id
    returning e.id, e.epoch, e.cancel_requested_by
)
select id, epoch, cancel_requested_by from renewed
union all
select id, epoch, null from suture.workflow_executions where owner_id = $1 and status = 'running' and not (id = any ($2))

-- name: show_presence
-- one: whether the lock is ours
-- $1 owner uuid
--
-- A session's advisory lock: it goes when the process or its connection goes, and everyone can see that in pg_locks.
with taken as materialized (
    select pg_try_advisory_lock(hashtextextended($1::uuid::text, 1)) as held
), shown as (
    update suture.workers w set presence = true, absent_since = null
    from taken
    where w.id = $1 and taken.held and (not w.presence or w.absent_since is not null)
)
select held from taken

-- name: hide_presence
-- none
-- $1 owner uuid
--
-- A worker that lives but has lost its listening connection: until it shows itself again its leases alone are judged.
update suture.workers set presence = false, absent_since = null where id = $1

-- name: mark_absent
-- none
-- $1 restart interval
--
-- pg_locks splits the key of an advisory lock into two halves. Presence only makes recovery early: a worker that never showed its
-- presence (PgBouncer) is judged by its leases alone. After a restart of Postgres nobody's lock is there: all from
-- before get the time to return.
with seen as materialized (
    select id, exists (
        select from pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1
          and l.database = (select oid from pg_database where datname = current_database())
          and l.classid = ((hashtextextended(id::text, 1) >> 32) & 4294967295)::oid
          and l.objid = (hashtextextended(id::text, 1) & 4294967295)::oid
    ) as here
    from suture.workers
    where presence and stopped_at is null
), changed as materialized (
    select w.id, seen.here
    from suture.workers w join seen using (id)
    where w.presence and seen.here = (w.absent_since is not null)
      and (seen.here or w.started_at > pg_postmaster_start_time() or pg_postmaster_start_time() < now() - $1::interval)
    for no key update of w skip locked
)
update suture.workers w
set absent_since = case when changed.here then null else now() end
from changed
where w.id = changed.id

-- name: recover
-- many: id, status and crashes of what was taken from the lost
-- $1 grace interval, $2 crash_limit int, $3 batch int, $4 actor text, $5 restart interval
--
-- A predicate over rows that any worker evaluates as often as it likes. SKIP LOCKED: a row that somebody is writing is not lost.
-- Served by executions_running. Past the crash limit the execution ends in the dead letters: it may be what kills the workers.
-- A restart of Postgres lets leases run out whose holders live: those from before get the time for a beat first.
-- A step that was finished since the last loss begins the count anew: work of weeks may lose many workers, a loop makes no progress. Steps
-- that were copied from a dead letter are older than the execution, and none of its own.
with lost as materialized (
    select e.id,
           case when e.crashes > 0 and exists (
               select from suture.operation_outputs o
               where o.execution_id = e.id and o.epoch > coalesce(e.crash_epoch, 0) and o.finished_at >= e.created_at
           ) then 0 else e.crashes end as crashes,
           e.cancel_requested_by, e.cancel_reason, e.lease_expires < now() as expired
    from suture.workflow_executions e
    where e.status = 'running'
      and ((e.lease_expires < now()
            and (e.updated_at > pg_postmaster_start_time() or pg_postmaster_start_time() < now() - $5::interval))
           or e.owner_id in (select id from suture.workers where presence and absent_since < now() - $1::interval))
    limit $3
    for no key update of e skip locked
), taken as (
    update suture.workflow_executions e
    set status = fate.status, crashes = lost.crashes + 1, crash_epoch = e.epoch, owner_id = null, lease_expires = null,
        run_at = now(), updated_at = now(),
        finished_at = case when fate.status <> 'enqueued' then now() end,
        error = case when fate.status = 'error'
            then jsonb_build_object('reason', 'CrashLoop', 'message', format('its worker was lost %s times while it ran', lost.crashes + 1))
            else e.error end,
        changed_xid = suture.xid(), changed_by = coalesce(fate.by, $4), reason = fate.reason
    from lost, lateral (select
        case when lost.cancel_requested_by is not null then 'cancelled' when lost.crashes >= $2 then 'error' else 'enqueued' end as status,
        lost.cancel_requested_by as by,
        case when lost.cancel_requested_by is not null then coalesce(lost.cancel_reason, 'cancelled') when lost.crashes >= $2 then 'CrashLoop'
             when lost.expired then 'lease expired' else 'worker gone' end as reason) as fate
    where e.id = lost.id
    returning e.*
), buried as (
    insert into suture.dead_letters (execution_id, workflow, queue, reason, error, step, attempts, crashes)
    select id, workflow, queue, reason, error, step, attempt, crashes from taken where status = 'error'
)
select id, status, crashes, pg_notify('suture_due', queue)::text as notified from taken

-- name: expire_owner
-- many: the ids whose lease ends now
-- $1 worker name text
--
-- For whoever knows that a worker is gone before its lease runs out: the operator sees a pod or a node go.
update suture.workflow_executions e
set lease_expires = now() - interval '1 microsecond'
from suture.workers w
where w.name = $1 and w.stopped_at is null and e.owner_id = w.id and e.status = 'running'
returning e.id

-- name: expire_overdue
-- many: the ids that missed their deadline, or that nobody began in time
-- $1 batch int, $2 actor text
with late as materialized (
    select id from suture.workflow_executions
    where deadline_at < now() and status in ('enqueued', 'waiting', 'running')
      and (status <> 'running' or cancel_requested_by is null)
    limit $1
    for no key update skip locked
), unbegun as materialized (
    select id from suture.workflow_executions
    where start_by < now() and started_at is null and status = 'enqueued'
    limit $1
    for no key update skip locked
), overdue as materialized (
    select id, 'DeadlineExceeded' as reason from late
    union all
    select id, 'QueueTimeout' from unbegun where id not in (select id from late)
), ended as (
    update suture.workflow_executions e
    set status = 'error', owner_id = null, lease_expires = null, finished_at = now(), updated_at = now(),
        error = jsonb_build_object('reason', overdue.reason, 'message', case overdue.reason
            when 'QueueTimeout' then format('not begun by %s', e.start_by) else format('not finished by %s', e.deadline_at) end),
        changed_xid = suture.xid(), changed_by = $2, reason = overdue.reason
    from overdue
    where e.id = overdue.id
    returning e.*
), buried as (
    insert into suture.dead_letters (execution_id, workflow, queue, reason, error, step, attempts, crashes)
    select id, workflow, queue, reason, error, step, attempt, crashes from ended
)
select id, pg_notify('suture_cancel', id::text)::text as notified from ended

-- name: archive
-- many: the ids that went to the history
-- $1 batch int, $2 age interval
--
-- Ended rows leave the live table in batches; the row is in exactly one of the two at any time. A wait that nobody came back to would
-- stay among the due for ever: it goes now.
with ended as materialized (
    select id from suture.workflow_executions
    where status in ('completed', 'error', 'cancelled') and finished_at < now() - $2::interval
    limit $1
    for update skip locked
), gone as (
    delete from suture.workflow_executions e using ended where e.id = ended.id returning e.*
), unmet as (
    delete from suture.workflow_waits w using ended where w.execution_id = ended.id and w.outcome is null
)
insert into suture.workflow_history select * from gone returning id

-- name: forget_workers
-- none
-- $1 age interval
--
-- Only a worker that owns nothing: the row of a lost one is what proves that its work must be recovered.
delete from suture.workers w
where coalesce(stopped_at, beat_at) < now() - $1::interval
  and not exists (select from suture.workflow_executions e where e.owner_id = w.id and e.status = 'running')
