-- name: glance_queues
-- many: the queues with what is due in them, at most 100, the fullest first
-- $1 most int: rows that are counted of each queue at most
--
-- A queue's name is found by skipping through the indexes that claims read, and its rows are counted up to a bound: it costs the same
-- with ten and with ten million in the backlog. The first in line are counted first, so `oldest_seconds` is theirs. The parked are counted
-- among the first that live with a key, in the order of the keys.
with recursive plain (queue) as (
    (select queue from suture.workflow_executions where status = 'enqueued' and concurrency_key is null order by queue limit 1)
    union all
    select (select e.queue from suture.workflow_executions e
            where e.status = 'enqueued' and e.concurrency_key is null and e.queue > plain.queue order by e.queue limit 1)
    from plain where plain.queue is not null
), keyed (queue) as (
    (select queue from suture.workflow_executions where status in ('enqueued', 'running', 'waiting') and concurrency_key is not null
     order by queue limit 1)
    union all
    select (select e.queue from suture.workflow_executions e
            where e.status in ('enqueued', 'running', 'waiting') and e.concurrency_key is not null and e.queue > keyed.queue
            order by e.queue limit 1)
    from keyed where keyed.queue is not null
), held as (
    select queue, count(*) as running from suture.workflow_executions where status = 'running' group by queue
), names (name) as (
    select queue from plain where queue is not null union select queue from keyed where queue is not null
    union select queue from held union select name from suture.queues
)
select names.name, coalesce(q.paused, false) as paused, q.concurrency, q.per_key, q.rate_starts,
       extract(epoch from q.rate_per)::float8 as rate_seconds, coalesce(held.running, 0) as running,
       line.due, line.delayed, line.oldest_seconds, line.more, behind.parked, behind.more as parked_more
from names
left join suture.queues q using (name)
left join held on held.queue = names.name
cross join lateral (
    select count(*) filter (where run_at <= now()) as due, count(*) filter (where run_at > now()) as delayed,
           extract(epoch from now() - min(run_at) filter (where run_at <= now()))::float8 as oldest_seconds,
           greatest(count(*) filter (where plain), count(*) filter (where not plain)) >= $1 as more
    from ((select run_at, true as plain from suture.workflow_executions e
           where e.queue = names.name and e.status = 'enqueued' and e.concurrency_key is null
           order by suture.urgency(run_at, priority) limit $1)
          union all
          (select run_at, false from suture.workflow_executions e
           where e.queue = names.name and e.status = 'enqueued' and e.concurrency_key is not null and not e.parked
           order by suture.urgency(run_at, priority) limit $1)) as first
) as line
cross join lateral (
    select count(*) filter (where parked) as parked, count(*) >= $1 as more
    from (select e.parked from suture.workflow_executions e
          where e.queue = names.name and e.status in ('enqueued', 'running', 'waiting') and e.concurrency_key is not null
          order by e.concurrency_key, e.parked limit $1) as first
) as behind
where q.name is not null or line.due + line.delayed + behind.parked + coalesce(held.running, 0) > 0
order by line.due desc, held.running desc nulls last, names.name
limit 100

-- name: glance_workers
-- many: the workers that have not stopped, at most 100, the busiest first
with held as (
    select owner_id, count(*) as running from suture.workflow_executions where status = 'running' group by owner_id
)
select w.id, w.name, w.queues, w.presence, w.absent_since is not null as absent, extract(epoch from now() - w.beat_at)::float8 as beat_seconds,
       coalesce(held.running, 0) as running
from suture.workers w left join held on held.owner_id = w.id
where w.stopped_at is null
order by running desc, beat_seconds
limit 100

-- name: glance_work
-- one: the database's time, what ended in the last ten seconds, open dead letters, and what has run longest since its claim
select now() as at,
       (select count(*) from suture.dead_letters where requeued_as is null and discarded_at is null) as dead_letters,
       recent.ended, recent.failed,
       (select coalesce(json_agg(longest), '[]') from (
           select e.id, e.workflow, e.queue, e.step, w.name as worker, extract(epoch from now() - e.updated_at)::float8 as seconds, e.crashes
           from suture.workflow_executions e left join suture.workers w on w.id = e.owner_id
           where e.status = 'running'
           order by e.updated_at
           limit 10) as longest) as longest
from (select count(*) as ended, count(*) filter (where status = 'error') as failed
      from (select status from suture.workflow_executions
            where status in ('completed', 'error', 'cancelled') and finished_at > now() - interval '10 seconds' limit 200000) as last) as recent
