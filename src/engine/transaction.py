"""A transactional step's two handles: the connection for the caller's own SQL, and what the step has done.

The caller's rows and the step's checkpoint are one transaction (see `Run.transaction`). Knows nothing of claims.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Generic, Literal, TypeVar

from suture.engine.database import Database, Row, Session, translated
from suture.engine.statements import Statement
from suture.errors import InvalidRequest

T = TypeVar("T")

Isolation = Literal["read committed", "repeatable read", "serializable"]


class Connection(Session):
    """Runs the caller's SQL inside the step's transaction; `Engine.enqueue` and `emit` join it as their `session`.

    Commit and rollback are the step's own affair: end the block to commit, raise to roll back. Parameters are $1, $2, …
    """

    def __init__(self, connection: Any, statements: Mapping[str, Statement], *, step: str) -> None:
        super().__init__(connection, statements)
        self._step = step

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run a command; returns its status, e.g. "UPDATE 3"."""
        with translated():
            return str(await self._open().execute(query, *args, timeout=timeout))

    async def executemany(self, query: str, args: Iterable[Iterable[object]], *, timeout: float | None = None) -> None:
        """Run a command once for each row of `args`."""
        with translated():
            await self._open().executemany(query, args, timeout=timeout)

    async def fetch(self, query: str, *args: object, timeout: float | None = None) -> list[Row]:
        """All rows."""
        with translated():
            rows: list[Row] = await self._open().fetch(query, *args, timeout=timeout)
            return rows

    async def fetchrow(self, query: str, *args: object, timeout: float | None = None) -> Row | None:
        """The first row, or None."""
        with translated():
            row: Row | None = await self._open().fetchrow(query, *args, timeout=timeout)
            return row

    async def fetchval(self, query: str, *args: object, timeout: float | None = None) -> Any:
        """The first row's first value, or None."""
        with translated():
            return await self._open().fetchval(query, *args, timeout=timeout)

    def close(self) -> None:
        """The block is over: its transaction can take no more. Raises: InvalidRequest when the block's SQL has ended it."""
        connection: Any = self.connection
        self.connection = None
        if not connection.is_in_transaction():
            raise InvalidRequest(
                f"The SQL of the transaction {self._step} has ended it: leave commit and rollback to the end of its block."
            )

    def _open(self) -> Any:
        if self.connection is None:
            raise InvalidRequest(
                f"The transaction {self._step} is committed: look at `done` before you run SQL in it, and run none after its block."
            )
        return self.connection


@asynccontextmanager
async def opened(database: Database, isolation: Isolation, *, step: str) -> AsyncIterator[tuple[Session, Connection]]:
    """A transaction for a step: the engine's handle to it, and the caller's, which is to be closed before the step is written."""
    async with database.transaction(lent=True) as session:
        connection = Connection(session.connection, database.statements, step=step)
        if isolation != "read committed":
            await connection.execute(f"set transaction isolation level {isolation}")
        try:
            yield session, connection
        finally:
            connection.connection = None


class Done(Generic[T]):
    """What a transactional step has done; true when an earlier run committed it, and the block's SQL is then to be left out."""

    def __init__(self, *, earlier: bool, value: T | None = None) -> None:
        self._earlier, self.value = earlier, value
        """After the block: the step's committed result."""

    def __bool__(self) -> bool:
        return self._earlier

    def set(self, value: T) -> None:
        """Give the step its result, None by default; it is committed with the block's SQL."""
        if self._earlier:
            raise InvalidRequest("The transaction is committed and has its result: set one only where `done` is false.")
        self.value = value
