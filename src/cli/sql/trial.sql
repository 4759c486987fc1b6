-- name: set_password
-- none
-- $1 password text
--
-- A role's password takes no parameter in SQL: it goes through a setting of this session and is quoted by the server.
select set_config('suture.password', $1, false)

-- name: apply_password
-- none
do $$ begin execute format('alter role suture password %L', current_setting('suture.password')); end $$
