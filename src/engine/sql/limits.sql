-- name: queues
-- many: the queues with their limits and what is in them, by name
-- $1 name text (null: all)
with counted as (
    select queue as name,
           count(*) filter (where status = 'enqueued' and not parked and run_at <= now()) as due,
           count(*) filter (where status = 'enqueued' and not parked and run_at > now()) as delayed,
           count(*) filter (where status = 'enqueued' and parked) as parked,
           count(*) filter (where status = 'running') as running,
           count(*) filter (where status = 'waiting') as waiting,
           now() - min(run_at) filter (where status = 'enqueued' and not parked and run_at <= now()) as oldest_due
    from suture.workflow_executions
    where status in ('enqueued', 'running', 'waiting') and ($1::text is null or queue = $1)
    group by queue
)
select name, coalesce(q.paused, false) as paused, q.concurrency, q.per_key, q.rate_starts, q.rate_per, q.rate_burst,
       coalesce(q.reason, '') as reason, q.changed_at, q.changed_by, oldest_due,
       coalesce(due, 0) as due, coalesce(delayed, 0) as delayed, coalesce(parked, 0) as parked,
       coalesce(running, 0) as running, coalesce(waiting, 0) as waiting
from counted full join (select * from suture.queues where $1::text is null or name = $1) as q using (name)
order by name

-- name: close_queues
-- none
--
-- Until the transaction ends no claim begins, and it starts when those under way have ended: each claim locks rows of this table, and
-- takes the table's lock before it looks. So a change holds for every claim from its commit on. Others may read meanwhile.
lock table suture.queues in exclusive mode

-- name: pause_queue
-- none
-- $1 name text, $2 paused boolean, $3 actor text, $4 reason text
insert into suture.queues as q (name, paused, changed_by, reason) values ($1, $2, $3, $4)
on conflict (name) do update
    set paused = excluded.paused, changed_at = clock_timestamp(), changed_by = excluded.changed_by, reason = excluded.reason

-- name: limit_queue
-- none
-- $1 name text, $2 concurrency int, $3 per_key int, $4 rate_starts int, $5 rate_per interval, $6 rate_burst int, $7 actor text,
-- $8 reason text
--
-- A new rate begins with a full bucket.
insert into suture.queues as q (name, concurrency, per_key, rate_starts, rate_per, rate_burst, changed_by, reason)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (name) do update
    set concurrency = excluded.concurrency, per_key = excluded.per_key, rate_starts = excluded.rate_starts,
        rate_per = excluded.rate_per, rate_burst = excluded.rate_burst,
        rate_at = case when (q.rate_starts, q.rate_per, q.rate_burst) is not distinct from
                            (excluded.rate_starts, excluded.rate_per, excluded.rate_burst) then q.rate_at else '-infinity' end,
        changed_at = clock_timestamp(), changed_by = excluded.changed_by, reason = excluded.reason

-- name: room_of_key
-- one: how many executions of one key may live in a queue
-- $1 queue text
select suture.room_of_key($1) as room

-- name: unpark_keys
-- one: the last key that was looked at; null: that was all
-- $1 queue text, $2 after text, $3 limit int
select suture.unpark_keys($1, $2, $3) as last

-- name: enqueue_keyed
-- one: the execution, and whether this call created it
-- $1 id uuid, $2 workflow text, $3 version int, $4 queue text, $5 priority int, $6 input jsonb, $7 operation_key text,
-- $8 input_digest bytea (null without a key), $9 labels jsonb, $10 run_at timestamptz, $11 max_attempts int, $12 deadline_at timestamptz,
-- $13 actor text, $14 reason text, $15 forked_from uuid, $16 concurrency_key text, $17 lone boolean (the transaction ends with this)
--
-- As `enqueue`, which looks at nobody else, with a concurrency key. It is parked at once behind others of its key, but not in the midst of
-- a longer transaction: the lock that this needs would keep executions of the key from ending. There the claim parks it.
-- What is parked was judged without the lock: whoever it stands behind may have ended meanwhile. So `unpark` looks again, with it.
with added as (
    insert into suture.workflow_executions as e
        (id, workflow, version, queue, priority, input, operation_key, input_digest, labels, run_at, max_attempts, deadline_at,
         created_by, created_reason, changed_by, reason, forked_from, concurrency_key, parked)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, now()), $11, $12, $13, $14, $13, $14, $15, $16,
            $17::boolean and suture.stands_behind($4, $16, coalesce($10, now()), $5))
    on conflict (operation_key) where operation_key is not null and status in ('enqueued', 'running', 'waiting')
        do update set operation_key = e.operation_key
    returning {execution}, input_digest, (xmax = 0) as created
)
select added.*, case when created and parked then suture.unpark(queue, concurrency_key)::text end as looked from added

