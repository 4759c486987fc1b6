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

-- Both are written into the statements that use them: an index on the first serves whoever sorts by it.
create function suture.urgency(run_at timestamptz, priority integer) returns interval language sql immutable parallel safe
return (run_at - timestamptz '2000-01-01 00:00:00+00') - interval '1 minute' * least(greatest(priority, -60), 1440);

-- What is due now is at least as urgent as this: here whoever reads the index may stop.
create function suture.latest_due() returns interval language sql stable parallel safe
return now() - timestamptz '2000-01-01 00:00:00+00' + interval '1 hour';

drop index suture.executions_due;
create index executions_due on suture.workflow_executions
    (queue, suture.urgency(run_at, priority), run_at)
    where status = 'enqueued' and concurrency_key is null;
create index executions_keyed on suture.workflow_executions
    (queue, suture.urgency(run_at, priority), run_at)
    where status = 'enqueued' and concurrency_key is not null and not parked;
create index executions_begun on suture.workflow_executions
    (queue, suture.urgency(run_at, priority), run_at)
    where status = 'enqueued' and started_at is not null;
create index executions_of_key on suture.workflow_executions
    (queue, concurrency_key, parked, suture.urgency(run_at, priority), run_at)
    where concurrency_key is not null and status in ('enqueued', 'running', 'waiting');
-- Of a queue first: how many of it run is asked by each claim of a limited one.
drop index suture.executions_running;
create index executions_running on suture.workflow_executions (queue, owner_id) where status = 'running';

-- Keys -------------------------------------------------------------------------------------------------------------------------

create function suture.lock_of_key(the_queue text, the_key text) returns bigint language sql immutable parallel safe as $$
    select hashtextextended(the_key, hashtextextended(the_queue, 13))
$$;

-- The planner trusts statistics of states that come and go, and of values that have to do with each other: where it expects to find a row
-- soon it would read the whole table for the one that is not there. So these functions read by index. What is switched off counts as dear
-- where it can't be done without, and what is dear would be compiled.

-- How many executions of a key may live side by side, begun and not ended.
create function suture.room_of_key(the_queue text) returns integer language sql stable as $$
    select coalesce((select per_key from suture.queues where name = the_queue), 1)
$$;

-- Whether an execution that is handed in now has to stand behind others of its key: as many as may live hold it, or go first.
create function suture.stands_behind(the_queue text, the_key text, the_run_at timestamptz, the_priority integer) returns boolean
language plpgsql stable
set enable_seqscan = off set jit = off as $$
declare
    room integer := suture.room_of_key(the_queue);
begin
    return room <= (select count(*) from (
        select from suture.workflow_executions
        where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and not parked
          and (started_at is not null
               or (run_at <= greatest(the_run_at, now())
                   and suture.urgency(run_at, priority)
                    <= suture.urgency(the_run_at, the_priority)))
        limit room) as before);
end $$;

-- Bring back as many of the parked as the key has room for: the most urgent of the due, or else the first that will be due.
-- One that is delayed keeps nobody back who is due before it.
create function suture.unpark(the_queue text, the_key text) returns void language plpgsql
set enable_seqscan = off set jit = off as $$
declare
    room integer := suture.room_of_key(the_queue);
    next record;
begin
    perform pg_advisory_xact_lock(suture.lock_of_key(the_queue, the_key));
    loop
        select id, run_at into next from suture.workflow_executions
        where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and parked
          and run_at <= now()
        order by suture.urgency(run_at, priority)
        limit 1;
        if not found then
            select id, run_at into next from suture.workflow_executions
            where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and parked
            order by run_at
            limit 1;
        end if;
        exit when not found or room <= (select count(*) from (
            select from suture.workflow_executions
            where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and not parked
              and (started_at is not null or run_at <= greatest(next.run_at, now()))
            limit room) as before);
        update suture.workflow_executions set parked = false where id = next.id;
    end loop;
    if exists (select from suture.workflow_executions
               where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and not parked
                 and started_at is null and run_at <= now()) then
        perform pg_notify('suture_due', the_queue);
    end if;
end $$;

create function suture.release_keys() returns trigger language plpgsql as $$
declare
    k record;
