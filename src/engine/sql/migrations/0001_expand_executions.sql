-- Durable executions on Postgres.
--
-- workflow_executions   one row an execution that lives, or has just ended: what to run, in which state, by whom, until when
-- workflow_history      ended executions, moved here in batches and partitioned by the month of their end: retention drops a partition
-- operation_outputs     one row a finished step: its checkpoint; first write wins
-- operation_failures    one row a step that failed and will be tried again
-- workflow_waits        one row a sleep or a wait: holds no process, no connection, no timer
-- events                facts from outside for one execution; the first of a name wins
-- effects               the ledger of outside effects: intended before the act, confirmed after it
-- moves                 who moved what from where to where, when and why; append-only, written by a trigger. What every execution does that
--                       goes well (its creation, its first claim, its completion) stands in its own row: see the view `timeline`
-- dead_letters          executions that need a person, with the reason
-- queues                pause and limits, changed live
-- workers               one row a process life; never reused
--
-- How an execution moves (the only edges; `record_update` refuses the rest, from psql too):
--
--     (new) -> enqueued -> running -> completed | error | cancelled
--                 ^          |  |
--                 |          |  +--> waiting -> enqueued | cancelled | error
--                 +----------+   retry, hand-back, recovery        enqueued -> cancelled | error
--
-- Whoever wishes to cancel what runs writes the wish into its row; every statement that would put the row back to enqueued or waiting
-- looks at it and cancels instead: a wish that races with a suspend, a retry or a recovery is never forgotten.
--
-- A claim raises `epoch`. Each later write of the claimant names owner and epoch; zero rows mean that the lease is lost.
-- Lock order, everywhere: workers, then workflow_executions by id, then the other tables. A statement that reads another table to
-- decide on an execution first locks the execution's row in an earlier statement of the same transaction: its snapshot is then
-- younger than every writer that held the lock.
-- Time is this database's clock alone. Every statement that moves a status sets changed_xid, changed_by and reason.
--
-- What belongs to one execution (outputs, failures, waits, events, moves) is partitioned by its id, which begins with the time of its
-- creation (UUIDv7): by month, and a default partition for ids of another time or form. See "Partitions" below.

create schema if not exists suture;

-- The transaction that asks.
create function suture.xid() returns bigint language sql stable parallel restricted return pg_current_xact_id()::text::bigint;

