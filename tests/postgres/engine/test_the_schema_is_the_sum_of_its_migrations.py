"""I17: what the migrations add up to is the schema that docs/schema.md shows: no database drifts from what was reviewed."""

from tests.postgres.schema import PAGE, described


async def test_a_migrated_database_is_what_the_page_shows(psql):
    assert await described(psql) == PAGE.read_text(), "write it anew with `make generate` and look at what has changed"


async def test_what_is_changed_by_hand_is_seen(psql):
    for change in (
        "alter table suture.workers add column more text",
        "drop index suture.executions_due",
        "alter table suture.moves disable trigger append_only; drop trigger append_only on suture.moves",
        "alter table suture.workflow_executions drop constraint known_status",
        "create function suture.more() returns int language sql return 1",
    ):
        transaction = psql.transaction()
        await transaction.start()
        before = await described(psql)
        await psql.execute(change)
        assert await described(psql) != before
        await transaction.rollback()