begin
    -- Asked first, as every update comes by here: a few microseconds instead of twice as many.
    if exists (select from became where concurrency_key is not null and not parked and finished_at is not null) then
        for k in select distinct queue, concurrency_key as key from became
                 where concurrency_key is not null and not parked and finished_at is not null order by 1, 2 loop
            perform suture.unpark(k.queue, k.key);
        end loop;
    end if;
    return null;
end $$;
create trigger release_keys after update on suture.workflow_executions
    referencing new table as became for each statement execute function suture.release_keys();

-- Keys of a queue that has more room for each of them now, some at a time; returns the last one that it saw, null when that was all.
create function suture.unpark_keys(the_queue text, after text, most integer) returns text language plpgsql
set enable_seqscan = off set jit = off as $$
declare
    k text := after;
begin
    for n in 1 .. most loop
        select concurrency_key into k from suture.workflow_executions
        where queue = the_queue and concurrency_key > k and concurrency_key is not null and status in ('enqueued', 'running', 'waiting')
          and parked
        order by concurrency_key
        limit 1;
        exit when not found;
        perform suture.unpark(the_queue, k);
    end loop;
    return k;
end $$;

-- Claims where limits are ----------------------------------------------------------------------------------------------------

create function suture.seconds_of_token(q suture.queues) returns float8 language sql immutable as $$
    select extract(epoch from q.rate_per)::float8 / q.rate_starts
$$;

-- When the bucket was empty, as far as its tokens show: a full one holds no more, however long ago that was.
create function suture.bucket_empty(q suture.queues) returns timestamptz language sql stable as $$
    select greatest(q.rate_at, now() - make_interval(secs => q.rate_burst * suture.seconds_of_token(q)))
$$;

-- Executions that hold a key. Exact for whoever has its lock.
create function suture.holders_of_key(the_queue text, the_key text) returns integer language plpgsql stable
set enable_seqscan = off set jit = off as $$
begin
    return (select count(*) from suture.workflow_executions
            where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and not parked
              and started_at is not null);
end $$;

create function suture.park(the_queue text, the_key text, kept uuid[]) returns void language plpgsql
set enable_seqscan = off set jit = off as $$
begin
    update suture.workflow_executions set parked = true
    where id = any (array(
        select id from suture.workflow_executions
        where queue = the_queue and concurrency_key = the_key and status in ('enqueued', 'running', 'waiting') and not parked
          and started_at is null and status = 'enqueued' and id <> all (kept)
        limit 10000
        for update skip locked));
end $$;

-- How many may be claimed from a queue now, all in all and of those that have not begun. Exact for whoever holds the queue's row.
create function suture.room_of_queue(q suture.queues, most integer, out room integer, out fresh integer) language plpgsql stable
set enable_seqscan = off set jit = off as $$
begin
    room := most;
    if q.concurrency is not null then
        room := least(most, q.concurrency - (select count(*) from (
            select from suture.workflow_executions where status = 'running' and queue = q.name limit q.concurrency) as held));
    end if;
    fresh := room;
    if q.rate_starts is not null then
        -- two microseconds of patience: a time is rounded to one, and a third of a second three times must make a second
        fresh := least(room, floor((extract(epoch from now() - suture.bucket_empty(q)) + 0.000002) / suture.seconds_of_token(q)));
    end if;
end $$;

-- Where the reading of a queue begins: see raise_floors.
create function suture.floor_of_queue(the_queue text) returns interval language plpgsql stable as $$
begin
    return coalesce((select f.urgency from suture.floors f where f.queue = the_queue and f.at > now() - interval '1 minute'),
                    interval '-1000000 days');
end $$;

-- Whether it is worth to lock the queue's row: something is due in it that it has room for. A full or empty queue costs a few looks.
create function suture.may_be_claimed(q suture.queues) returns boolean language plpgsql stable
set enable_seqscan = off set jit = off as $$
declare
    may record := suture.room_of_queue(q, 1);
begin
    return may.room > 0 and (
        (may.fresh > 0 and exists (
            select from suture.workflow_executions where status = 'enqueued' and concurrency_key is null and queue = q.name
              and (suture.urgency(run_at, priority), run_at) >= (suture.floor_of_queue(q.name), timestamptz '-infinity')
              and suture.urgency(run_at, priority) <= suture.latest_due() and run_at <= now()
            order by suture.urgency(run_at, priority)))
        or (may.fresh > 0 and exists (
            select from suture.workflow_executions
            where status = 'enqueued' and concurrency_key is not null and not parked and queue = q.name
              and suture.urgency(run_at, priority) <= suture.latest_due() and run_at <= now()
            order by suture.urgency(run_at, priority)))
        or exists (
            select from suture.workflow_executions where status = 'enqueued' and started_at is not null and queue = q.name
              and suture.urgency(run_at, priority) <= suture.latest_due() and run_at <= now()
            order by suture.urgency(run_at, priority)));
