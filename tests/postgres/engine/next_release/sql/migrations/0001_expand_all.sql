-- A column more in every table, as the last, where those who know nothing of it leave it alone; an index on it; a table, a function of the
-- same name and arguments, the views over what has changed.
do $$
declare
    k record;
begin
    for k in select c.oid::regclass as name from pg_class c
             where c.relnamespace = 'suture'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> 'migrations'
             order by c.relname loop
        execute format('alter table %s add column of_next_release text not null default ''next''', k.name);
        execute format('create index on %s (of_next_release)', k.name);
    end loop;
end $$;

create or replace view suture.executions as
    select * from suture.workflow_executions union all select * from suture.workflow_history;

create table suture.of_next_release (id uuid primary key);

create or replace function suture.latest_due() returns interval language sql stable parallel safe
return now() - timestamptz '2000-01-01 00:00:00+00' + interval '1 hour' + interval '0';