-- name: enqueue_many_keyed
-- none
-- $1 ids uuid[], $2 inputs jsonb[], $3 concurrency_keys text[] (null: none), $4 workflow text, $5 version int, $6 queue text,
-- $7 priority int, $8 labels jsonb, $9 run_at timestamptz, $10 actor text, $11 reason text
--
-- Of each key the first stands behind those that were there, and the others behind the first. `unpark` looks again, as above: a key at a
-- time and in their order, since two of these may have the same keys.
with added as (
    insert into suture.workflow_executions
        (id, workflow, version, queue, priority, input, labels, run_at, created_by, created_reason, changed_by, reason, concurrency_key,
         parked)
    select id, $4, $5, $6, $7, input, $8, coalesce($9, now()), $10, $11, $10, $11, key,
           key is not null and (nth > 1 or suture.stands_behind($6, key, coalesce($9, now()), $7))
    from (select id, input, key, row_number() over (partition by key order by id) as nth
          from unnest($1::uuid[], $2::jsonb[], $3::text[]) as given (id, input, key)) as numbered
    order by id
    returning concurrency_key, parked
), keys as materialized (
    select distinct concurrency_key from added where parked order by concurrency_key
)
select count(suture.unpark($6, concurrency_key)::text) from keys

-- name: paused_steps
-- many: the pauses, and how many executions wait for the end of each
select p.step, p.workflow, p.paused_by, p.paused_at, p.reason,
       (select count(*) from suture.held_steps h join suture.workflow_executions e on e.id = h.execution_id
        where e.status = 'waiting' and e.step = h.step
          and suture.covers(p.workflow, h.workflow) and (suture.covers(p.step, h.step) or suture.covers(p.step, h.kind))) as held
from suture.paused_steps p
order by p.step, p.workflow

-- name: pause_steps
-- none
-- $1 step text, $2 workflow text, $3 actor text, $4 reason text
insert into suture.paused_steps (step, workflow, paused_by, reason) values ($1, $2, $3, $4)
on conflict (step, workflow) do update
    set paused_by = excluded.paused_by, paused_at = clock_timestamp(), reason = excluded.reason

-- name: close_steps
-- none
--
-- The pair of `share_steps`, to the end of the transaction: no execution is being suspended, so that all that are can be seen and woken.
select pg_advisory_xact_lock(hashtextextended('suture.paused_steps', 17))

-- name: share_steps
-- none
select pg_advisory_xact_lock_shared(hashtextextended('suture.paused_steps', 17))

-- name: resume_steps
-- maybe: the step; no row: there was no such pause
-- $1 step text, $2 workflow text
delete from suture.paused_steps where step = $1 and workflow = $2 returning step

-- name: tell_steps
-- none
select pg_notify('suture_steps', '')

-- name: find_pause
-- maybe: a pause that covers the step
-- $1 workflow text, $2 step text, $3 kind text
select step, paused_by, reason from suture.paused_steps p
where suture.covers(p.workflow, $1) and (suture.covers(p.step, $2) or suture.covers(p.step, $3))
order by paused_at
limit 1

-- name: note_held
-- none
-- $1 execution uuid, $2 workflow text, $3 step text, $4 kind text
insert into suture.held_steps (execution_id, workflow, step, kind) values ($1, $2, $3, $4)
on conflict (execution_id) do update set step = excluded.step, kind = excluded.kind, held_at = clock_timestamp()

-- name: wake_held
-- many: the ids of the executions that go on, because no pause covers their step any more
-- $1 actor text
with free as materialized (
    select h.execution_id, h.step from suture.held_steps h
    where not exists (select from suture.paused_steps p
                      where suture.covers(p.workflow, h.workflow) and (suture.covers(p.step, h.step) or suture.covers(p.step, h.kind)))
), waiting as materialized (
    select e.id from suture.workflow_executions e join free on e.id = free.execution_id
    where e.status = 'waiting' and e.step = free.step
    order by e.id
    for no key update of e
), forgotten as (
    delete from suture.held_steps h using free where h.execution_id = free.execution_id
)
update suture.workflow_executions e
set status = 'enqueued', run_at = now(), updated_at = now(), changed_xid = suture.xid(), changed_by = $1,
    reason = e.step || ' is paused no longer'
from waiting
where e.id = waiting.id
returning e.id, pg_notify('suture_due', e.queue)::text as notified
