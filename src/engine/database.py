"""The database: a pool of connections, named statements, transactions, LISTEN. The only file that imports asyncpg.

Foreign errors are translated here, their cause is kept. A pooler between us and Postgres is found out here, and nothing is left in a
session that may be somebody else's next. Knows nothing of executions.
"""

import asyncio
import contextlib
import copy
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import asyncpg

from suture.engine.address import DIRECT, URL, check, refused
from suture.engine.statements import Statement, load
from suture.errors import Conflict, DatabaseUnavailable, IllegalTransition, InvalidRequest, NoSession, SutureError

log = logging.getLogger(__name__)

Row = Mapping[str, Any]
Notification = Callable[[str, str], None]
"""Called with channel and payload."""

_UNAVAILABLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what the driver says of a connection that Postgres has just ended
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.InvalidAuthorizationSpecificationError,  # a password that is being rotated, a role that is not made yet
    asyncpg.InvalidCatalogNameError,  # a database that is not made yet
    asyncpg.ReadOnlySQLTransactionError,  # the old primary after a failover
    asyncpg.FeatureNotSupportedError,  # the same of an unlogged table: our statements ask for nothing that a primary cannot do
)
_NOT_MIGRATED = (
    asyncpg.InvalidSchemaNameError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedColumnError,
    asyncpg.UndefinedFunctionError,
)
_COLLISIONS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""Of these the connection knows nothing: trying again on it helps."""

_READS_ONLY = (asyncpg.ReadOnlySQLTransactionError, asyncpg.FeatureNotSupportedError)

_LAST_WORD = 1.0  # seconds
_UNNAMED: dict[str, Any] = {"statement_cache_size": 0}

_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
"""By index, in its order: when a statement is planned a table may be empty, and all of it be read until its statistics say otherwise."""
_PLAN_ONCE = "; ".join(f"set {name} = {value}" for name, value in _PLAN.items())
_PLAN_AS_USUAL = "; ".join(f"set local {name} to default" for name in _PLAN)

_UNUSED = 300.0  # seconds after which a connection is closed: an idle worker beats and polls more often, and opening one is dear
_ATTEMPT = 10.0  # seconds for a connection or a statement that should take milliseconds; a black-holed network ends here


class _Translation:
    """A generator would do the same, and cost a tenth of a short statement."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None and (ours := _ours(error)) is not None:
            raise ours from error


_TRANSLATION = _Translation()


def translated() -> AbstractContextManager[None]:
    """Turn what the driver raises into our errors."""
    return _TRANSLATION


@contextmanager
def reaching(url: str, setting: str = URL) -> Iterator[None]:
    """Of a failure to connect to `url`: name where it leads and the setting that holds it. Raises: DatabaseUnavailable."""
    try:
        yield
    except (*_UNAVAILABLE, ValueError, OverflowError) as error:
        raise refused(error, url, setting) from error


def _ours(error: BaseException) -> SutureError | None:
    """What an error of the driver means to us; None for one that is no business of ours."""
    match error:
        case asyncpg.PostgresError() if error.sqlstate == "SU001":
            return IllegalTransition(f"{error}.")
        case _ if isinstance(error, _UNAVAILABLE):
            return DatabaseUnavailable(f"Postgres does not answer as it should ({type(error).__name__}): {_safe(error)}")
        case _ if isinstance(error, _NOT_MIGRATED):
            return DatabaseUnavailable(f"The database is not of this version ({_safe(error)}): run `suture migrate`.")
        case asyncpg.UniqueViolationError():
            return Conflict(f"Postgres holds such a row already: {_safe(error)}.")
        case asyncpg.DataError() | asyncpg.ProgramLimitExceededError():
            # A NUL character in a name, a number that no column can hold, names too long for an index: the caller's value, not ours.
            return InvalidRequest(f"Postgres cannot keep a value of this request: {_safe(error)}.")
    return None


def _safe(error: BaseException) -> str:
    # The driver's own texts name hosts and users, never the password.
    return str(error).splitlines()[0] if str(error) else "no details"


class Session:
    """Runs named statements on one connection."""

    def __init__(self, connection: Any, statements: Mapping[str, Statement]) -> None:
        self.connection = connection
        self._statements = statements

    async def many(self, name: str, *args: object) -> list[Row]:
        """All rows of the statement `name`; $1, $2, … are `args`."""
        with translated():
            rows: list[Row] = await self.connection.fetch(self._text(name, "many"), *args, timeout=_ATTEMPT)
            return rows

    async def maybe(self, name: str, *args: object) -> Row | None:
        """Its row, or None."""
        with translated():
            row: Row | None = await self.connection.fetchrow(self._text(name, "maybe"), *args, timeout=_ATTEMPT)
            return row

    async def one(self, name: str, *args: object) -> Row:
        """Its row. Raises: LookupError when there is none."""
        with translated():
            row: Row | None = await self.connection.fetchrow(self._text(name, "one"), *args, timeout=_ATTEMPT)
        if row is None:
            raise LookupError(f"statement {name} returned no row")
        return row

    async def none(self, name: str, *args: object) -> None:
        """Run it for what it does."""
        with translated():
            await self.connection.execute(self._text(name, "none"), *args, timeout=_ATTEMPT)

    def _text(self, name: str, cardinality: str) -> str:
        statement = self._statements[name]
        if statement.cardinality != cardinality:
            raise TypeError(f"statement {name} returns {statement.cardinality}, it was called as {cardinality}")
        return statement.text


