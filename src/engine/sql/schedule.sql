-- columns: schedule
name, workflow, version, queue, priority, input, labels, every, cron, time_zone, starts_at, ends_at, missed, missed_limit, overlap, jitter,
concurrency_key, paused, problem, next_at, last_at, fired_count, missed_count, skipped_count, changed_at, changed_by

-- name: put_schedule
-- none
-- $1 name text, $2 workflow text, $3 version int, $4 queue text, $5 priority int, $6 input jsonb, $7 labels jsonb, $8 every interval,
-- $9 cron text, $10 time_zone text, $11 starts_at timestamptz, $12 ends_at timestamptz, $13 missed text, $14 missed_limit int,
-- $15 overlap text, $16 jitter interval, $17 next_at timestamptz, $18 actor text, $19 concurrency_key text
--
-- Written again, it keeps its next time unless the rhythm changes: a client that declares its schedules at each start moves none, and
-- what was missed while nobody ran stays due. Paused, it stays paused; a problem is taken for solved.
insert into suture.schedules as s (name, workflow, version, queue, priority, input, labels, every, cron, time_zone, starts_at, ends_at,
                                   missed, missed_limit, overlap, jitter, next_at, changed_by, concurrency_key)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
on conflict (name) do update set
    workflow = excluded.workflow, version = excluded.version, queue = excluded.queue, priority = excluded.priority,
    input = excluded.input, labels = excluded.labels, every = excluded.every, cron = excluded.cron, time_zone = excluded.time_zone,
    starts_at = excluded.starts_at, ends_at = excluded.ends_at, missed = excluded.missed, missed_limit = excluded.missed_limit,
    overlap = excluded.overlap, jitter = excluded.jitter, concurrency_key = excluded.concurrency_key,
    next_at = case when (s.every, s.cron, s.time_zone, s.starts_at, s.ends_at) is not distinct from
                        (excluded.every, excluded.cron, excluded.time_zone, excluded.starts_at, excluded.ends_at)
                   then s.next_at else excluded.next_at end,
    paused = s.paused and s.problem is null, problem = null,
    changed_at = clock_timestamp(), changed_by = excluded.changed_by

-- name: drop_schedule
-- maybe: its name; no row: there was none
-- $1 name text
delete from suture.schedules where name = $1 returning name

-- name: schedules
-- many: by name
select {schedule} from suture.schedules order by name

-- name: find_schedule
-- maybe: the schedule
-- $1 name text
select {schedule} from suture.schedules where name = $1

-- name: lock_schedule
-- maybe: the schedule, and the time
-- $1 name text
select {schedule}, now() as at from suture.schedules where name = $1 for update

-- name: due_schedules
-- many: the schedules that are due, locked, and the time
-- $1 batch int, $2 cron boolean (whether cron expressions can be read here)
--
-- SKIP LOCKED: of two workers that look at once, one has a schedule and the other passes by. Served by schedules_due.
-- What waits for its earlier execution to end is not due until then: it would be looked at again and again before all others.
select {schedule}, now() as at from suture.schedules s
where s.next_at <= now() and not s.paused and (s.cron is null or $2::boolean)
  and not (s.overlap = 'queue' and exists (
      select from suture.workflow_executions e
      where e.labels @> jsonb_build_object('schedule', s.name) and e.labels <> '{}' and e.status in ('enqueued', 'running', 'waiting')))
order by s.next_at
limit $1
for update of s skip locked

-- name: busy_schedules
-- many: those of these schedules of which an execution lives
-- $1 names text[]
--
-- After their rows are locked: what was begun by hand meanwhile is seen here. Requeued and forked executions keep the label and count.
select wanted.name from unnest($1::text[]) as wanted (name)
where exists (
    select from suture.workflow_executions e
    where e.labels @> jsonb_build_object('schedule', wanted.name) and e.labels <> '{}' and e.status in ('enqueued', 'running', 'waiting'))

-- name: advance_schedule
-- none
-- $1 name text, $2 next_at timestamptz, $3 last_at timestamptz, $4 fired int, $5 missed int, $6 skipped int
update suture.schedules
set next_at = $2, last_at = coalesce($3, last_at), fired_count = fired_count + $4, missed_count = missed_count + $5,
    skipped_count = skipped_count + $6
where name = $1

-- name: pause_schedule
-- maybe: its name; no row: there is none
-- $1 name text, $2 actor text, $3 problem text
update suture.schedules
set paused = true, problem = coalesce($3, problem), changed_at = clock_timestamp(), changed_by = $2
where name = $1 returning name

-- name: resume_schedule
-- none
-- $1 name text, $2 next_at timestamptz, $3 actor text
update suture.schedules
set paused = false, problem = null, next_at = $2, changed_at = clock_timestamp(), changed_by = $3
where name = $1
