-- Schedules by cron expression, with a rule for times that were missed and for runs that are slow; and what a person does with dead letters.

alter table suture.schedules
    alter column every drop not null,
    alter column next_at drop not null,
    add column cron         text,
    add column time_zone    text        not null default 'UTC',
    add column missed       text        not null default 'once' check (missed in ('skip', 'once', 'all')),
    add column missed_limit integer     not null default 100 check (missed_limit between 1 and 1000),
    add column overlap      text        not null default 'skip' check (overlap in ('skip', 'queue', 'allow')),
    add column jitter       interval    not null default '0' check (jitter >= interval '0'),
    add column priority     integer     not null default 0,
    add column labels       jsonb       not null default '{}',
    add column starts_at    timestamptz,
    add column ends_at      timestamptz,
    add column paused       boolean     not null default false,
    add column problem      text,
    add column last_at      timestamptz,
    add column fired_count   bigint     not null default 0,
    add column missed_count  bigint     not null default 0,
    add column skipped_count bigint     not null default 0,
    add constraint has_one_rhythm check ((every is null) <> (cron is null));

drop index suture.schedules_due;
create index schedules_due on suture.schedules (next_at) where not paused;

-- Requeued, discarded or open; open ones are listed youngest first and counted.
alter table suture.dead_letters
    add column discarded_at timestamptz,
    add column discarded_by text,
    add column discard_reason text;
create index dead_letters_youngest on suture.dead_letters (dead_at desc, execution_id desc);
create index dead_letters_open on suture.dead_letters (dead_at desc, execution_id desc) where requeued_as is null and discarded_at is null;

-- Views for people: what happened last night ---------------------------------------------------------------------------------

create view suture.ended as
    select id, workflow, version, queue, status, reason, step, error ->> 'message' as message, attempt, crashes, labels,
           extract(epoch from coalesce(started_at, finished_at) - created_at)::float8 as queued_seconds,
           extract(epoch from finished_at - started_at)::float8 as run_seconds,
           created_at, started_at, finished_at
    from suture.workflow_executions where status in ('completed', 'error', 'cancelled')
    union all
    select id, workflow, version, queue, status, reason, step, error ->> 'message', attempt, crashes, labels,
           extract(epoch from coalesce(started_at, finished_at) - created_at)::float8,
           extract(epoch from finished_at - started_at)::float8,
           created_at, started_at, finished_at
    from suture.workflow_history;
comment on view suture.ended is 'One row an execution that ended: how it ended, after how many tries, how long it was queued and ran.';

create view suture.finished_steps as
    select execution_id, step_id, kind, attempts, greatest(0, extract(epoch from finished_at - started_at))::float8 as seconds,
           started_at, finished_at
    from suture.operation_outputs;
comment on view suture.finished_steps is 'One row a finished step: its kind, its tries and how long the last of them took.';

create view suture.failures_last_day as
    select workflow, reason, step, count(*) as failed, min(finished_at) as first_at, max(finished_at) as last_at,
           (array_agg(id order by finished_at desc))[1] as last_id,
           (array_agg(message order by finished_at desc))[1] as last_message
    from suture.ended
    where status = 'error' and finished_at > now() - interval '1 day'
    group by workflow, reason, step;
comment on view suture.failures_last_day is 'Executions that ended in error in the last 24 hours, by workflow, reason and step.';

create view suture.workflows_last_day as
    select workflow, count(*) as ended,
           count(*) filter (where status = 'completed') as completed,
           count(*) filter (where status = 'error') as failed,
           count(*) filter (where status = 'cancelled') as cancelled,
           count(*) filter (where attempt > 1) as retried,
           count(*) filter (where crashes > 0) as crashed,
           percentile_cont(0.5) within group (order by run_seconds) as run_p50,
           percentile_cont(0.95) within group (order by run_seconds) as run_p95,
           percentile_cont(0.99) within group (order by run_seconds) as run_p99,
           max(run_seconds) as run_max
    from suture.ended where finished_at > now() - interval '1 day'
    group by workflow;
comment on view suture.workflows_last_day is 'How the executions of each workflow ended in the last 24 hours, with percentiles of their seconds.';

create view suture.steps_last_day as
    select e.workflow, o.step_id as step, o.kind, count(*) as finished, count(*) filter (where o.attempts > 1) as retried,
           percentile_cont(0.5) within group (order by o.seconds) as p50,
           percentile_cont(0.95) within group (order by o.seconds) as p95,
           percentile_cont(0.99) within group (order by o.seconds) as p99,
           max(o.seconds) as max
    from suture.ended e join suture.finished_steps o on o.execution_id = e.id
    where e.finished_at > now() - interval '1 day'
    group by e.workflow, o.step_id, o.kind;
comment on view suture.steps_last_day is 'How long each step took in the executions that ended in the last 24 hours, in seconds, and how many were tried again.';
