-- name: look
-- one: whether a sweep has something to do, whether a schedule is due; and what the others are told: whether anything runs, how many workers
-- are present, seconds until the next thing is due
-- $1 grace interval, $2 tell boolean (whether the asker hears the others)
--
-- Reads the first row of each index of things to come, and what runs. Nothing is decided here: each statement of a sweep looks again.
-- One NOTIFY for all: it tells the fleet that somebody has looked. Hinted at as well is postponed work that became due a moment ago, a moment
-- longer than the longest pause between two looks, and work that nobody takes although it is due: workers that hear poll seldom.
with locks as materialized (
    select classid, objid from pg_locks
    where locktype = 'advisory' and granted and objsubid = 1 and database = (select oid from pg_database where datname = current_database())
), worker as materialized (
    select w.id, w.absent_since, exists (
        select from locks l
        where l.classid = ((hashtextextended(w.id::text, 1) >> 32) & 4294967295)::oid
          and l.objid = (hashtextextended(w.id::text, 1) & 4294967295)::oid
    ) as here
    from suture.workers w
    where w.presence and w.stopped_at is null
), come as materialized (
    select (select min(w.wake_at) from suture.workflow_waits w where w.outcome is null and w.wake_at > now()) as wake,
           (select min(e.deadline_at) from suture.workflow_executions e
            where e.deadline_at > now() and e.status in ('enqueued', 'running', 'waiting')) as deadline,
           (select min(e.start_by) from suture.workflow_executions e
            where e.start_by > now() and e.started_at is null and e.status = 'enqueued') as start,
           (select min(e.run_at) from suture.workflow_executions e
            where e.status = 'enqueued' and e.run_at > e.updated_at and e.run_at > now()) as later,
           (select min(s.next_at) from suture.schedules s where s.next_at > now() and not s.paused) as schedule,
           (select min(suture.next_token(q)) from suture.queues q where q.rate_starts is not null) as token,
           (select min(worker.absent_since) + $1::interval from worker where not worker.here and worker.absent_since > now() - $1::interval)
               as absent
), seen as materialized (
    select exists (select from worker where worker.here = (worker.absent_since is not null))
           or exists (select from suture.workflow_executions e
                      where e.status = 'running'
                        and (e.lease_expires < now() or e.owner_id in (select id from worker where absent_since < now() - $1::interval)))
           or exists (select from suture.workflow_waits w join suture.workflow_executions e on e.id = w.execution_id
                      where w.outcome is null and w.wake_at <= now() and e.status = 'waiting' and e.step = w.step_id)
           or exists (select from suture.workflow_executions e
                      where e.deadline_at <= now() and e.status in ('enqueued', 'waiting', 'running')
                        and (e.status <> 'running' or e.cancel_requested_by is null))
           or exists (select from suture.workflow_executions e
                      where e.start_by <= now() and e.started_at is null and e.status = 'enqueued')
           or exists (select from suture.tidings) as due,
           exists (select from suture.schedules s where s.next_at <= now() and not s.paused) as schedules,
           exists (select from suture.workflow_executions e where e.status = 'running') as runs,
           (select count(*) from worker where worker.here) as present,
           (select extract(epoch from least(wake, deadline, start, later, schedule, token, absent) - now())::float8 from come) as next
), hinted as materialized (
    select pg_notify('suture_due', queue) from (
        select distinct e.queue from suture.workflow_executions e
        where e.status = 'enqueued' and e.run_at > e.updated_at and e.run_at <= now() and e.run_at > now() - interval '5 seconds'
        union
        select q.name from suture.queues q -- a token has come, or a place has become free, and nobody was told
        where not q.paused and (q.concurrency is not null or q.rate_starts is not null) and suture.may_be_claimed(q)
        union
        select served.queue -- a hint was lost: due for a second, and nobody has taken it
        from (select distinct unnest(w.queues) as queue from suture.workers w where w.stopped_at is null) as served
        where served.queue not in (select q.name from suture.queues q
                                   where q.paused or q.concurrency is not null or q.rate_starts is not null) -- full, it is no loss
          and (exists (select from suture.workflow_executions e
                       where e.status = 'enqueued' and e.concurrency_key is null and e.queue = served.queue and e.run_at <= now()
                         and suture.urgency(e.run_at, e.priority) > now() - interval '10 seconds' - timestamptz '2000-01-01 00:00:00+00'
                         and suture.urgency(e.run_at, e.priority) < now() - interval '1 second' - timestamptz '2000-01-01 00:00:00+00')
               or exists (select from suture.workflow_executions e
                          where e.status = 'enqueued' and e.concurrency_key is not null and not e.parked and e.queue = served.queue
                            and e.run_at <= now()
                            and suture.urgency(e.run_at, e.priority) > now() - interval '10 seconds' - timestamptz '2000-01-01 00:00:00+00'
                            and suture.urgency(e.run_at, e.priority) < now() - interval '1 second' - timestamptz '2000-01-01 00:00:00+00'))
    ) as ripe
)
select due, schedules, runs, present, next, (select count(*) from hinted) as hints,
       case when $2 then pg_notify('suture_looked', format('%s %s %s', runs::int, present, coalesce(next::text, 'inf'))) end as told
from seen

-- name: raise_floors
-- many: seconds that the search took; none when somebody searched a moment ago: the whole fleet spends a tenth of a core on it at most
--
-- The first that waits in each queue, and no less than a second ago: what is being enqueued may be a little older than what is there.
-- Reads what every claim would have to read without a floor.
with last as materialized (
    select max(f.at + greatest(interval '1 second', 10 * f.took)) as until from suture.floors f
)
insert into suture.floors as f (queue, urgency, at, took)
select served.queue, least(first.urgency, now() - interval '1 second' - timestamptz '2000-01-01 00:00:00+00'), clock_timestamp(),
       clock_timestamp() - statement_timestamp()
from (select distinct unnest(w.queues) as queue from suture.workers w where w.stopped_at is null) as served
left join lateral (
    select suture.urgency(e.run_at, e.priority) as urgency from suture.workflow_executions e
    where e.status = 'enqueued' and e.concurrency_key is null and e.queue = served.queue and e.run_at <= now()
      and suture.urgency(e.run_at, e.priority) <= suture.latest_due()
    order by suture.urgency(e.run_at, e.priority)
    limit 1
) as first on true
where coalesce((select until < now() from last), true)
order by served.queue
on conflict (queue) do update set urgency = excluded.urgency, at = excluded.at, took = excluded.took
returning extract(epoch from f.took)::float8 as took

-- name: drop_floors
-- none
delete from suture.floors
