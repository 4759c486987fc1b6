-- columns: execution
-- The fields of `Execution`, in its order.
id, workflow, version, queue, priority, status, input, output, error, operation_key, concurrency_key, parked, labels, owner_id, epoch,
lease_expires, run_at, attempt, max_attempts, crashes, step, deadline_at, cancel_requested_by, forked_from, parent_id, has_children,
created_at, started_at, updated_at, finished_at, reason

-- name: enqueue
-- one: the execution, and whether this call created it
-- $1 id uuid, $2 workflow text, $3 version int, $4 queue text, $5 priority int, $6 input jsonb, $7 operation_key text,
-- $8 input_digest bytea (null without a key), $9 labels jsonb, $10 run_at timestamptz, $11 max_attempts int, $12 deadline_at timestamptz,
-- $13 actor text, $14 reason text, $15 forked_from uuid
--
-- The key is unique among the living by an index, so two clients that race get one row: the loser's conflict turns into a
-- no-op update that returns the winner's row even where the loser's snapshot cannot see it.
insert into suture.workflow_executions as e
    (id, workflow, version, queue, priority, input, operation_key, input_digest, labels, run_at, max_attempts, deadline_at,
     created_by, created_reason, changed_by, reason, forked_from)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, now()), $11, $12, $13, $14, $13, $14, $15)
on conflict (operation_key) where operation_key is not null and status in ('enqueued', 'running', 'waiting')
    do update set operation_key = e.operation_key
returning {execution}, input_digest, (xmax = 0) as created

-- name: enqueue_lone
-- one: when it was created
-- $1 id uuid, $2 workflow text, $3 version int, $4 queue text, $5 priority int, $6 input jsonb, $7 labels jsonb, $8 run_at timestamptz,
-- $9 max_attempts int, $10 deadline_at timestamptz, $11 actor text, $12 reason text, $13 forked_from uuid, $14 hint boolean
--
-- Without a key there is nothing to conflict with, and all of the row but its time is known to who wrote it. The hint goes along where
-- none went a moment ago: commits that notify wait for each other, which would end the group commit of all clients.
insert into suture.workflow_executions
    (id, workflow, version, queue, priority, input, labels, run_at, max_attempts, deadline_at, created_by, created_reason, changed_by, reason,
     forked_from)
values ($1, $2, $3, $4, $5, $6, $7, coalesce($8, now()), $9, $10, $11, $12, $11, $12, $13)
returning created_at as at, case when $14 then pg_notify('suture_due', queue)::text end as told

-- name: enqueue_all
-- one: when they were created
-- $1 ids uuid[], $2 workflows text[], $3 versions int[], $4 queues text[], $5 priorities int[], $6 inputs jsonb[], $7 labels jsonb[],
-- $8 run_at timestamptz[], $9 max_attempts int[], $10 deadline_at timestamptz[], $11 actors text[], $12 reasons text[],
-- $13 forked_from uuid[], $14 hints text[]
--
-- As `enqueue_lone`, those of many callers.
with added as (
    insert into suture.workflow_executions
        (id, workflow, version, queue, priority, input, labels, run_at, max_attempts, deadline_at, created_by, created_reason, changed_by,
         reason, forked_from)
    select id, workflow, version, queue, priority, input, labels, coalesce(run_at, now()), max_attempts, deadline_at, actor, reason, actor,
           reason, forked_from
    from unnest($1::uuid[], $2::text[], $3::int[], $4::text[], $5::int[], $6::jsonb[], $7::jsonb[], $8::timestamptz[], $9::int[],
                $10::timestamptz[], $11::text[], $12::text[], $13::uuid[])
        as given (id, workflow, version, queue, priority, input, labels, run_at, max_attempts, deadline_at, actor, reason, forked_from)
), told as materialized (
    select pg_notify('suture_due', queue)::text from unnest($14::text[]) as due (queue)
)
select now() as at, (select count(*) from told) as told

-- name: enqueue_many
-- none
-- $1 ids uuid[], $2 inputs jsonb[], $3 workflow text, $4 version int, $5 queue text, $6 priority int, $7 labels jsonb,
-- $8 run_at timestamptz, $9 actor text, $10 reason text
insert into suture.workflow_executions
    (id, workflow, version, queue, priority, input, labels, run_at, created_by, created_reason, changed_by, reason)
