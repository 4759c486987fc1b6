-- schedules   what is enqueued again and again; one row each, changed live
create table suture.schedules (
    name            text        primary key check (name <> ''),
    workflow        text        not null check (workflow <> ''),
    version         integer     not null default 1,
    queue           text        not null default 'default' check (queue <> ''),
    input           jsonb       not null,
    every           interval    not null check (every >= interval '1 second'),
    next_at         timestamptz not null,
    changed_at      timestamptz not null default clock_timestamp(),
    changed_by      text        not null
);
create index schedules_due on suture.schedules (next_at);
