-- name: add_partitions
-- one: how many partitions were made, and of how many tables this role may make any
--
-- The coming months, and any month in which something ended while nobody tidied.
select suture.add_months() as added, (select count(*) from suture.partitioned_tables()) as tables

-- name: old_months
-- many: the partitions that are older than the retention, in the order in which they may be dropped
-- $1 retention interval, $2 limit int
select parent, key, by_id, month from suture.old_months($1) limit $2

-- name: drop_month
-- one: dropped; held, by executions that are kept; busy, somebody reads or writes there; gone
-- $1 parent text, $2 key text, $3 by_id boolean, $4 month date
select suture.drop_month($1, $2, $3, $4) as outcome

-- name: defaults
-- many: the tables whose default holds rows, and the column that names the execution
select name, key from suture.partitioned_tables() where by_id

-- name: forget
-- one: the last key that was looked at, null at the end, and how many rows are gone
-- $1 table text, $2 key text, $3 after uuid, $4 retention interval (null: whatever the age), $5 most int
select last, forgotten
from suture.forget($1, $2, $3, coalesce(suture.id_at(now() - $4::interval), 'ffffffff-ffff-ffff-ffff-ffffffffffff'), $5)

-- name: forget_ended
-- many: the ids of executions that ended in no month for which there is a partition, long ago
-- $1 retention interval, $2 limit int
delete from suture.workflow_history_default
where ctid = any (array(select ctid from suture.workflow_history_default where finished_at < now() - $1::interval limit $2))
returning id
