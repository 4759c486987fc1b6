-- name: start_child
-- maybe: the checkpoint that names the child, this call's or an earlier one's; no row: the operation key is taken
-- $1 parent uuid, $2 owner uuid, $3 epoch bigint, $4 step text, $5 child uuid, $6 workflow text, $7 version int, $8 queue text,
-- $9 priority int, $10 input jsonb, $11 operation_key text, $12 input_digest bytea, $13 labels jsonb, $14 run_timeout interval,
-- $15 queue_timeout interval, $16 actor text, $17 output jsonb (the checkpoint), $18 started_at timestamptz, $19 concurrency_key text
--
-- Under the parent's row lock, taken by `lock_held` in the same transaction: the child and the checkpoint commit together, and a second
-- try after a lost answer finds the first one's. It is not parked behind others of its concurrency key: see `enqueue_keyed`.
with earlier as (
    select output from suture.operation_outputs where execution_id = $1 and step_id = $4
), child as (
    insert into suture.workflow_executions
        (id, workflow, version, queue, priority, input, operation_key, input_digest, labels, run_timeout, start_by,
         parent_id, parent_step, created_by, created_reason, changed_by, reason, concurrency_key)
    select $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, now() + $15, $1, $4, $16, 'started by its parent', $16, 'started by its parent', $19
    where not exists (select from earlier)
    on conflict (operation_key) where operation_key is not null and status in ('enqueued', 'running', 'waiting') do nothing
    returning id
), marked as (
    update suture.workflow_executions set has_children = true where id = $1 and not has_children and exists (select from child)
), kept as (
    insert into suture.operation_outputs (execution_id, step_id, kind, output, owner_id, epoch, started_at)
    select $1, $4, 'child', $17, $2, $3, $18 from child
    returning output
)
select output from earlier union all select output from kept

-- name: find_child_result
-- maybe: how the child ended; no row: it has not
-- $1 parent uuid, $2 step text
select step_id, item, child_id, status, output, error from suture.child_results where parent_id = $1 and step_id = $2 and item = 0

-- name: child_results
-- many: how the children of these steps ended, as far as they have; of a map in the order of its inputs
-- $1 parent uuid, $2 steps text[]
select step_id, item, child_id, status, output, error
from suture.child_results where parent_id = $1 and step_id = any ($2) order by step_id, item

-- name: find_map
-- maybe: whether the map is over; no row: it has not begun
-- $1 parent uuid, $2 step text
select ended = started and (started = total or (failed > 0 and not collects)) as over
from suture.fan_outs where parent_id = $1 and step_id = $2

-- name: inherited_results
-- many: the items that need not be done again
-- $1 parent uuid, $2 step text, $3 inputs jsonb[]
--
-- Those that a requeue has handed on (see `copy_results`), as far as they are results of the same inputs; the others go.
with given as materialized (
    select n::int - 1 as item, sha256(convert_to(input::text, 'UTF8')) as digest
    from unnest($3::jsonb[]) with ordinality as g (input, n)
), outdated as (
    delete from suture.child_results r
    where r.parent_id = $1 and r.step_id = $2
      and not exists (select from given where given.item = r.item and given.digest = r.input_digest and r.status = 'completed')
)
select r.item
from suture.child_results r join given on given.item = r.item and given.digest = r.input_digest
where r.parent_id = $1 and r.step_id = $2 and r.status = 'completed'

-- name: open_map
-- none
-- $1 parent uuid, $2 step text, $3 workflow text, $4 version int, $5 queue text, $6 priority int, $7 labels jsonb, $8 concurrency int,
-- $9 total int, $10 collects boolean, $11 actor text
with marked as (
    update suture.workflow_executions set has_children = true where id = $1 and not has_children
)
insert into suture.fan_outs (parent_id, step_id, workflow, version, queue, priority, labels, concurrency, total, collects, actor)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)

-- name: put_inputs
-- none
-- $1 parent uuid, $2 step text, $3 items int[], $4 inputs jsonb[], $5 chunk int (inputs a row), $6 concurrency_keys text[] (null: none)
insert into suture.fan_out_inputs (parent_id, step_id, chunk, items, inputs, concurrency_keys)
select $1, $2, (n - 1) / $5, array_agg(item order by n), array_agg(input order by n),
       case when $6::text[] is not null then array_agg(key order by n) end
from unnest($3::int[], $4::jsonb[], $6::text[]) with ordinality as given (item, input, key, n)
group by (n - 1) / $5

-- name: close_map
-- none
-- $1 parent uuid, $2 step text
delete from suture.fan_outs where parent_id = $1 and step_id = $2

-- name: tidings
-- many: the kinds of tidings that nobody has told
select distinct kind from suture.tidings

-- name: take_endings
-- many: children that ended and whose parents do not know it, locked and gone
-- $1 batch int
--
-- SKIP LOCKED: of two that look at once, each takes its part. A transaction that fails puts them back.
delete from suture.tidings
where id = any (array(select id from suture.tidings where kind = 'child ended' order by id limit $1 for update skip locked))
returning parent_id, step_id, failed

-- name: lock_parents
-- many: the living among them, locked in the order of their ids
-- $1 ids uuid[]
--
-- In a statement of its own: whoever suspends a parent holds this lock, so that afterwards either the child's end was seen by the parent,
-- or the parent is seen to wait.
select id, status, step from suture.workflow_executions
where id = any ($1) and status in ('enqueued', 'running', 'waiting')
order by id
for no key update

