-- Where everything changes all the time autovacuum analyzes again and again: of a sample of 30,000 rows with forty columns that takes a third
-- of a second of one core, and whoever waits meanwhile notices. A tenth of the sample says enough: no statement of ours leans on more, and
-- those that could go astray are written so that they do not (see 0003 and `claim`). History is read by people and written once: it keeps
-- the whole sample.

create function suture.sample_less(the_table regclass) returns void language plpgsql as $$
declare
    k record;
begin
    for k in select attname from pg_attribute where attrelid = the_table and attnum > 0 and not attisdropped loop
        execute format('alter table %s alter column %I set statistics 10', the_table, k.attname);
    end loop;
    for k in select i.indexrelid::regclass as name, a.attnum
             from pg_index i
             join pg_attribute a on a.attrelid = i.indexrelid
             where i.indrelid = the_table and a.attnum <= i.indnkeyatts and i.indkey[a.attnum - 1] = 0 loop -- an expression: it is sampled, too
        execute format('alter index %s alter column %s set statistics 10', k.name, k.attnum);
    end loop;
end $$;

-- A trigger for TRUNCATE is not handed down to partitions, nor is what ANALYZE samples.
create or replace function suture.seal(partition text) returns void language plpgsql as $$
begin
    if partition like 'moves%' or partition like 'workflow_history%' then
        execute format('create trigger never_emptied before truncate on suture.%I for each statement execute function suture.refuse_change()',
                       partition);
    end if;
    if partition like 'moves%' or partition like 'operation_outputs%' then
        perform suture.sample_less(format('suture.%I', partition)::regclass);
    end if;
end $$;

select suture.sample_less(c.oid::regclass)
from pg_class c
where c.relnamespace = 'suture'::regnamespace and c.relkind in ('r', 'p')
  and (c.relname = 'workflow_executions' or c.relname like 'moves%' or c.relname like 'operation\_outputs%');
