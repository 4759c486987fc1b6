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