-- name: count_endings
-- many: the maps that moved, and how many children each may start now
-- $1 parents uuid[], $2 steps text[], $3 ended int[], $4 failed int[]
--
-- Under the parents' row locks.
update suture.fan_outs f
set ended = f.ended + w.ended, failed = f.failed + w.failed
from unnest($1::uuid[], $2::text[], $3::int[], $4::int[]) as w (parent, step, ended, failed)
where f.parent_id = w.parent and f.step_id = w.step
returning f.parent_id, f.step_id, f.queue, f.started, f.failed > 0 and not f.collects as stopped, f.ended = f.started as idle,
          f.failed = w.failed as first_failure,
          case when f.failed > 0 and not f.collects then 0 else least(f.total - f.started, f.concurrency - (f.started - f.ended)) end as room

-- name: feed_map
-- none
-- $1 parents uuid[], $2 steps text[], $3 slots int[] (the n-th input of those to be done), $4 children uuid[], $5 chunk int
--
-- Under the parents' row locks. Each chunk is unpacked once, however many of its inputs are taken.
with wanted as materialized (
    select w.parent, w.step, w.slot, w.child from unnest($1::uuid[], $2::text[], $3::int[], $4::uuid[]) as w (parent, step, slot, child)
), counted as (
    update suture.fan_outs f set started = f.started + n.count
    from (select parent, step, count(*)::int as count from wanted group by parent, step) as n
    where f.parent_id = n.parent and f.step_id = n.step
)
insert into suture.workflow_executions
    (id, workflow, version, queue, priority, input, labels, parent_id, parent_step, parent_item, created_by, created_reason, changed_by, reason,
     concurrency_key)
select w.child, f.workflow, f.version, f.queue, f.priority, g.input, f.labels, w.parent, w.step, g.item, f.actor, 'started by its parent',
       f.actor, 'started by its parent', g.key
from (select distinct parent, step, slot / $5 as chunk from wanted) as opened
join suture.fan_outs f on f.parent_id = opened.parent and f.step_id = opened.step
join suture.fan_out_inputs c on c.parent_id = opened.parent and c.step_id = opened.step and c.chunk = opened.chunk
cross join lateral unnest(c.items, c.inputs, c.concurrency_keys) with ordinality as g (item, input, key, n)
join wanted w on w.parent = opened.parent and w.step = opened.step and w.slot = opened.chunk * $5 + g.n - 1

-- name: tell_failed_maps
-- none
-- $1 parents uuid[], $2 steps text[]
--
-- The siblings of a failed child are cancelled by `cancel_orphans`, in a transaction that holds no parent's lock.
insert into suture.tidings (kind, parent_id, step_id)
select 'map failed', parent, step from unnest($1::uuid[], $2::text[]) as f (parent, step)

-- name: wake_parents
-- many: the ids that go on
-- $1 ids uuid[], $2 actor text
--
-- Under their row locks.
update suture.workflow_executions e
set status = 'enqueued', run_at = now(), updated_at = now(), changed_xid = suture.xid(), changed_by = $2,
    reason = 'ended: ' || e.step
where e.id = any ($1) and e.status = 'waiting'
returning e.id, pg_notify('suture_due', e.queue)::text as notified

-- name: cancel_orphans
-- one: how many tidings were told, and how many children are cancelled, or asked to stop where somebody runs them
-- $1 batch int
--
-- As `cancel`, for the living children of whoever ended in error or was cancelled, and for the siblings of a failed child. A grandchild
-- follows when its parent has ended: that end is told in the same way. The parent had ended before this statement began, so that nobody
-- can start another child; children's rows alone are locked, in the order of their ids.
with told as materialized (
    delete from suture.tidings
    where id = any (array(select id from suture.tidings where kind <> 'child ended' order by id limit $1 for update skip locked))
    returning kind, parent_id, step_id
), closed as (
    delete from suture.fan_outs f using told where told.kind = 'parent ended' and f.parent_id = told.parent_id
), orphans as materialized (
    select e.id, told.kind
    from suture.workflow_executions e
    join told on told.parent_id = e.parent_id and (told.step_id is null or told.step_id = e.parent_step)
    where e.parent_id = any (array(select parent_id from told)) and e.status in ('enqueued', 'running', 'waiting')
    order by e.id
    for no key update of e
), cancelled as (
    update suture.workflow_executions e
    set status = case when e.status = 'running' then e.status else 'cancelled' end,
        finished_at = case when e.status = 'running' then null else now() end,
        cancel_requested_by = coalesce(cancel_requested_by, 'task ' || e.parent_id),
        cancel_reason = coalesce(cancel_reason, orphans.kind),
        updated_at = now(),
        changed_xid = case when e.status = 'running' then changed_xid else suture.xid() end,
        changed_by = case when e.status = 'running' then changed_by else 'task ' || e.parent_id end,
        reason = case when e.status = 'running' then reason else orphans.kind end
    from orphans
    where e.id = orphans.id and e.status in ('enqueued', 'running', 'waiting')
    returning pg_notify('suture_cancel', e.id::text)
)
select (select count(*) from told) as told, (select count(*) from cancelled) as cancelled
