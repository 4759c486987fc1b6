-- Limits, changed live: of what runs at once in a queue and for a key, of starts over time; and steps that nobody may begin for now.
--
-- A limit is a predicate over rows, looked at by each claim under a lock: there is no counter that could drift, and what a lost worker
-- held comes back with the rows that recovery takes from it.
--
-- Order of urgency: an execution counts as due a minute earlier for each point of its priority, a day at most (a negative one: later, an
-- hour at most). The order between two rows never changes, so that an index serves it, and yet nobody starves: whoever has waited longer
-- than another's priority is worth goes first.
--
-- The key of an execution is held from its first claim to its end, through waits, retries and recoveries: by the rows of executions_of_key
-- that have started_at. Whoever cannot have it is parked: out of the indexes that claims read, and back when an execution of the key ends.
-- Two locks keep a parked one from being forgotten: who parks and who ends both hold the key's advisory lock while they look.

alter table suture.workflow_executions
    add column concurrency_key text check (concurrency_key <> ''),
    add column parked boolean not null default false check (not parked or (concurrency_key is not null and started_at is null));
alter table suture.workflow_history
    add column concurrency_key text,
    add column parked boolean not null default false;
create or replace view suture.executions as
    select * from suture.workflow_executions union all select * from suture.workflow_history;

-- rate_*: a bucket of rate_burst tokens that gains rate_starts in each rate_per. It is full when rate_at lies as far back as it takes to
-- fill it, and empty when rate_at is now.
alter table suture.queues
    add column reason      text        not null default '',
    add column concurrency integer     check (concurrency > 0),
    add column per_key     integer     check (per_key > 0),
    add column rate_starts integer     check (rate_starts > 0),
    add column rate_per    interval    check (rate_per > interval '0'),
    add column rate_burst  integer     check (rate_burst > 0),
    add column rate_at     timestamptz not null default '-infinity',
    add constraint has_a_whole_rate check ((rate_starts is null) = (rate_per is null) and (rate_starts is null) = (rate_burst is null));

drop index suture.executions_due;
create index executions_due on suture.workflow_executions
    (queue, ((run_at - timestamptz '2000-01-01 00:00:00+00') - interval '1 minute' * least(greatest(priority, -60), 1440)), run_at)
    where status = 'enqueued' and concurrency_key is null;
create index executions_keyed on suture.workflow_executions
    (queue, ((run_at - timestamptz '2000-01-01 00:00:00+00') - interval '1 minute' * least(greatest(priority, -60), 1440)), run_at)
    where status = 'enqueued' and concurrency_key is not null and not parked;
create index executions_begun on suture.workflow_executions
    (queue, ((run_at - timestamptz '2000-01-01 00:00:00+00') - interval '1 minute' * least(greatest(priority, -60), 1440)), run_at)
    where status = 'enqueued' and started_at is not null;
create index executions_of_key on suture.workflow_executions
    (queue, concurrency_key, parked,
     ((run_at - timestamptz '2000-01-01 00:00:00+00') - interval '1 minute' * least(greatest(priority, -60), 1440)), run_at)
    where concurrency_key is not null and status in ('enqueued', 'running', 'waiting');
-- Of a queue first: how many of it run is asked by each claim of a limited one.
drop index suture.executions_running;
create index executions_running on suture.workflow_executions (queue, owner_id) where status = 'running';
