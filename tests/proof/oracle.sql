-- What a campaign must not have done. Each rule is a query for what breaks it; `oracle` holds what the world outside and the client saw:
--   enqueued (id, at)                      what the client was promised
--   bodies (id, step, epoch, at)           each time that the body of a step began
--   acts (key, id, step, looked_at, at)    each act in the world outside, and when its actor had looked for an earlier one
--   emitted (id, name, by)                 each event that was accepted, and from whom
--   closed (at)                            when the campaign was over

-- rule: no execution is lost, and each ends once, as completed
select q.id, format('is %s, has %s rows and %s endings', coalesce(max(e.status), 'nowhere'), count(e.id),
       (select count(*) from suture.timeline t where t.execution_id = q.id and t.to_status in ('completed', 'error', 'cancelled'))) as why
from oracle.enqueued q left join suture.executions e on e.id = q.id
group by q.id
having count(e.id) <> 1 or max(e.status) <> 'completed'
    or (select count(*) from suture.timeline t where t.execution_id = q.id and t.to_status in ('completed', 'error', 'cancelled')) <> 1

-- rule: nothing runs that nobody enqueued
select e.id, format('is %s, enqueued by %s', e.status, (select t.actor from suture.timeline t where t.execution_id = e.id order by t.id limit 1)) as why
from suture.executions e where not exists (select from oracle.enqueued q where q.id = e.id)

-- rule: the timeline is one chain of legal moves
select execution_id as id, format('line %s: %s -> %s after %s', id, from_status, to_status, before) as why
from (select t.*, lag(to_status) over w as before, lag(at) over w as before_at from suture.timeline t window w as (partition by execution_id order by id)) as t
where from_status is distinct from before
   or at < before_at
   or not case coalesce(from_status, '')
          when '' then to_status = 'enqueued'
          when 'enqueued' then to_status in ('running', 'cancelled', 'error')
          when 'running' then to_status in ('enqueued', 'waiting', 'completed', 'error', 'cancelled')
          when 'waiting' then to_status in ('enqueued', 'cancelled', 'error')
          else false end

-- rule: each claim raises the epoch by one, and nothing else moves it
select execution_id as id, format('line %s: epoch %s after %s, %s -> %s', id, epoch, before, from_status, to_status) as why
from (select t.*, lag(epoch, 1, 0::bigint) over (partition by execution_id order by id) as before from suture.timeline t) as t
where epoch <> before + (to_status = 'running')::int

-- rule: no checkpoint is written by an old epoch
-- The claimant at the time of the write, by the timeline: a worker's name is that of one process life.
select o.execution_id as id, format('%s of epoch %s by %s at %s, which had it from %s to %s as %s', o.step_id, o.epoch, w.name, o.finished_at, c.at, c.until, c.actor) as why
from suture.operation_outputs o
left join suture.workers w on w.id = o.owner_id
left join (select t.execution_id, t.epoch, t.actor, t.at, t.to_status, lead(t.at) over (partition by t.execution_id order by t.id) as until
           from suture.timeline t) as c
       on c.execution_id = o.execution_id and c.epoch = o.epoch and c.to_status = 'running'
where c.actor is distinct from 'worker ' || w.name
   or o.finished_at < c.at
   or o.finished_at > c.until

-- rule: each step has one result, and every step has one
select q.id, format('has %s of %s results', count(o.step_id), (select count(*) from oracle.steps)) as why
from oracle.enqueued q join suture.executions e on e.id = q.id and e.status = 'completed'
left join suture.operation_outputs o on o.execution_id = q.id
group by q.id
having array_agg(o.step_id order by o.step_id) is distinct from (select array_agg(step order by step) from oracle.steps)

-- rule: no step body begins after its checkpoint
select b.id, format('%s of epoch %s began %s after its checkpoint of epoch %s', b.step, b.epoch, b.at - o.finished_at, o.epoch) as why
from oracle.bodies b join suture.operation_outputs o on o.execution_id = b.id and o.step_id = b.step
where b.at > o.finished_at

-- rule: no step body begins before the one before it has its result
select b.id, format('%s began at %s, %s was done at %s', b.step, b.at, p.step, o.finished_at) as why
from oracle.bodies b
join oracle.steps s on s.step = b.step
join oracle.steps p on p.place = s.place - 1
left join suture.operation_outputs o on o.execution_id = b.id and o.step_id = p.step
where o.step_id is null or b.at < o.finished_at - interval '1 ms' -- the two clocks are read one after the other

-- rule: each effect happens once in the world outside
select id, format('%s happened %s times', wanted.key, (select count(*) from oracle.acts a where a.key = wanted.key)) as why
from (select q.id, s.step || '-' || q.id as key from oracle.enqueued q cross join oracle.steps s where s.kind = 'effect') as wanted
where (select count(*) from oracle.acts a where a.key = wanted.key) <> 1

-- rule: nobody acts who could have found an earlier act
select later.id, format('%s was done at %s and again after a look at %s', later.key, earlier.at, later.looked_at) as why
from oracle.acts later join oracle.acts earlier on earlier.key = later.key and earlier.at < later.looked_at

-- rule: the ledger knows each effect as done, by the execution that wanted it
select q.id, format('%s is %s, of %s', s.step, coalesce(f.state, 'unknown'), f.execution_id) as why
from oracle.enqueued q cross join oracle.steps s
join suture.executions e on e.id = q.id and e.status = 'completed'
left join suture.effects f on f.kind = s.step and f.key = s.step || '-' || q.id
where s.kind = 'effect' and (f.state is distinct from 'confirmed' or f.execution_id <> q.id)

-- rule: each wait has its event, and the one that was accepted
select q.id, format('accepted %s, kept %s, woken %s times, the wait is %s, the result says %s', a.by, v.payload, n.times, w.outcome, e.output ->> 'approved_by') as why
from oracle.enqueued q
join suture.executions e on e.id = q.id and e.status = 'completed'
left join (select id, count(*) as times, min(by) as by from oracle.emitted where name = 'approval' group by id) as a on a.id = q.id
left join suture.events v on v.execution_id = q.id and v.name = 'approval'
left join suture.workflow_waits w on w.execution_id = q.id and w.step_id = 'approval'
left join suture.operation_outputs o on o.execution_id = q.id and o.step_id = 'approval'
cross join lateral (select count(*) as times from suture.timeline t where t.execution_id = q.id and t.reason = 'event approval') as n
where a.times is distinct from 1
   or v.payload is distinct from to_jsonb(a.by)
   or o.output is distinct from jsonb_build_object('outcome', 'event', 'payload', a.by)
   or e.output ->> 'approved_by' is distinct from a.by
   or w.outcome is distinct from 'event'
   or n.times > 1

-- rule: nobody sleeps shorter than wished
select w.execution_id as id, format('%s ended at %s, it was to last until %s', w.step_id, o.finished_at, w.wake_at) as why
from suture.workflow_waits w join suture.operation_outputs o on o.execution_id = w.execution_id and o.step_id = w.step_id
where o.kind = 'sleep' and o.finished_at < w.wake_at

-- rule: nothing is held when all is over
select e.id, format('is %s, owned by %s', e.status, e.owner_id) as why
from suture.workflow_executions e where e.owner_id is not null or e.lease_expires is not null
