-- name: depth
-- many: how many executions are in each queue and state, and since when the oldest; of the enqueued also how many are due, delayed and parked
-- (behind others with their concurrency key), and for how long the first has been due
select queue, status, count(*) as count, extract(epoch from now() - min(updated_at))::float8 as oldest_seconds,
       count(*) filter (where status = 'enqueued' and not parked and run_at <= now()) as due,
       count(*) filter (where status = 'enqueued' and not parked and run_at > now()) as delayed,
       count(*) filter (where status = 'enqueued' and parked) as parked,
       extract(epoch from now() - min(run_at) filter (where status = 'enqueued' and not parked and run_at <= now()))::float8 as due_seconds
from suture.workflow_executions
where status in ('enqueued', 'running', 'waiting')
group by queue, status order by queue, status

-- name: steered_queues
-- many: the queues that are paused or have limits, at most 500, the paused first
select name, paused, concurrency, per_key, rate_starts / extract(epoch from rate_per)::float8 as starts_per_second, reason, changed_at, changed_by
from suture.queues
where paused or concurrency is not null or per_key is not null or rate_starts is not null
order by paused desc, name
limit 500

-- name: schedule_times
-- many: when each schedule fires and what it missed, at most 500, first those that the engine paused, then by their next time
select name, paused, problem, next_at, last_at, fired_count, missed_count, skipped_count
from suture.schedules
order by problem is null, next_at, name
limit 500

-- name: living_workers
-- many: the workers that have not stopped, with the age of their last beat and what they hold
select w.id, w.name, w.version, w.queues, w.presence, extract(epoch from now() - w.beat_at)::float8 as beat_seconds,
       (select count(*) from suture.workflow_executions e where e.owner_id = w.id and e.status = 'running') as running
from suture.workers w
where w.stopped_at is null
order by w.beat_at desc
limit 1000

-- name: endings
-- many: how executions ended in the last hour, by workflow and attempt
select workflow, attempt, count(*) as ended, count(*) filter (where status = 'error') as failed
from suture.executions
where finished_at > now() - interval '1 hour'
group by workflow, attempt order by workflow, attempt

-- name: latency
-- one: seconds from creation to the first claim, over the last hour; null when nothing started
select percentile_cont(array[0.5, 0.95, 0.99]) within group (order by extract(epoch from started_at - created_at)) as seconds,
       count(*) as started
from suture.executions
where started_at > now() - interval '1 hour' and run_at <= started_at + interval '1 hour'

-- name: dead_count
-- one: dead letters that nobody has requeued or discarded
select count(*) as count from suture.dead_letters where requeued_as is null and discarded_at is null

-- name: unclaimable
-- many: enqueued workflows that are overdue, with the newest version asked for
-- $1 age interval
select workflow, max(version) as version, count(*) as count from suture.workflow_executions
where status = 'enqueued' and run_at < now() - $1::interval group by workflow

-- name: ping
-- one: the database's time
select now() as at