select id, $3, $4, $5, $6, input, $7, coalesce($8, now()), $9, $10, $9, $10
from unnest($1::uuid[], $2::jsonb[]) as given (id, input)

-- name: hint
-- none
-- $1 queues text[]
--
-- Apart from the insert, and one for many: commits that notify wait for each other, which would end the group commit of all clients.
-- A hint that is lost costs one poll.
select pg_notify('suture_due', queue) from unnest($1::text[]) as due (queue)

-- name: last_with_key
-- maybe: the living execution with this key, or else the one that ended last
-- $1 operation_key text
--
-- The living and the ended in one look: an execution that ends between two looks would be in neither.
select {execution}, input_digest from suture.executions
where operation_key = $1
order by finished_at desc nulls first
limit 1

-- name: lock_key
-- none
-- $1 operation_key text
--
-- Held to the end of the transaction: between the look at the key's executions and the insert nobody else may pass with it.
select pg_advisory_xact_lock(hashtextextended($1, 7))

-- name: claim
-- many: the claimed executions, the most urgent of the due, with the columns of `Execution` in its order; empty when none is
-- $1 owner uuid, $2 queues text[], $3 workflows text[], $4 versions int[] (the newest version of each that this worker can run),
-- $5 batch int, $6 lease interval, $7 actor text, $8 suspect int (crashes from which an execution counts as one), $9 holds boolean
-- (whether this worker holds a suspect)
--
-- Served by executions_due, a queue at a time: read in the index's order, a claim looks at what it takes and not at the backlog.
-- Urgency grows with waiting: a point of priority is worth a minute of it (see 0003_expand_limits), so that nobody starves.
-- SKIP LOCKED: two workers that want one row never wait for each other, the second takes the next; hence no strict order, and none
-- is promised. Of several queues more rows may be locked than taken, for the few milliseconds of this statement.
-- A suspect may be what kills its workers: a worker holds one at a time, so that it does not take innocent ones to the dead letters.
-- The subquery is materialized on purpose: joined, the planner may re-run it and lock more rows than the limit.
-- The arguments are read by subqueries on purpose: a plan for these values would look cheaper than the one for any, and be made anew for
-- each claim, which takes longer than the claim.
-- Queues with limits and executions with a concurrency key go through claim_limited, whose statements see what was committed while this
-- one waited for the queue's row. Without any, it is not called. The row lock on queues is also what `close_queues` keeps out.
with limited as materialized (
    select q.name from suture.queues q
    where q.name = any ((select $2::text[])::text[]) and not q.paused and (q.concurrency is not null or q.rate_starts is not null)
      and suture.may_be_claimed(q)
    order by q.name
    for no key update
), closed as materialized (
    select name from suture.queues where paused or concurrency is not null or rate_starts is not null
), keyed as materialized (
    select wanted.queue
    from unnest((select $2::text[])) as wanted (queue)
    cross join lateral (
        select from suture.workflow_executions e
        where e.status = 'enqueued' and e.concurrency_key is not null and not e.parked and e.queue = wanted.queue
          and e.run_at <= now() and suture.urgency(e.run_at, e.priority) <= suture.latest_due()
        order by suture.urgency(e.run_at, e.priority) -- by the index, whatever the planner thinks of the states that come and go
        limit 1
    ) as any_due
    where wanted.queue not in (select name from closed)
), wanted as materialized (
    select given.queue, coalesce(f.urgency, interval '-1000000 days') as floor
    from unnest((select $2::text[])) as given (queue)
    left join suture.floors f on f.queue = given.queue and f.at > now() - interval '1 minute'
), due as materialized (
    select first.id, first.urgency
    from wanted
    cross join lateral (
        select e.id, suture.urgency(e.run_at, e.priority) as urgency
        from suture.workflow_executions e
        where e.status = 'enqueued' and e.concurrency_key is null and e.run_at <= now() and e.queue = wanted.queue
          and e.crashes < (select $8::int)
          -- Here the index begins, where an old snapshot keeps the dead (see raise_floors). As a row: of two bounds of one column the planner
          -- believes that they leave next to nothing, and would sort it.
          and (suture.urgency(e.run_at, e.priority), e.run_at) >= (wanted.floor, timestamptz '-infinity')
          and suture.urgency(e.run_at, e.priority) <= suture.latest_due() -- here the index ends
          and exists (select from unnest((select $3::text[]), (select $4::int[])) as known (workflow, version)
                      where known.workflow = e.workflow and known.version >= e.version)
        order by urgency
        limit (select $5::int)
        for update of e skip locked
    ) as first
    where wanted.queue not in (select name from closed)
), suspect as materialized (
    select e.id, suture.urgency(e.run_at, e.priority) as urgency
    from suture.workflow_executions e
    where not (select $9::boolean) and e.status = 'enqueued' and e.run_at <= now() and e.queue = any ((select $2::text[])::text[])
      and e.crashes > 0 and e.crashes >= (select $8::int) and e.concurrency_key is null and e.queue not in (select name from closed)
      and exists (select from unnest((select $3::text[]), (select $4::int[])) as known (workflow, version)
                  where known.workflow = e.workflow and known.version >= e.version)
    order by urgency
    limit 1
    for update of e skip locked
), found as materialized (
    select * from due union all select * from suspect
), elsewhere as materialized (
    select l.* from suture.claim_limited(
        $1::uuid, array(select name from limited), array(select queue from keyed), $3, $4, $5::int, $6::interval, $7::text, $8,
        $9 or exists (select from suspect), array(select urgency from found)) as l
    where exists (select from limited) or exists (select from keyed)
), chosen as materialized (
    select id from found
    order by urgency
    limit greatest((select $5::int) - (select count(*) from elsewhere), 0)
), here as (
    update suture.workflow_executions e
    set status = 'running', owner_id = $1, epoch = e.epoch + 1, lease_expires = now() + $6,
        started_at = coalesce(e.started_at, clock_timestamp()), started_by = coalesce(e.started_by, $7), updated_at = now(),
        changed_xid = suture.xid(), changed_by = $7, reason = 'claimed'
    where e.id = any (array(select id from chosen))
    returning e.*
)
select {execution}
from (select * from here union all select * from elsewhere) as claimed

