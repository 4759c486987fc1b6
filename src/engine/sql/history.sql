-- name: get
-- maybe: the execution, living or ended
-- $1 id uuid
select {execution} from suture.executions where id = $1

-- name: page
-- many: executions, youngest first
-- $1 statuses text[] (null: all), $2 workflow text, $3 queue text, $4 labels jsonb, $5 before uuid (keyset: ids older than this),
-- $6 created_before timestamptz, $7 created_after timestamptz, $8 limit int
--
-- Ids are UUIDv7: their order is the order of creation, and the primary keys serve the page.
select {execution} from suture.executions
where ($1::text[] is null or status = any ($1))
  and ($2::text is null or workflow = $2)
  and ($3::text is null or queue = $3)
  and ($4::jsonb is null or (labels @> $4 and labels <> '{}'))
  and id < coalesce($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') -- always a bound: a plan for any value starts at the page
  and ($6::timestamptz is null or created_at < $6)
  and ($7::timestamptz is null or created_at >= $7)
order by id desc
limit $8

-- name: timeline
-- many: the moves of an execution, in order
-- $1 execution uuid
select id, at, actor, from_status, to_status, reason, step, epoch from suture.timeline where execution_id = $1 order by id

-- name: cursor
-- one: the oldest transaction that may still be under way
--
-- Not the greatest changed_xid: a transaction with a smaller one may commit after one with a greater one was read.
select pg_snapshot_xmin(pg_current_snapshot())::text as cursor

-- name: changed_since
-- many: the executions with the label that moved in the cursor's transaction or a later one
-- $1 cursor text, $2 label text
select {execution} from suture.executions where labels ? $2 and labels <> '{}' and changed_xid >= $1::text::bigint

-- name: with_labels
-- many: executions that carry these labels, youngest first
-- $1 labels jsonb, $2 limit int
select {execution} from suture.executions where labels @> $1 and labels <> '{}' order by id desc limit $2

-- name: workflow_statistics
-- many: how executions ended, by workflow
-- $1 since interval, $2 until timestamptz (null: now), $3 workflow text (null: all)
--
-- As the view suture.workflows_last_day, for any time. Served by history_finished and executions_ended.
select workflow, count(*) as ended,
       count(*) filter (where status = 'completed') as completed,
       count(*) filter (where status = 'error') as failed,
       count(*) filter (where status = 'cancelled') as cancelled,
       count(*) filter (where attempt > 1) as retried,
       count(*) filter (where crashes > 0) as crashed,
       percentile_cont(0.5) within group (order by queued_seconds) as queued_p50,
       percentile_cont(0.95) within group (order by queued_seconds) as queued_p95,
       percentile_cont(0.5) within group (order by run_seconds) as run_p50,
       percentile_cont(0.95) within group (order by run_seconds) as run_p95,
       percentile_cont(0.99) within group (order by run_seconds) as run_p99,
       max(run_seconds) as run_max
from suture.ended
where finished_at > coalesce($2, now()) - $1::interval and finished_at <= coalesce($2::timestamptz, now())
  and ($3::text is null or workflow = $3)
group by workflow order by workflow

-- name: step_statistics
-- many: how long steps took, by workflow and step
-- $1 since interval, $2 until timestamptz (null: now), $3 workflow text (null: all)
select e.workflow, o.step_id as step, o.kind, count(*) as finished, count(*) filter (where o.attempts > 1) as retried,
       sum(o.attempts)::bigint as attempts,
       percentile_cont(0.5) within group (order by o.seconds) as p50,
       percentile_cont(0.95) within group (order by o.seconds) as p95,
       percentile_cont(0.99) within group (order by o.seconds) as p99,
       max(o.seconds) as max
from suture.ended e join suture.finished_steps o on o.execution_id = e.id
where e.finished_at > coalesce($2, now()) - $1::interval and e.finished_at <= coalesce($2::timestamptz, now())
  and ($3::text is null or e.workflow = $3)
group by e.workflow, o.step_id, o.kind order by p95 desc, e.workflow, o.step_id

-- name: failures
-- many: executions that ended in error, by workflow, reason and step
-- $1 since interval, $2 until timestamptz (null: now), $3 workflow text (null: all)
select workflow, reason, step, count(*) as failed, min(finished_at) as first_at, max(finished_at) as last_at,
       (array_agg(id order by finished_at desc))[1] as last_id,
       (array_agg(message order by finished_at desc))[1] as last_message
from suture.ended
where status = 'error'
  and finished_at > coalesce($2, now()) - $1::interval and finished_at <= coalesce($2::timestamptz, now())
  and ($3::text is null or workflow = $3)
group by workflow, reason, step order by failed desc, workflow, reason, step

-- name: slow_steps
-- many: the longest steps, longest first
-- $1 since interval, $2 until timestamptz (null: now), $3 workflow text (null: all), $4 limit int
select o.execution_id, e.workflow, o.step_id as step, o.kind, o.attempts, o.seconds, o.finished_at
from suture.ended e join suture.finished_steps o on o.execution_id = e.id
where e.finished_at > coalesce($2, now()) - $1::interval and e.finished_at <= coalesce($2::timestamptz, now())
  and ($3::text is null or e.workflow = $3) and o.kind not in ('sleep', 'wait')
order by o.seconds desc
limit $4
