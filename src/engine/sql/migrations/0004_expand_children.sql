-- Children: executions that another one started; deadlines of the queue and of the run; crashes that progress outweighs.
--
-- child_results    how each child ended, for the parent that looks at it later; written by a trigger in the child's last transaction.
--                  input_digest says of what: mended code that maps over other inputs keeps no result of an old one
-- fan_outs         one row a `map` that is under way: how many of its children have begun and ended
-- fan_out_inputs   the inputs of a `map`, a hundred a row; a child's row is made only when its turn has come
-- tidings          an outbox between relatives: what happened to one and is not yet told to the other
--
-- Why an outbox: the end of a child would have to lock its parent's row, and a heartbeat or a batch of checkpoints locks rows from the
-- oldest to the youngest, which is from the parent to the child: each would wait for the other. So the end and the tidings commit
-- together, nobody waits, and whoever comes first (the worker that wrote the end, or anybody's sweep) locks the parent and tells it.
--
-- The columns of the live table and of the history are the same, in the same order: see the view.

alter table suture.workflow_executions
    add column parent_id    uuid,
    add column parent_step  text,
    add column parent_item  integer,
    add column has_children boolean not null default false,
    add column start_by     timestamptz,
    add column run_timeout  interval,
    add column crash_epoch  bigint;
alter table suture.workflow_history
    add column parent_id    uuid,
    add column parent_step  text,
    add column parent_item  integer,
    add column has_children boolean not null default false,
    add column start_by     timestamptz,
    add column run_timeout  interval,
    add column crash_epoch  bigint;
create or replace view suture.executions as
    select * from suture.workflow_executions union all select * from suture.workflow_history;

create index executions_children on suture.workflow_executions (parent_id)
    where parent_id is not null and status in ('enqueued', 'running', 'waiting');
create index executions_start_by on suture.workflow_executions (start_by)
    where start_by is not null and started_at is null and status = 'enqueued';

alter table suture.operation_outputs drop constraint operation_outputs_kind_check;
alter table suture.operation_outputs add constraint operation_outputs_kind_check
    check (kind in ('step', 'sleep', 'wait', 'effect', 'transaction', 'child', 'map', 'patch', 'added', 'failure')) not valid;

create table suture.child_results (
    parent_id       uuid        not null,
    step_id         text        not null,
    item            integer     not null default 0,
    child_id        uuid        not null,
    input_digest    bytea,
    status          text        not null check (status in ('completed', 'error', 'cancelled')),
    output          jsonb,
    error           jsonb,
    ended_at        timestamptz not null default clock_timestamp(),
    primary key (parent_id, step_id, item)
);

create table suture.fan_outs (
    parent_id       uuid        not null,
    step_id         text        not null,
    workflow        text        not null,
    version         integer     not null,
    queue           text        not null,
    priority        integer     not null,
    labels          jsonb       not null,
    concurrency     integer     not null check (concurrency > 0),
    total           integer     not null check (total > 0),
    started         integer     not null default 0,
    ended           integer     not null default 0,
    failed          integer     not null default 0,
    collects        boolean     not null,
    actor           text        not null,
    created_at      timestamptz not null default clock_timestamp(),
    primary key (parent_id, step_id),
    constraint counted check (ended <= started and started <= total and failed <= ended)
) with (fillfactor = 50);

create table suture.fan_out_inputs (
    parent_id       uuid        not null,
    step_id         text        not null,
    chunk           integer     not null,
    items           integer[]   not null,
    inputs          jsonb[]     not null,
    primary key (parent_id, step_id, chunk),
    foreign key (parent_id, step_id) references suture.fan_outs on delete cascade
);

create table suture.tidings (
    id              bigint      generated always as identity primary key,
    kind            text        not null check (kind in ('child ended', 'parent ended', 'map failed')),
    parent_id       uuid        not null,
    step_id         text,
    failed          boolean     not null default false
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- A row at a time, each with a WHEN that is false for who has no relatives: these cost nothing then, no call and no look.

create function suture.tell_parent() returns trigger language plpgsql as $$
begin
    insert into suture.child_results (parent_id, step_id, item, child_id, input_digest, status, output, error)
    values (new.parent_id, new.parent_step, coalesce(new.parent_item, 0), new.id, sha256(convert_to(new.input::text, 'UTF8')),
            new.status, new.output, new.error)
    on conflict do nothing;
    insert into suture.tidings (kind, parent_id, step_id, failed)
    values ('child ended', new.parent_id, new.parent_step, new.status <> 'completed');
    return null;
end $$;

create function suture.tell_children() returns trigger language plpgsql as $$
begin
    insert into suture.tidings (kind, parent_id) values ('parent ended', new.id);
    return null;
end $$;

create function suture.begin_run() returns trigger language plpgsql as $$
begin
    update suture.workflow_executions
    set deadline_at = least(deadline_at, started_at + run_timeout) where id = new.id;
    return null;
end $$;

create trigger tell_parent after update of status on suture.workflow_executions
    for each row when (new.parent_id is not null and old.finished_at is null and new.finished_at is not null)
    execute function suture.tell_parent();
create trigger tell_children after update of status on suture.workflow_executions
    for each row when (new.has_children and old.finished_at is null and new.status in ('error', 'cancelled'))
    execute function suture.tell_children();
create trigger begin_run after update of status on suture.workflow_executions
    for each row when (new.run_timeout is not null and old.started_at is null and new.started_at is not null)
    execute function suture.begin_run();