-- name: complete
-- one: the places in $2, from 1, that are completed now (null: all of them; the others are lost)
-- $1 owner uuid, $2 ids uuid[], $3 epochs bigint[], $4 outputs jsonb[], $5 actor text; of $3 and $4 one element does for all
--
-- Many executions are one statement, as with `checkpoint`. The update is its own fence: of a row that somebody else has written meanwhile
-- it looks at owner and epoch again, as they are now.
-- By the primary key, whatever the planner trusts in: joined with its arguments it would now and then read all of the table. So a worker, whose
-- statements go by index, locks rows in the order of their ids, as everywhere. Where a plan may read them as they lie (no plan is set through a
-- pooler) they are locked in that order first, which costs a record of the log each. What belongs to a row is found by its place.
with completed as (
    update suture.workflow_executions e
    set status = 'completed', owner_id = null, lease_expires = null, finished_at = now(), updated_at = now(),
        output = ($4::jsonb[])[case when cardinality($4::jsonb[]) = 1 then 1 else array_position($2::uuid[], e.id) end],
        changed_xid = suture.xid(), changed_by = $5, reason = 'finished'
    where e.id = any (case when current_setting('enable_bitmapscan') = 'off' then $2::uuid[] else array(
              select x.id from suture.workflow_executions x where x.id = any ($2::uuid[]) order by x.id for no key update) end)
      and e.owner_id = $1
      and e.epoch = ($3::bigint[])[case when cardinality($3::bigint[]) = 1 then 1 else array_position($2::uuid[], e.id) end]
    returning e.id
), counted as (
    select count(*) as count, array_agg(id) as ids from completed
)
select case when count < cardinality($2::uuid[]) then array(select array_position($2::uuid[], id) from unnest(ids) as id) end as held,
       null as cancelled
from counted

-- name: fail
-- maybe: the id; no row: the lease is lost
-- $1 id uuid, $2 owner uuid, $3 epoch bigint, $4 error jsonb, $5 reason text, $6 step text, $7 actor text
--
-- The end and its dead letter commit together.
with ended as (
    update suture.workflow_executions
    set status = 'error', error = $4, step = coalesce($6, step), owner_id = null, lease_expires = null, finished_at = now(),
        updated_at = now(), changed_xid = suture.xid(), changed_by = $7, reason = $5
    where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
    returning *
), buried as (
    insert into suture.dead_letters (execution_id, workflow, queue, reason, error, step, attempts, crashes)
    select id, workflow, queue, $5, $4, step, attempt, crashes from ended
)
select id from ended

