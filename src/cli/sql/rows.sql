-- name: remediates
-- one: whether this database also keeps what remediations ask people
select to_regclass('suture.approvals') is not null as here