-- What never changes stands first, then what changes least, and half of each page is left free: of a version that finds room beside the one
-- before it, the log holds only what follows the first change.
create table suture.workflow_executions (
    id              uuid        primary key,
    workflow        text        not null check (workflow <> ''),
    version         integer     not null default 1,
    queue           text        not null default 'default' check (queue <> ''),
    priority        integer     not null default 0,
    input           jsonb       not null,
    operation_key   text,
    input_digest    bytea,
    labels          jsonb       not null default '{}',
    max_attempts    integer,
    forked_from     uuid,
    created_at      timestamptz not null default now(),
    created_by      text        not null default 'database user ' || session_user,
    created_reason  text        not null default '',
    started_at      timestamptz,
    started_by      text,
    changed_by      text        not null default 'database user ' || session_user,
    deadline_at     timestamptz,
    run_at          timestamptz not null default now(),
    attempt         integer     not null default 1,
    crashes         integer     not null default 0,
    epoch           bigint      not null default 0,
    owner_id        uuid,
    lease_expires   timestamptz,
    updated_at      timestamptz not null default now(),
    finished_at     timestamptz,
    changed_xid     bigint      not null default suture.xid(),
    status          text        not null default 'enqueued'
                    constraint known_status check (status in ('enqueued', 'running', 'waiting', 'completed', 'error', 'cancelled')),
    reason          text        not null default '',
    step            text,
    output          jsonb,
    error           jsonb,
    cancel_requested_by text,
    cancel_reason   text,
    constraint owned_while_running check ((status = 'running') = (owner_id is not null) and (status = 'running') = (lease_expires is not null)),
    constraint finished_when_ended check ((status in ('completed', 'error', 'cancelled')) = (finished_at is not null)),
    constraint started_when_claimed check ((epoch > 0) = (started_at is not null) and (epoch > 0) = (started_by is not null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);

-- lease_expires is in no index on purpose: a heartbeat stays a HOT update.
create index executions_due     on suture.workflow_executions (queue, priority desc, run_at) where status = 'enqueued';
create index executions_suspect on suture.workflow_executions (queue) where status = 'enqueued' and crashes > 0;
create index executions_running on suture.workflow_executions (owner_id) where status = 'running';
create index executions_ended   on suture.workflow_executions (finished_at) where status in ('completed', 'error', 'cancelled');
create index executions_deadline on suture.workflow_executions (deadline_at)
    where deadline_at is not null and status in ('enqueued', 'running', 'waiting');
create index executions_labels  on suture.workflow_executions using gin (labels jsonb_path_ops) where labels <> '{}';
create index executions_changed on suture.workflow_executions (changed_xid) where labels <> '{}';
create index executions_key     on suture.workflow_executions (operation_key) where operation_key is not null;
create unique index operation_key_is_unique on suture.workflow_executions (operation_key)
    where operation_key is not null and status in ('enqueued', 'running', 'waiting');

create table suture.workflow_history (like suture.workflow_executions including defaults including constraints)
    partition by range (finished_at);
alter table suture.workflow_history add primary key (id, finished_at);
create index history_finished on suture.workflow_history (finished_at);
create index history_key on suture.workflow_history (operation_key, finished_at desc) where operation_key is not null;
create index history_labels on suture.workflow_history using gin (labels jsonb_path_ops) where labels <> '{}';
create index history_changed on suture.workflow_history (changed_xid) where labels <> '{}';

-- Columns of one width stand first: no room is lost between them.
create table suture.operation_outputs (
    execution_id    uuid        not null,
    owner_id        uuid        not null,
    epoch           bigint      not null,
    started_at      timestamptz not null,
    finished_at     timestamptz not null default clock_timestamp(),
    attempts        integer     not null default 1,
    step_id         text        not null,
    kind            text        not null check (kind in ('step', 'sleep', 'wait', 'effect')),
    output          jsonb       not null,
    primary key (execution_id, step_id)
) partition by range (execution_id);

create table suture.operation_failures (
    execution_id    uuid        not null,
    step_id         text        not null,
    attempts        integer     not null,
    error           jsonb       not null,
    failed_at       timestamptz not null default clock_timestamp(),
    primary key (execution_id, step_id)
) partition by range (execution_id);

create table suture.workflow_waits (
    execution_id    uuid        not null,
    step_id         text        not null,
    event           text,
    wake_at         timestamptz,
    outcome         text        check (outcome in ('event', 'timeout')),
    created_at      timestamptz not null default clock_timestamp(),
    primary key (execution_id, step_id),
    constraint ends_somehow check (event is not null or wake_at is not null)
) partition by range (execution_id);
create index waits_due on suture.workflow_waits (wake_at) where outcome is null;

create table suture.events (
    execution_id    uuid        not null,
    name            text        not null,
    payload         jsonb       not null,
    emitted_by      text        not null,
    emitted_at      timestamptz not null default clock_timestamp(),
    primary key (execution_id, name)
) partition by range (execution_id);

create table suture.effects (
    kind            text        not null,
    key             text        not null,
    execution_id    uuid        not null,
    step_id         text        not null,
    state           text        not null default 'intended' check (state in ('intended', 'confirmed')),
    result          jsonb,
    intended_at     timestamptz not null default clock_timestamp(),
    confirmed_at    timestamptz,
    primary key (kind, key)
);
create index effects_execution on suture.effects (execution_id);

create table suture.moves (
    id              bigint      generated always as identity,
    execution_id    uuid        not null,
    at              timestamptz not null,
    actor           text        not null,
    from_status     text        not null,
    to_status       text        not null,
    reason          text        not null,
    step            text,
    epoch           bigint      not null,
    primary key (execution_id, id)
) partition by range (execution_id);

create table suture.dead_letters (
    execution_id    uuid        primary key,
    workflow        text        not null,
    queue           text        not null,
    reason          text        not null,
    error           jsonb       not null,
    step            text,
    attempts        integer     not null,
    crashes         integer     not null,
    dead_at         timestamptz not null default clock_timestamp(),
    requeued_as     uuid
);

create table suture.queues (
    name            text        primary key,
    paused          boolean     not null default false,
    changed_at      timestamptz not null default clock_timestamp(),
    changed_by      text        not null
);

create table suture.workers (
    id              uuid        primary key,
    name            text        not null,
    version         text        not null,
    queues          text[]      not null,
    presence        boolean     not null default false,
    absent_since    timestamptz,
    started_at      timestamptz not null default clock_timestamp(),
    beat_at         timestamptz not null default now(),
    stopped_at      timestamptz
) with (fillfactor = 50);

-- The state machine --------------------------------------------------------------------------------------------------------

-- A statement at a time, not a row: a batch of a thousand moves is one check and one insert into the moves.

create function suture.refuse_beginning() returns trigger language plpgsql as $$
begin
    raise exception 'an execution begins as enqueued, not as %', new.status using errcode = 'SU001';
end $$;

create function suture.refuse_move(the_id uuid, was text, becomes text, is_back boolean) returns boolean language plpgsql as $$
begin
    if is_back then
        raise exception 'execution %: id and epoch cannot go back', the_id using errcode = 'SU001';
    end if;
    if becomes = 'running' and was = 'enqueued' then
        raise exception 'execution %: a claim must raise the epoch', the_id using errcode = 'SU001';
    end if;
    raise exception 'execution % is %: it cannot become %', the_id, was, becomes using errcode = 'SU001';
end $$;

create function suture.refuse_rewriting(the_id uuid) returns boolean language plpgsql as $$
begin
    raise exception 'execution %: who created, claimed, moved or ended it, when and why is append-only', the_id using errcode = 'SU002';
end $$;

create function suture.is_told_by_its_row(status text, epoch bigint) returns boolean language sql immutable parallel safe
return status = 'completed' or (status = 'running' and epoch = 1);

-- A move that does not name its own transaction is no statement of ours: somebody's hand. Its row shall say so, too.
create function suture.sign_for_hand(the_id uuid) returns boolean language plpgsql as $$
begin
    update suture.workflow_executions
    set changed_xid = suture.xid(), changed_by = 'database user ' || session_user, reason = 'changed by hand' where id = the_id;
    return true;
end $$;

-- One pass checks and records. Nested loops are off: the plan is kept from the first call, which may have had one row, and the next may
-- have thousands.
create function suture.record_update() returns trigger language plpgsql set enable_nestloop = off as $$
begin
    insert into suture.moves (execution_id, at, actor, from_status, to_status, reason, step, epoch)
    select n.id, clock_timestamp(),
           case when n.changed_xid = suture.xid() then n.changed_by else 'database user ' || session_user end,
           o.status, n.status,
           case when n.changed_xid = suture.xid() then n.reason else 'changed by hand' end,
           n.step, n.epoch
    from was o left join became n using (id)
    where case
        when n.id is null or n.epoch < o.epoch then suture.refuse_move(o.id, o.status, n.status, true)
        when n.status <> o.status and not (case o.status
                when 'enqueued' then n.status in ('running', 'cancelled', 'error')
                when 'running'  then n.status in ('enqueued', 'waiting', 'completed', 'error', 'cancelled')
                when 'waiting'  then n.status in ('enqueued', 'cancelled', 'error')
                else false
            end and (n.status <> 'running' or n.epoch > o.epoch)) then suture.refuse_move(o.id, o.status, n.status, false)
        when n.created_at <> o.created_at or n.created_by <> o.created_by or n.created_reason <> o.created_reason
            or n.started_at <> o.started_at or n.started_by <> o.started_by or n.finished_at <> o.finished_at
            then suture.refuse_rewriting(o.id)
        when n.status = o.status then
            (n.changed_by <> o.changed_by or n.reason <> o.reason or n.changed_xid <> o.changed_xid)
            and pg_trigger_depth() = 1 and suture.refuse_rewriting(o.id)
        when n.changed_xid <> suture.xid() then suture.sign_for_hand(n.id) and not suture.is_told_by_its_row(n.status, n.epoch)
        else not suture.is_told_by_its_row(n.status, n.epoch)
    end;
    return null;
end $$;

create function suture.check_delete() returns trigger language plpgsql as $$
declare
    wrong record;
begin
    select * into wrong from gone where status not in ('completed', 'error', 'cancelled') limit 1;
    if found then
        raise exception 'execution % is %: only an ended execution can be removed, cancel it first', wrong.id, wrong.status
            using errcode = 'SU001';
    end if;
    return null;
end $$;

create trigger refuse_beginning before insert on suture.workflow_executions
    for each row when (new.status <> 'enqueued') execute function suture.refuse_beginning();
create trigger record_update after update on suture.workflow_executions
    referencing old table as was new table as became for each statement execute function suture.record_update();
create trigger check_delete after delete on suture.workflow_executions
    referencing old table as gone for each statement execute function suture.check_delete();

-- Only what belongs to nothing any more may go: retention has dropped the execution itself.
create function suture.refuse_change() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        if not exists (select from suture.executions where id = old.execution_id) then
            return old;
        end if;
    end if;
    raise exception 'the % is append-only', tg_table_name using errcode = 'SU002';
end $$;

create trigger append_only before update or delete on suture.moves
    for each row execute function suture.refuse_change();
create trigger append_only before update on suture.workflow_history
    for each row execute function suture.refuse_change();

-- Partitions ---------------------------------------------------------------------------------------------------------------

-- Every partitioned table of this schema has partitions by month, called table_YYYYMM, and table_default; its key is a time or a UUIDv7.
-- They are made ahead. What fits into none of them (a client whose clock is wrong, an id that is no UUIDv7, a month for which nobody made a
-- partition in time) lands in the default: nothing is refused. A month that has begun in the default stays there.
--
-- A month is dropped when it is older than the retention and no execution that is kept has an id in it. If a few do, because they wait long,
-- their rows are moved to the default first, in the same transaction; many hold the month back.
-- In the default, rows are deleted in batches when their execution is no longer kept.
--
-- Each of these functions may be called by anyone at any time; only the owner of the tables gets something done. One that meets a lock gives
-- up at once and is called again by the next pass: behind a statement that waits for a strong lock, everyone else would wait, too.

create function suture.id_at(moment timestamptz) returns uuid language sql immutable parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
comment on function suture.id_at is 'The least UUIDv7 of a moment: for a range of ids, hence of executions by their creation.';

create function suture.partitioned_tables() returns table (name text, key text, by_id boolean) language sql stable as $$
    select c.relname::text, a.attname::text, a.atttypid = 'uuid'::regtype
    from pg_partitioned_table p
    join pg_class c on c.oid = p.partrelid and c.relnamespace = 'suture'::regnamespace
    join pg_attribute a on a.attrelid = c.oid and a.attnum = p.partattrs[0]
    where pg_has_role(current_user, c.relowner, 'usage')
    order by c.relname
$$;

create function suture.add_default(parent text) returns void language plpgsql as $$
begin
    execute format('create table suture.%I partition of suture.%I default', parent || '_default', parent);
    perform suture.seal(parent || '_default');
end $$;

-- A trigger for TRUNCATE is not handed down to partitions, and theirs are asked when their parent is emptied.
create function suture.seal(partition text) returns void language plpgsql as $$
begin
    if partition like 'moves%' or partition like 'workflow_history%' then
        execute format('create trigger never_emptied before truncate on suture.%I for each statement execute function suture.refuse_change()',
                       partition);
    end if;
end $$;

-- Attached, not made in place: that locks the parent for nobody but another one like this.
create function suture.add_month(parent text, key text, by_id boolean, month date) returns boolean language plpgsql as $$
declare
    name text := parent || '_' || to_char(month, 'YYYYMM');
    lower timestamptz := month::timestamp at time zone 'UTC';
    upper timestamptz := (month + interval '1 month')::timestamp at time zone 'UTC';
    first text := case when by_id then suture.id_at(lower)::text else lower::text end;
    next text := case when by_id then suture.id_at(upper)::text else upper::text end;
    taken boolean;
begin
    if to_regclass(format('suture.%I', name)) is not null then
        return false;
    end if;
    execute format('select exists (select from suture.%I where %I >= %L and %I < %L)', parent || '_default', key, first, key, next) into taken;
    if taken then
        return false;
    end if;
    perform set_config('lock_timeout', '100ms', true);
    execute format('create table suture.%I (like suture.%I including all excluding identity)', name, parent);
    perform suture.seal(name);
    execute format('alter table suture.%I attach partition suture.%I for values from (%L) to (%L)', parent, name, first, next);
    return true;
exception when lock_not_available or check_violation then
    return false; -- the next pass finds a better moment; or a row came into the default just now
end $$;

-- The coming months, and for the history any month in which something ended while nobody tidied. Of two at once one works.
create function suture.add_months(ahead integer default 2) returns integer language plpgsql as $$
begin
    if not pg_try_advisory_xact_lock(hashtextextended('suture.partitions', 0)) then
        return 0;
    end if;
    return (
        select count(*) from suture.partitioned_tables() t, lateral (
            select date_trunc('month', now() at time zone 'UTC') + make_interval(months => m) as moment from generate_series(0, ahead) m
            union
            select date_trunc('month', finished_at at time zone 'UTC') from suture.workflow_executions
            where not t.by_id and status in ('completed', 'error', 'cancelled')
              and finished_at < date_trunc('month', now() at time zone 'UTC') at time zone 'UTC') as months
        where suture.add_month(t.name, t.key, t.by_id, months.moment::date));
end $$;

-- Ids of kept executions in a range, up to a limit: the living and those in the history.
create function suture.holders(first uuid, next uuid, most integer) returns uuid[] language sql stable as $$
    select coalesce(array_agg(id), '{}') from (
        (select id from suture.workflow_executions where id >= first and id < next limit most)
        union all
        (select id from suture.workflow_history where id >= first and id < next limit most)
        limit most) as kept
$$;

-- Months that are older than the retention, of the history first: what it no longer holds holds back nothing.
create function suture.old_months(retention interval) returns table (parent text, key text, by_id boolean, month date) language sql stable as $$
    select t.name, t.key, t.by_id, found.month
    from suture.partitioned_tables() t
    join pg_inherits i on i.inhparent = format('suture.%I', t.name)::regclass
    join pg_class c on c.oid = i.inhrelid and c.relname ~ '_[0-9]{6}$',
    lateral (select to_date(right(c.relname, 6), 'YYYYMM') as month) as found
    where (found.month + interval '1 month')::timestamp at time zone 'UTC' <= now() - retention
    order by t.by_id, found.month, t.name
$$;

create function suture.drop_month(parent text, key text, by_id boolean, month date) returns text language plpgsql as $$
declare
    name text := parent || '_' || to_char(month, 'YYYYMM');
    first uuid := suture.id_at(month::timestamp at time zone 'UTC');
    next uuid := suture.id_at((month + interval '1 month')::timestamp at time zone 'UTC');
    few constant integer := 100;
    kept uuid[] := '{}';
begin
    if by_id and cardinality(suture.holders(first, next, few + 1)) > few then
        return 'held';
    end if;
    if not pg_try_advisory_xact_lock(hashtextextended('suture.partitions', 0)) then
        return 'busy';
    end if;
    perform set_config('lock_timeout', '100ms', true);
    -- The lock first, in a statement of its own: whoever has written into the month has committed then, and whoever comes finds it gone.
    execute format('lock table suture.%I in access exclusive mode', parent);
    if to_regclass(format('suture.%I', name)) is null then
        return 'gone';
    end if;
    if by_id then
        kept := suture.holders(first, next, few + 1);
        if cardinality(kept) > few then
            return 'held';
        end if;
    end if;
    execute format('alter table suture.%I detach partition suture.%I', parent, name);
    if cardinality(kept) > 0 then
        execute format('insert into suture.%I overriding system value select * from suture.%I where %I = any ($1)', parent, name, key) using kept;
    end if;
    execute format('drop table suture.%I', name);
    return 'dropped';
exception when lock_not_available then
    return 'busy';
end $$;

-- Deletes what belongs to no kept execution: looks at `most` rows with a key in a range, in order, and returns the last key that it saw, null at
-- the end of the range.
create function suture.forget(from_table text, key text, after uuid, upto uuid, most integer, out last uuid, out forgotten integer)
language plpgsql as $$
declare
    seen uuid[];
begin
    execute format('select array(select %1$I from suture.%2$I where %1$I > $1 and %1$I <= $2 order by %1$I limit $3)', key, from_table)
        into seen using after, upto, most;
    last := seen[most];
    forgotten := 0;
    if cardinality(seen) > 0 then -- mostly not: no lock is taken then
        execute format('delete from suture.%2$I d where %1$I = any ($1)
                            and not exists (select from suture.executions e where e.id = d.%1$I)', key, from_table) using seen;
        get diagnostics forgotten = row_count;
    end if;
end $$;

select suture.add_default(name) from suture.partitioned_tables();
select suture.add_months();

-- Views --------------------------------------------------------------------------------------------------------------------

create view suture.executions as
    select * from suture.workflow_executions union all select * from suture.workflow_history;

-- Who moved what from where to where, when and why, numbered from 1 for each execution. Its row tells what every execution does that goes
-- well, for good: the trigger refuses whoever would change it. All other moves are rows of their own.
create view suture.timeline as
    select execution_id, row_number() over (partition by execution_id order by part, place) as id,
           at, actor, from_status, to_status, reason, step, epoch
    from (
        select e.id as execution_id, line.*
        from suture.executions e
        cross join lateral (
            select 1 as part, 0::bigint as place, e.created_at as at, e.created_by as actor, null::text as from_status, 'enqueued' as to_status,
                   e.created_reason as reason, null::text as step, 0::bigint as epoch
            union all
            select 2, 0, e.started_at, e.started_by, 'enqueued', 'running', 'claimed', null, 1 where e.started_at is not null
            union all
            select 4, 0, e.finished_at, e.changed_by, 'running', 'completed', e.reason, e.step, e.epoch where e.status = 'completed'
        ) as line
        union all
        select execution_id, 3, id, at, actor, from_status, to_status, reason, step, epoch from suture.moves
    ) as lines;

-- The same rows in the words of a plain task queue.
create view suture.tasks as
    select id, workflow as type, input as payload,
           case status when 'enqueued' then 'pending' when 'waiting' then 'running' when 'error' then 'failed'
                       when 'cancelled' then 'failed' else status end as status,
           attempt, lease_expires as locked_until, created_at, updated_at
    from suture.executions;
