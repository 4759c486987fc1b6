-- name: put_schedule
-- none
-- $1 name text, $2 workflow text, $3 version int, $4 queue text, $5 input jsonb, $6 every interval, $7 first_at timestamptz, $8 actor text
--
-- Written again, it keeps its rhythm unless the interval changes: a client that declares its schedules at each start moves none.
insert into suture.schedules as s (name, workflow, version, queue, input, every, next_at, changed_by)
values ($1, $2, $3, $4, $5, $6, coalesce($7, now() + $6), $8)
on conflict (name) do update set
    workflow = excluded.workflow, version = excluded.version, queue = excluded.queue, input = excluded.input, every = excluded.every,
    next_at = case when s.every = excluded.every and $7::timestamptz is null then s.next_at else excluded.next_at end,
    changed_at = clock_timestamp(), changed_by = excluded.changed_by

-- name: drop_schedule
-- maybe: its name; no row: there was none
-- $1 name text
delete from suture.schedules where name = $1 returning name

-- name: schedules
-- many: by name
select name, workflow, version, queue, input, every, next_at, changed_by from suture.schedules order by name

-- name: due_schedules
-- many: the schedules that are due, locked
-- $1 batch int
--
-- SKIP LOCKED: of two workers that look at once, one has a schedule and the other passes by. Served by schedules_due.
select name, workflow, version, queue, input, next_at from suture.schedules
where next_at <= now()
order by next_at
limit $1
for update skip locked

-- name: advance_schedules
-- none
-- $1 names text[]
--
-- To the first time of the rhythm that lies ahead: what was missed while no worker ran is made up for once, not many times.
update suture.schedules
set next_at = next_at + every * (floor(extract(epoch from now() - next_at) / extract(epoch from every)) + 1)
where name = any ($1)
