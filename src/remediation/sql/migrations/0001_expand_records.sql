-- What a remediation keeps beside its execution.
--
-- deliveries      every webhook that was let in, byte for byte; the provider's own id makes a second delivery a no-op
-- evidence        what the cluster said when it failed, redacted, frozen before the pod is gone
-- approvals       what a person was asked, bound by digest, and the answer
-- pull_requests   the changes that were opened; for a repository without a forge this row is the pull request

create table suture.deliveries (
    provider        text        not null,
    delivery_id     text        not null,
    received_at     timestamptz not null default clock_timestamp(),
    event_type      text        not null,
    headers         jsonb       not null,
    body            bytea       not null,
    state           text        not null check (state in ('accepted', 'ignored', 'unmatched', 'malformed')),
    note            text        not null default '',
    task_id         uuid,
    primary key (provider, delivery_id)
);
create index deliveries_received on suture.deliveries (received_at desc);

create table suture.evidence (
    task_id         uuid        not null,
    kind            text        not null check (kind in ('object', 'log', 'note')),
    ref             text        not null,
    content         bytea       not null,
    frozen_at       timestamptz not null default clock_timestamp(),
    primary key (task_id, kind, ref)
);

create table suture.approvals (
    task_id         uuid        not null,
    digest          text        not null,
    state           text        not null default 'pending' check (state in ('pending', 'approved', 'rejected', 'expired', 'void')),
    proposal        jsonb       not null,
    asked_at        timestamptz not null default clock_timestamp(),
    expires_at      timestamptz not null,
    verdict         text        check (verdict in ('approved', 'rejected')),
    decided_by      text,
    decided_at      timestamptz,
    reason          text        not null default '',
    primary key (task_id, digest),
    constraint decided_by_somebody check ((verdict is null) = (decided_by is null))
);
create unique index one_question_at_a_time on suture.approvals (task_id) where state = 'pending';
create index approvals_asked on suture.approvals (asked_at desc);

create table suture.pull_requests (
    repository      text        not null,
    branch          text        not null,
    number          bigint      generated always as identity,
    task_id         uuid        not null,
    base            text        not null,
    commit          text        not null,
    url             text        not null default '',
    title           text        not null,
    body            text        not null,
    diff            text        not null,
    digest          text        not null,
    opened_at       timestamptz not null default clock_timestamp(),
    primary key (repository, branch)
);
create index pull_requests_task on suture.pull_requests (task_id);

-- Which fixes were rejected, at which step, by whom and why?
create view suture.rejections as
    select a.task_id, e.labels ->> 'workload' as workload, a.proposal #>> '{cause,code}' as cause, a.verdict, a.decided_by, a.decided_at,
           a.reason, w.step_id as step, e.status, e.created_at
    from suture.approvals a
    join suture.executions e on e.id = a.task_id
    left join suture.workflow_waits w on w.execution_id = a.task_id and w.event = 'approval:' || left(a.digest, 16)
    where a.verdict = 'rejected';
