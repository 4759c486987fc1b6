"""Retention: what ended long ago goes, by the month, and the coming months are made.

Partitions are dropped, rows are not deleted, but for the few places where there is no partition to drop: the ledger of effects, dead
letters, and what came with an id of another time or form. How a month is chosen and what holds it back stands beside the tables, in the
first migration. Any number of workers may do this at the same time; one that meets a lock leaves it to the next pass.
"""

import logging
from datetime import timedelta
from uuid import UUID

from suture.engine.database import Database

log = logging.getLogger(__name__)

MONTHS = 12
"""Partitions that one pass drops at most."""

BATCH = 1_000
"""Rows that one statement looks at."""

_BATCHES = 20  # of one table in a pass
_FIRST = UUID(int=0)

_BY_AGE = (
    ("effects", "execution_id", 1),
    ("dead_letters", "execution_id", 1),
    ("fan_outs", "parent_id", 1),
    ("child_results", "parent_id", 2),
)
"""Tables without partitions whose rows go with their execution, the column that names it, and how many times longer they stay: the
results of children are still looked at by forks of their parent."""


class Retention:
    """One process's part in it. `keep` is how long an execution stays after its end, at least; its month goes as a whole."""

    def __init__(self, database: Database, *, keep: timedelta) -> None:
        self._database, self._keep = database, keep
        self._reached: dict[str, UUID] = {}
        self._held: set[str] = set()
        self._warned = False

    async def turn(self) -> list[str]:
        """One pass; the names of the partitions that were dropped. Raises: DatabaseUnavailable."""
        made = await self._database.one("add_partitions")
        if not made["tables"]:
            self._warn()
        dropped = await self._drop_months()
        await self._database.many("forget_ended", self._keep, BATCH)
        for table, key, longer in _BY_AGE:
            await self._forget(table, key, age=self._keep * longer)
        for row in await self._database.many("defaults"):
            await self._forget(f"{row['name']}_default", row["key"], age=None)
        return dropped

    async def _drop_months(self) -> list[str]:
        """Each in a transaction of its own: a strong lock on one table at a time, for as long as it takes to drop a file."""
        dropped = []
        for row in await self._database.many("old_months", self._keep, MONTHS):
            outcome = (await self._database.one("drop_month", row["parent"], row["key"], row["by_id"], row["month"]))["outcome"]
            name = f"{row['parent']}_{row['month']:%Y%m}"
            if outcome == "dropped":
                dropped.append(name)
            self._tell(name, outcome)
        return dropped

    def _tell(self, name: str, outcome: str) -> None:
        if outcome == "dropped":
            log.info("a month is dropped", extra={"partition": name})
        elif outcome == "held" and name not in self._held:
            self._held.add(name)
            log.warning("a month is older than the retention and held by executions that live, or ended lately", extra={"partition": name})

    async def _forget(self, table: str, key: str, *, age: timedelta | None) -> None:
        """Go on where the last pass has stopped."""
        for _ in range(_BATCHES):
            row = await self._database.one("forget", table, key, self._reached.get(table, _FIRST), age, BATCH)
            self._reached[table] = row["last"] or _FIRST
            if row["last"] is None:
                break

    def _warn(self) -> None:
        if not self._warned:
            log.warning(
                "this role does not own the engine's tables: it makes no partitions and drops none. Let their owner run a worker, "
                "or `select suture.add_months()` once a month and `suture.drop_month` on what `suture.old_months` names"
            )
        self._warned = True
