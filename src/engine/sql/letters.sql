-- columns: dead_letter
execution_id, workflow, queue, reason, error, step, attempts, crashes, dead_at, requeued_as, discarded_at, discarded_by, discard_reason

-- name: dead_letters
-- many: youngest first
-- $1 state text (open, requeued or discarded; null: all), $2 workflow text, $3 reason text, $4 queue text, $5 before uuid (keyset),
-- $6 limit int
--
-- Served by dead_letters_youngest.
select {dead_letter} from suture.dead_letters
where case $1 when 'open' then requeued_as is null and discarded_at is null
              when 'requeued' then requeued_as is not null
              when 'discarded' then discarded_at is not null
              else $1::text is null end
  and ($2::text is null or workflow = $2)
  and ($3::text is null or reason = $3)
  and ($4::text is null or queue = $4)
  and ($5::uuid is null
       or (dead_at, execution_id) < (select b.dead_at, b.execution_id from suture.dead_letters b where b.execution_id = $5))
order by dead_at desc, execution_id desc
limit $6

-- name: find_letter
-- maybe: the letter
-- $1 execution uuid
select {dead_letter} from suture.dead_letters where execution_id = $1

-- name: mark_requeued
-- maybe: the id, when it was open
-- $1 execution uuid, $2 successor uuid
update suture.dead_letters set requeued_as = $2
where execution_id = $1 and requeued_as is null and discarded_at is null
returning execution_id

-- name: discard_letter
-- maybe: the letter, when it was open
-- $1 execution uuid, $2 actor text, $3 reason text
update suture.dead_letters set discarded_at = clock_timestamp(), discarded_by = $2, discard_reason = $3
where execution_id = $1 and requeued_as is null and discarded_at is null
returning {dead_letter}

-- name: discard_letters
-- many: the ids of those that were open
-- $1 workflow text, $2 failed_for text, $3 queue text, $4 actor text, $5 reason text
update suture.dead_letters set discarded_at = clock_timestamp(), discarded_by = $4, discard_reason = $5
where requeued_as is null and discarded_at is null
  and ($1::text is null or workflow = $1) and ($2::text is null or reason = $2) and ($3::text is null or queue = $3)
returning execution_id

-- name: find_step
-- maybe: when and how the step ended, for good
-- $1 execution uuid, $2 step text
select kind, finished_at from suture.operation_outputs where execution_id = $1 and step_id = $2

-- name: insert_fork
-- one: the successor, or the living execution that has its operation key; and whether it was created
-- $1 source uuid, $2 id uuid, $3 keyed boolean (whether it takes the operation key over), $4 version int (null: the same), $5 actor text,
-- $6 reason text
--
-- Not parked, since its transaction goes on: see `enqueue_keyed`. No child any more, whoever started it.
insert into suture.workflow_executions as e
    (id, workflow, version, queue, priority, input, operation_key, input_digest, labels, concurrency_key, max_attempts, run_timeout,
     created_by, created_reason, changed_by, reason, forked_from)
select $2, workflow, coalesce($4, version), queue, priority, input, case when $3 then operation_key end,
       case when $3 then input_digest end, labels, concurrency_key, max_attempts, run_timeout, $5, $6, $5, $6, id
from suture.executions where id = $1
on conflict (operation_key) where operation_key is not null and status in ('enqueued', 'running', 'waiting')
    do update set operation_key = e.operation_key
returning {execution}, (xmax = 0) as created

-- name: copy_checkpoints
-- none
-- $1 from uuid, $2 to uuid, $3 from_step text (null: all), $4 until timestamptz
--
-- What was recorded before the step's own record was, at the latest with it: nothing of that can have needed the step.
-- A child, or a map of children, that the execution died of is not kept, nor a child that was cancelled with it: it is started again.
insert into suture.operation_outputs (execution_id, step_id, kind, output, attempts, owner_id, epoch, started_at, finished_at)
select $2, step_id, kind, o.output, attempts, o.owner_id, o.epoch, o.started_at, o.finished_at
from suture.operation_outputs o join suture.executions e on e.id = o.execution_id
where execution_id = $1 and step_id is distinct from $3 and ($4::timestamptz is null or o.finished_at <= $4)
  and not case kind
      when 'child' then coalesce((
          select case r.status when 'completed' then false when 'error' then r.step_id = e.step else true end
          from suture.child_results r where r.parent_id = (o.output ->> 'parent')::uuid and r.step_id = o.step_id and r.item = 0
      ), e.status <> 'completed')
      when 'map' then o.step_id = e.step and exists (
          select from suture.child_results r
          where r.parent_id = (o.output ->> 'parent')::uuid and r.step_id = o.step_id and r.status <> 'completed')
      else false end

-- name: copy_results
-- none
-- $1 from uuid, $2 to uuid, $3 until timestamptz
--
-- Of maps that were under way, or failed, when the execution did: the children that completed need not run again. Not of a map that began
-- when the step had failed that the execution died of. What is no map has a record of kind `child`.
insert into suture.child_results (parent_id, step_id, item, child_id, input_digest, status, output, error, ended_at)
select $2, step_id, item, child_id, input_digest, status, output, error, ended_at
from suture.child_results r
where parent_id = $1 and status = 'completed'
  and not exists (select from suture.operation_outputs n where n.execution_id = $2 and n.step_id = r.step_id)
  and not exists (select from suture.operation_outputs o where o.execution_id = $1 and o.step_id = r.step_id and o.kind = 'child')
  and ($3::timestamptz is null or exists (
      select from suture.child_results b where b.parent_id = $1 and b.step_id = r.step_id and b.ended_at <= $3))

-- name: copy_events
-- none
-- $1 from uuid, $2 to uuid
--
-- But for those that answered a wait which is recorded there and not here.
insert into suture.events (execution_id, name, payload, emitted_by, emitted_at)
select $2, name, payload, emitted_by, emitted_at from suture.events v
where execution_id = $1 and not exists (
    select from suture.workflow_waits w
    join suture.operation_outputs o on o.execution_id = w.execution_id and o.step_id = w.step_id
    where w.execution_id = $1 and w.event = v.name and w.outcome = 'event'
      and not exists (select from suture.operation_outputs n where n.execution_id = $2 and n.step_id = w.step_id))
