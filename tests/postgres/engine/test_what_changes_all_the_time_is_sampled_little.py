"""A worker's neighbours do not notice that its tables are analyzed: the sample is a tenth of the usual, in months to come as well."""

SAMPLED = """
select t.relname || '.' || a.attname as column, coalesce(a.attstattarget, -1) as target
from pg_class t
left join pg_index i on i.indrelid = t.oid
join pg_attribute a on a.attnum > 0 and not a.attisdropped
                   and (a.attrelid = t.oid or a.attrelid = i.indexrelid and a.attnum <= i.indnkeyatts and i.indkey[a.attnum - 1] = 0)
where t.relnamespace = 'suture'::regnamespace and t.relkind in ('r', 'p') and t.relname ~ $1
"""


async def test_each_column_and_each_expression_of_an_index_is(psql):
    await psql.execute("select suture.add_month(name, key, by_id, date '2040-01-01') from suture.partitioned_tables()")
    found = dict(await psql.fetch(SAMPLED, "^(workflow_executions|(moves|operation_outputs)(_[0-9]+|_default)?)$"))
    assert {column for column, target in found.items() if target != 10} == set()
    assert {"workflow_executions.id", "moves_204001.at", "moves_default.at", "operation_outputs_204001.output"} < found.keys()
    assert "workflow_executions.urgency" in found  # an expression of executions_due


async def test_history_keeps_the_whole_sample(psql):
    assert {target for _, target in await psql.fetch(SAMPLED, "^workflow_history")} == {-1}
