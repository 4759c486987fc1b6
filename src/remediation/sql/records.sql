-- columns: approval
task_id, digest, state, proposal, asked_at, expires_at, verdict, decided_by, decided_at, reason

-- columns: pull_request
repository, branch, number, task_id, base, commit, url, title, body, diff, digest, opened_at

-- name: keep_delivery
-- maybe: its id; no row: it was delivered before
-- $1 provider text, $2 delivery_id text, $3 event_type text, $4 headers jsonb, $5 body bytea, $6 event_id text
--
-- Two deliveries of one id, or of one event, at once: the second waits here for the first's commit, and then inserts nothing.
insert into suture.deliveries (provider, delivery_id, event_type, headers, body, event_id, state)
values ($1, $2, $3, $4, $5, $6, 'ignored')
on conflict do nothing
returning delivery_id

-- name: mark_delivery
-- none
-- $1 provider text, $2 delivery_id text, $3 state text, $4 note text, $5 task_id uuid
update suture.deliveries set state = $3, note = $4, task_id = $5 where provider = $1 and delivery_id = $2

-- name: deliveries
-- many: youngest first, without their bodies
-- $1 limit int
select provider, delivery_id, received_at, event_type, state, note, task_id, octet_length(body) as size
from suture.deliveries order by received_at desc limit $1

-- name: frozen
-- many: the evidence of a task
-- $1 task uuid
select kind, ref, content from suture.evidence where task_id = $1 order by kind, ref

-- name: freeze
-- none
-- $1 task uuid, $2 kinds text[], $3 refs text[], $4 contents bytea[]
insert into suture.evidence (task_id, kind, ref, content)
select $1, * from unnest($2::text[], $3::text[], $4::bytea[])
on conflict do nothing

-- name: ask
-- one: the question as it stands
-- $1 task uuid, $2 digest text, $3 proposal jsonb, $4 timeout interval
insert into suture.approvals as a (task_id, digest, proposal, expires_at) values ($1, $2, $3, clock_timestamp() + $4)
on conflict (task_id, digest) do update set digest = a.digest
returning {approval}

-- name: void_questions
-- none
-- $1 task uuid, $2 digest text that stays
update suture.approvals set state = 'void' where task_id = $1 and state = 'pending' and digest <> $2

-- name: approval
-- maybe: the newest question of a task
-- $1 task uuid
select {approval} from suture.approvals where task_id = $1 order by asked_at desc limit 1

-- name: approvals
-- many: youngest first
-- $1 state text (null: all), $2 limit int
select {approval} from suture.approvals where $1::text is null or state = $1 order by asked_at desc limit $2

-- name: decide
-- maybe: the question, now answered; no row: it was not open any more
-- $1 task uuid, $2 digest text, $3 verdict text, $4 by text, $5 reason text
update suture.approvals
set state = $3, verdict = $3, decided_by = $4, decided_at = clock_timestamp(), reason = $5
where task_id = $1 and digest = $2 and state = 'pending' and expires_at > clock_timestamp()
returning {approval}

-- name: close_question
-- none
-- $1 task uuid, $2 state text
update suture.approvals set state = $2 where task_id = $1 and state = 'pending'

-- name: record_pull_request
-- one: the pull request as it stands
-- $1 repository text, $2 branch text, $3 task uuid, $4 base text, $5 commit text, $6 url text, $7 title text, $8 body text, $9 diff text,
-- $10 digest text
insert into suture.pull_requests as p (repository, branch, task_id, base, commit, url, title, body, diff, digest)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
on conflict (repository, branch) do update set branch = p.branch
returning {pull_request}

-- name: pull_requests
-- many: youngest first
-- $1 task uuid (null: all), $2 limit int
select {pull_request} from suture.pull_requests where $1::uuid is null or task_id = $1 order by opened_at desc limit $2