-- name: retry
-- maybe: the id; no row: the lease is lost
-- $1 id uuid, $2 owner uuid, $3 epoch bigint, $4 delay interval, $5 reason text, $6 step text (null: between steps),
-- $7 error jsonb, $8 step_attempts int, $9 attempt int, $10 actor text
--
-- What failed and when it is due again commit together: a crash here neither loses nor doubles an attempt.
-- The step '' counts the failures between steps. A cancel that was wished for meanwhile is done instead.
with again as (
    update suture.workflow_executions
    set status = case when cancel_requested_by is null then 'enqueued' else 'cancelled' end,
        finished_at = case when cancel_requested_by is null then null else now() end,
        owner_id = null, lease_expires = null, run_at = now() + $4, attempt = $9,
        step = coalesce(nullif($6, ''), step), error = $7, updated_at = now(), changed_xid = suture.xid(),
        changed_by = coalesce(cancel_requested_by, $10), reason = coalesce(cancel_reason, $5)
    where id = $1 and owner_id = $2 and epoch = $3 and status = 'running'
    returning id
), noted as (
    insert into suture.operation_failures (execution_id, step_id, attempts, error)
    select id, $6, $8, $7 from again where $6 is not null
    on conflict (execution_id, step_id) do update
        set attempts = excluded.attempts, error = excluded.error, failed_at = clock_timestamp()
)
select id from again

-- name: hand_back
-- many: the ids that were handed back
-- $1 owner uuid, $2 ids uuid[], $3 epochs bigint[], $4 actor text, $5 reason text
--
-- A drain costs no attempt and no crash: the rows are due at once. Locked in the order of their ids, as by a beat.
with held as materialized (
    select e.id
    from unnest($2::uuid[], $3::bigint[]) as wanted (id, epoch)
    join suture.workflow_executions e on e.id = wanted.id
    where e.owner_id = $1 and e.epoch = wanted.epoch and e.status = 'running'
    order by e.id
    for no key update of e
)
update suture.workflow_executions e
set status = case when cancel_requested_by is null then 'enqueued' else 'cancelled' end,
    finished_at = case when cancel_requested_by is null then null else now() end,
    owner_id = null, lease_expires = null, run_at = now(), updated_at = now(),
    changed_xid = suture.xid(), changed_by = coalesce(cancel_requested_by, $4), reason = coalesce(cancel_reason, $5)
from held
where e.id = held.id
returning e.id, pg_notify('suture_due', e.queue)::text as notified

-- name: strays
-- many: id and epoch of what this owner holds beside what it knows of
-- $1 owner uuid, $2 ids uuid[] that it knows
--
-- A claim whose answer was lost in an outage, or work that was given up because its lease could not be renewed.
select id, epoch from suture.workflow_executions where owner_id = $1 and status = 'running' and not (id = any ($2))

-- name: cancel
-- maybe: the execution; no row: there is none that lives
-- $1 id uuid, $2 actor text, $3 reason text
--
-- At once where nobody runs it. Where somebody does, the wish is written, and the claimant hears of it by NOTIFY, at its next
-- heartbeat, or at its next checkpoint.
update suture.workflow_executions e
set status = case when status = 'running' then status else 'cancelled' end,
    finished_at = case when status = 'running' then null else now() end,
    cancel_requested_by = coalesce(cancel_requested_by, $2),
    cancel_reason = coalesce(cancel_reason, $3),
    updated_at = now(),
    changed_xid = case when status = 'running' then changed_xid else suture.xid() end,
    changed_by = case when status = 'running' then changed_by else $2 end,
    reason = case when status = 'running' then reason else $3 end
where id = $1 and status in ('enqueued', 'running', 'waiting')
returning {execution}, pg_notify('suture_cancel', e.id::text)::text as notified

-- name: finish_cancel
-- maybe: the id; no row: the lease is lost
-- $1 id uuid, $2 owner uuid, $3 epoch bigint
update suture.workflow_executions
set status = 'cancelled', owner_id = null, lease_expires = null, finished_at = now(), updated_at = now(),
    changed_xid = suture.xid(), changed_by = cancel_requested_by, reason = coalesce(cancel_reason, 'cancelled')
where id = $1 and owner_id = $2 and epoch = $3 and status = 'running' and cancel_requested_by is not null
returning id