end $$;

-- When a queue that has something to start, and no token for it, gets its next one; null: nobody waits for a token.
create function suture.next_token(q suture.queues) returns timestamptz language plpgsql stable
set enable_seqscan = off set jit = off as $$
declare
    may record := suture.room_of_queue(q, 1);
begin
    if q.rate_starts is null or q.paused or may.room <= 0 or may.fresh > 0 then
        return null;
    end if;
    return case when exists (
            select from suture.workflow_executions where status = 'enqueued' and concurrency_key is null and queue = q.name
              and (suture.urgency(run_at, priority), run_at) >= (suture.floor_of_queue(q.name), timestamptz '-infinity')
              and suture.urgency(run_at, priority) <= suture.latest_due() and run_at <= now()
            order by suture.urgency(run_at, priority))
        or exists (
            select from suture.workflow_executions
            where status = 'enqueued' and concurrency_key is not null and not parked and queue = q.name
              and suture.urgency(run_at, priority) <= suture.latest_due() and run_at <= now()
            order by suture.urgency(run_at, priority))
        then suture.bucket_empty(q) + make_interval(secs => suture.seconds_of_token(q)) end;
end $$;

-- Claims from queues with limits, whose rows the caller holds, and what has a concurrency key. Each statement in here sees what was
-- committed before it: under the locks the counts are exact. `rivals` are the urgencies of what the caller takes from elsewhere: of all
-- of these together the most urgent `batch` are taken, and returned are those that were taken here.
-- What cannot have its key is parked, with all of the same key that have not begun: the next claim does not see them.
create function suture.claim_limited(
    claimant uuid, limited text[], keyed text[], workflows text[], versions integer[], batch integer, lease interval, actor text,
    suspect integer, holds boolean, rivals interval[]
) returns setof suture.workflow_executions language plpgsql
set enable_seqscan = off set jit = off set enable_bitmapscan = off set enable_sort = off as $$
declare
    q record;
    c record;
    room integer;     -- of this queue, for all
    fresh integer;    -- of this queue, for those that have not begun
    ids uuid[] := '{}';
    urgencies interval[] := '{}';
    queues text[] := '{}';
    firsts boolean[] := '{}';
    lowest interval;  -- urgency of this queue's first
    seen uuid[];
    held text[];      -- keys that are taken here, once for each execution
    busy text[];      -- keys of which no more can be taken
    before integer;