class Database:
    """A pool that opens connections as they are needed and outlives an outage of Postgres."""

    def __init__(
        self,
        url: str,
        *,
        direct: str | None = None,
        size: int = 10,
        packages: Sequence[str] = ("suture.engine",),
        plan_once: bool = False,
    ) -> None:
        self.statements = load(*packages)
        self._url, self._direct, self._size, self._plan_once = url, direct or url, size, plan_once
        self._pool: asyncpg.Pool[Any] | None = None
        self._pooled = self._warned = self._unreached = False

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        *,
        direct: str | None = None,
        size: int = 10,
        packages: Sequence[str] = ("suture.engine",),
        plan_once: bool = False,
    ) -> AsyncIterator[Self]:
        """Open a pool on `url`, and close it at the end.

        `plan_once`: a connection plans each statement once, for any value and by index, and not for each of its first five values. For a
        process that makes the same few for ever, as a worker: to plan a claim takes longer than the claim. Without effect through a pooler.
        Raises: ConfigError for an address that is none. Postgres itself may be away: statements then raise DatabaseUnavailable.
        """
        database = cls(url, direct=direct, size=size, packages=packages, plan_once=plan_once)
        await database.open()
        try:
            yield database
        finally:
            await database.close()

    async def open(self) -> None:
        """Make the pool, and no connection yet. `connect` does it, and closes it at the end. Raises: ConfigError."""
        check(self._url, URL)
        check(self._direct, DIRECT)
        # min_size 0: start-up succeeds while Postgres is away, and readiness says so, instead of a crash loop.
        self._pool = asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            timeout=_ATTEMPT,
            command_timeout=60,
            max_inactive_connection_lifetime=_UNUSED,
            connect=self._dial,
            reset=_keep,
        )
        with translated():
            await self._pool

    async def close(self) -> None:
        """Close every connection, those that are in use after five seconds."""
        if self._pool is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._pool.close(), 5)
            self._pool.terminate()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """One connection, each statement its own transaction."""
        if self._pool is None:
            raise SutureError("The database is not open: use it inside `async with Database.connect(…)`.")
        with translated():
            # A timer and a task more would cost as much as a short statement: an idle connection is there at once, and the pool itself
            # sees to it that a release is not cut short.
            connection = await (self._pool.acquire() if self._pool.get_idle_size() else self._open_one(self._pool))
        try:
            yield Session(connection, self.statements)
        except DatabaseUnavailable as error:
            if not isinstance(error.__cause__, _COLLISIONS):
                # In an unknown state, or one to an old primary that only reads: whoever comes next opens a new one.
                await asyncio.shield(self._discard(connection, error.__cause__))
            raise
        finally:
            await self._release(connection)

    @asynccontextmanager
    async def transaction(self, *, lent: bool = False) -> AsyncIterator[Session]:
        """One connection, one transaction: all of it is committed when the block ends, or none of it.

        `lent`: it is for somebody else's statements, which are planned as the server itself would.
        """
        async with self.session() as session:
            transaction = session.connection.transaction()
            with translated():
                await transaction.start()
            try:
                if lent and self._plan_once and not self._pooled:
                    with translated():
                        await session.connection.execute(_PLAN_AS_USUAL, timeout=_ATTEMPT)
                yield session
            except BaseException:
                # Postgres rolls back by itself what a lost connection leaves: the block's own error is the one to hear of.
                with contextlib.suppress(*_UNAVAILABLE, asyncpg.PostgresError):
                    await transaction.rollback()
                raise
            with translated():
                await transaction.commit()

    async def many(self, name: str, *args: object) -> list[Row]:
        """All rows of the statement `name`; $1, $2, … are `args`."""
        async with self.session() as session:
            return await session.many(name, *args)

    async def maybe(self, name: str, *args: object) -> Row | None:
        """Its row, or None."""
        async with self.session() as session:
            return await session.maybe(name, *args)

    async def one(self, name: str, *args: object) -> Row:
        """Its row. Raises: LookupError when there is none."""
        async with self.session() as session:
            return await session.one(name, *args)

    async def none(self, name: str, *args: object) -> None:
        """Run it for what it does."""
        async with self.session() as session:
            await session.none(name, *args)

    def twin(self, *, size: int) -> "Database":
        """Another pool on the same address, not yet open: connections belong to the event loop that opened them."""
        twin = copy.copy(self)
        twin._pool, twin._size = None, size
        return twin

    async def listen(
        self, channels: Sequence[str], notify: Notification, *, greet: Callable[[Session], Awaitable[None]], every: timedelta
    ) -> None:
        """Hold one connection of its own that hears `channels`. Returns only when it is lost or cancelled.

        `greet` runs on it first and then `every` so often, which finds out a connection that died without a sign.
        Raises: DatabaseUnavailable. NoSession when a pooler answers: what it heard or locked would be in a session of nobody's.
        """
        connection, pooled = await self._reach_directly()
        if pooled:
            connection.terminate()
            raise self._no_session()
        lost = asyncio.Event()
        connection.add_termination_listener(lambda *_: lost.set())
        try:
            with translated():
                for channel in channels:
                    await connection.add_listener(channel, lambda _c, _p, name, payload: notify(name, str(payload)))
            while not lost.is_set():
                await greet(Session(connection, self.statements))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), every.total_seconds())
        finally:
            connection.terminate()
        raise DatabaseUnavailable("the connection that listens was lost")

    async def _open_one(self, pool: "asyncpg.Pool[Any]") -> Any:
        try:
            return await pool.acquire(timeout=_ATTEMPT)
        except TimeoutError as error:
            if pool.get_size() < self._size:
                raise refused(error, self._url) from error
            raise DatabaseUnavailable(
                f"Postgres was not asked: all {self._size} connections of this process were in use for {_ATTEMPT:g} s. "
                "Raise SUTURE_DATABASE_POOL, or find out what holds them (pg_stat_activity)."
            ) from error

    async def _dial(self, *address: Any, **options: Any) -> "asyncpg.Connection[Any]":
        """A connection for the pool; through a pooler one that prepares no statement by name.

        A pooler gives each transaction whatever server connection is free, and there the name may be missing or, what is worse, be that
        of another process' statement, which would run without an error. So it is found out before the first statement.
        """
        assumed = self._pooled
        with reaching(self._url):
            how = _UNNAMED if assumed else {"plan_once": self._plan_once}
            connection, self._pooled = await _connect(*address, **options, **how)
            if assumed or not self._pooled:
                return connection
            connection.terminate()
            log.info("a pooler stands between us and Postgres: no statement is kept prepared")
            return (await _connect(*address, **options, **_UNNAMED))[0]

    async def _reach_directly(self) -> "tuple[asyncpg.Connection[Any], bool]":
        setting = URL if self._direct == self._url else DIRECT
        try:
            with reaching(self._direct, setting):
                found = await _connect(self._direct, timeout=_ATTEMPT)
        except DatabaseUnavailable as error:
            if setting == DIRECT and not self._unreached:  # the pool has an address of its own, and may work without a word
                log.warning("no hints and no presence, so work is found later than need be: %s", error)
            self._unreached = True
            raise
        self._unreached = False
        return found

    def _no_session(self) -> NoSession:
        error = NoSession(
            "A pooler stands between us and Postgres: work is found by polling and the lost by their leases, both later than need be. "
            "Give an address that leads to Postgres itself as SUTURE_DATABASE_DIRECT."
        )
        if not self._warned:
            log.warning("%s", error)
            self._warned = True
        return error

    async def _discard(self, connection: Any, why: BaseException | None) -> None:
        if self._pooled and isinstance(why, _READS_ONLY):
            # Of ours only the way to the pooler would end: it would lend the same session to an old primary again, for an hour.
            with contextlib.suppress(*_UNAVAILABLE, asyncpg.PostgresError):
                await connection.execute("select pg_terminate_backend(pg_backend_pid())", timeout=_LAST_WORD)
        with contextlib.suppress(asyncpg.InterfaceError):  # it has gone already
            connection.terminate()

    async def _release(self, connection: Any) -> None:
        if self._pool is not None:
            with contextlib.suppress(*_UNAVAILABLE, asyncpg.PostgresError):
                await self._pool.release(connection, timeout=5)


async def _connect(*address: Any, plan_once: bool = False, **options: Any) -> "tuple[asyncpg.Connection[Any], bool]":
    """A connection, and whether its other end is a pooler and not Postgres: then the process that answers is not the one that greeted.

    Asked by the simple protocol, which prepares nothing and answers with the count of rows. In the time of UTC: a duration of 24 hours goes
    to Postgres as a day, and where clocks change a day has 23 or 25.
    """
    connection = await asyncpg.connect(*address, **options, server_settings={"timezone": "UTC"})
    try:
        answer = await connection.execute(f"select where pg_backend_pid() = {connection.get_server_pid()}", timeout=_ATTEMPT)
        if plan_once and answer == "SELECT 1":
            await connection.execute(_PLAN_ONCE, timeout=_ATTEMPT)
    except BaseException:
        connection.terminate()
        raise
    return connection, answer != "SELECT 1"


async def _keep(_: object) -> None:
    """No statement of ours leaves anything in its session: a round trip to reset it after each one would be for nothing."""