begin
    for q in
        select given.name, given.is_limited, s as row from (
            select unnest(limited) as name, true as is_limited union all select unnest(keyed), false) as given
        left join suture.queues s using (name)
        order by given.name
    loop
        room := batch;
        fresh := batch;
        if q.is_limited then
            select r.room, r.fresh into room, fresh from suture.room_of_queue(q.row::suture.queues, batch) as r;
        end if;
        lowest := suture.floor_of_queue(q.name);
        seen := '{}';
        held := '{}';
        busy := '{}';
        <<looking>>
        while room > 0 loop
            before := cardinality(seen);
            for c in
                with plain as materialized (
                    select e.id, e.concurrency_key, e.started_at, e.crashes, suture.urgency(e.run_at, e.priority) as urgency
                    from suture.workflow_executions e
                    where q.is_limited and fresh > 0
                      and e.status = 'enqueued' and e.concurrency_key is null and e.queue = q.name and e.run_at <= now()
                      and (suture.urgency(e.run_at, e.priority), e.run_at) >= (lowest, timestamptz '-infinity')
                      and suture.urgency(e.run_at, e.priority) <= suture.latest_due() and e.id <> all (seen)
                      and exists (select from unnest(workflows, versions) as known (workflow, version)
                                  where known.workflow = e.workflow and known.version >= e.version)
                    order by urgency limit room for update of e skip locked
                ), with_key as materialized (
                    select e.id, e.concurrency_key, e.started_at, e.crashes, suture.urgency(e.run_at, e.priority) as urgency
                    from suture.workflow_executions e
                    where fresh > 0
                      and e.status = 'enqueued' and e.concurrency_key is not null and not e.parked and e.queue = q.name
                      and e.run_at <= now()
                      and suture.urgency(e.run_at, e.priority) <= suture.latest_due() and e.id <> all (seen)
                      and exists (select from unnest(workflows, versions) as known (workflow, version)
                                  where known.workflow = e.workflow and known.version >= e.version)
                    order by urgency limit room for update of e skip locked
                ), begun as materialized (
                    select e.id, e.concurrency_key, e.started_at, e.crashes, suture.urgency(e.run_at, e.priority) as urgency
                    from suture.workflow_executions e
                    where fresh <= 0
                      and e.status = 'enqueued' and e.started_at is not null and e.queue = q.name and e.run_at <= now()
                      and suture.urgency(e.run_at, e.priority) <= suture.latest_due() and e.id <> all (seen)
                      and exists (select from unnest(workflows, versions) as known (workflow, version)
                                  where known.workflow = e.workflow and known.version >= e.version)
                    order by urgency limit room for update of e skip locked
                )
                select id, concurrency_key as key, started_at is null as first, crashes >= suspect as is_suspect, urgency
                from (select * from plain union all select * from with_key union all select * from begun) as found
                order by urgency
            loop
                seen := seen || c.id;
                continue when (c.is_suspect and holds) or (c.first and fresh <= 0);
                if c.first and c.key is not null then
                    continue when c.key = any (busy);
                    -- Never waited for: whoever ends an execution of the key holds its lock and rows, and sends a hint.
                    continue when not pg_try_advisory_xact_lock(suture.lock_of_key(q.name, c.key));
                    if suture.room_of_key(q.name) <= cardinality(array_positions(held, c.key)) + suture.holders_of_key(q.name, c.key) then
                        perform suture.park(q.name, c.key, ids);
                        busy := busy || c.key;
                        continue;
                    end if;
                    held := held || c.key;
                end if;
                ids := ids || c.id;
                urgencies := urgencies || c.urgency;
                queues := queues || q.name;
                firsts := firsts || c.first;
                holds := holds or c.is_suspect;
                room := room - 1;
                fresh := fresh - c.first::integer;
                exit looking when room <= 0;
            end loop;
            exit looking when cardinality(seen) = before or cardinality(seen) >= 1000;
        end loop;
    end loop;

    return query
    with ranked as (
        select u.id, u.queue, u.first, row_number() over (order by u.urgency) as place
        from (select * from unnest(ids, urgencies, queues, firsts) as own (id, urgency, queue, first)
              union all
              select null, rival, null, null from unnest(rivals) as rival) as u
    ), chosen as materialized (
        select ranked.id, ranked.queue, ranked.first from ranked where ranked.place <= batch and ranked.id is not null
    ), spent as (
        update suture.queues s
        set rate_at = suture.bucket_empty(s) + make_interval(secs => starts.count * suture.seconds_of_token(s))
        from (select chosen.queue, count(*) from chosen where chosen.first group by chosen.queue) as starts
        where s.name = starts.queue and s.rate_starts is not null
    )
    update suture.workflow_executions e
    set status = 'running', owner_id = claimant, epoch = e.epoch + 1, lease_expires = now() + lease,
        started_at = coalesce(e.started_at, clock_timestamp()), started_by = coalesce(e.started_by, actor), updated_at = now(),
        changed_xid = suture.xid(), changed_by = actor, reason = 'claimed'
    where e.id = any (array(select chosen.id from chosen))
    returning e.*;
end $$;

-- Steps that nobody may begin -------------------------------------------------------------------------------------------------

create table suture.paused_steps (
    step            text        not null check (step <> ''),
    workflow        text        not null check (workflow <> ''),
    paused_by       text        not null,
    paused_at       timestamptz not null default clock_timestamp(),
    reason          text        not null default '',
    primary key (step, workflow)
);

-- One row an execution that was suspended in front of a paused step.
create table suture.held_steps (
    execution_id    uuid        primary key,
    workflow        text        not null,
    step            text        not null,
    kind            text        not null,
    held_at         timestamptz not null default clock_timestamp()
);

-- In a pattern `*` stands for any text, and everything else for itself.
create function suture.covers(pattern text, name text) returns boolean language sql immutable parallel safe
return name like replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%');
