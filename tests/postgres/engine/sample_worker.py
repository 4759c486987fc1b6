"""A worker process for the tests, with workflows whose outside world is a folder of files.

Forked by a nursery. A worker may be told to kill itself at the n-th boundary: before or after each statement of an execution, each
commit, and each act in the outside world.
"""

import asyncio
import contextlib
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from suture.engine import Database, Retry, Run, Session, Workflows, workflow
from suture.engine.database import Row
from suture.errors import TemporaryError
from tests import nursery


@dataclass(frozen=True, kw_only=True)
class Orders(nursery.Orders):
    name: str = "sample"
    direct: str | None = None
    grace: float = 0.1
    restart: float = 0.0
    poll: float = 0.2
    kill_at: int = 0


@dataclass
class Boundaries:
    """Counts the places at which a process may die, and dies at the wanted one."""

    kill_at: int
    passed: list[str] = field(default_factory=list)

    def cross(self, place: str) -> None:
        self.passed.append(place)
        if len(self.passed) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class World:
    """The outside: what is done here stays done, whoever dies."""

    def __init__(self, folder: Path, boundaries: Boundaries) -> None:
        self.folder, self.boundaries = folder, boundaries

    def note(self, name: str) -> None:
        """Add a line that says which process was here."""
        with (self.folder / name).open("a") as file:
            file.write(f"{os.getpid()}\n")

    def act(self, key: str) -> str:
        self.boundaries.cross(f"before {key}")
        name = f"{key}.{uuid.uuid4().hex}"
        (self.folder / name).write_text("done")
        self.boundaries.cross(f"after {key}")
        return name

    def find(self, key: str) -> str | None:
        self.boundaries.cross(f"look for {key}")
        return next((path.name for path in self.folder.glob(f"{key}.*")), None)

    async def until(self, name: str) -> None:
        while not (self.folder / name).exists():
            await asyncio.sleep(0.01)


class Counted(Session):
    """A session that tells of each statement of an execution."""

    boundaries: Boundaries
    names = frozenset(
        {"load_checkpoints", "load_failures", "checkpoint", "checkpoint_again", "intend", "confirm", "complete", "fail", "retry"}
        | {"lock_held", "open_wait", "find_event", "settle_wait", "suspend"}
        | {"start_child", "find_child_result", "child_results", "find_map", "open_map", "put_inputs", "feed_map", "close_map"}
        | {"take_endings", "lock_parents", "count_endings", "wake_parents", "cancel_orphans"}
    )

    async def maybe(self, name: str, *args: object) -> Row | None:
        with self._told(name):
            return await super().maybe(name, *args)

    async def one(self, name: str, *args: object) -> Row:
        with self._told(name):
            return await super().one(name, *args)

    async def none(self, name: str, *args: object) -> None:
        with self._told(name):
            await super().none(name, *args)

    async def many(self, name: str, *args: object) -> list[Row]:
        with self._told(name):
            rows = await super().many(name, *args)
        if name == "claim" and rows:
            self.boundaries.cross("after claim")
        return rows

    @contextlib.contextmanager
    def _told(self, name: str) -> Any:
        if name in self.names:
            self.boundaries.cross(f"before {name}")
        yield
        if name in self.names:
            self.boundaries.cross(f"after {name}")


class CountedDatabase(Database):
    boundaries: Boundaries

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        async with super().session() as plain:
            counted = Counted(plain.connection, self.statements)
            counted.boundaries = self.boundaries
            yield counted

    @asynccontextmanager
    async def transaction(self, *, lent: bool = False) -> AsyncIterator[Session]:
        async with super().transaction(lent=lent) as session:
            yield session
            self.boundaries.cross("before commit")
        self.boundaries.cross("after commit")


# Workflows -------------------------------------------------------------------------------------------------------------------


@workflow("effects", retry=Retry(attempts=3, initial=timedelta(0)))
async def effects(run: Run, _: None) -> list[str]:
    world: World = run.resources
    await run.step("prepare", prepare, world)
    first = await run.effect(
        "announce", key=f"announce-{run.id}", find=finder(world, "announce"), act=actor(world, "announce"), returns=str
    )
    await run.sleep("pause", timedelta(0))
    await run.step("stumble", stumble, world)
    second = await run.effect("deliver", key=f"deliver-{run.id}", find=finder(world, "deliver"), act=actor(world, "deliver"), returns=str)
    return [first, second]


async def prepare(world: World) -> None:
    world.note("prepare")


async def stumble(world: World) -> None:
    """Fails the first time, so that a retry is among the boundaries."""
    if not (world.folder / "stumbled").exists():
        world.note("stumbled")
        raise TemporaryError("not yet", delay=timedelta(0))


def finder(world: World, key: str) -> Any:
    async def find() -> str | None:
        return world.find(key)

    return find


def actor(world: World, key: str) -> Any:
    async def act() -> str:
        return world.act(key)

    return act


@workflow("three-steps", retry=Retry(attempts=3, initial=timedelta(0)))
async def three_steps(run: Run, _: None) -> int:
    """The middle step lasts until a file says otherwise."""
    world: World = run.resources
    await run.step("first", first_step, world)
    await run.step("hold", hold, world)
    await run.step("last", last_step, world)
    return os.getpid()


async def first_step(world: World) -> int:
    world.note("first")
    return os.getpid()


async def hold(world: World) -> int:
    world.note("hold")
    await world.until("released")
    return os.getpid()


async def last_step(world: World) -> int:
    world.note("last")
    return os.getpid()


@workflow("crasher")
async def crasher(run: Run, _: None) -> None:
    """Kills whoever runs it."""
    await run.step("crash", crash, run.resources)


async def crash(world: World) -> None:
    world.note("crash")
    os.kill(os.getpid(), signal.SIGKILL)


@workflow("blocker")
async def blocker(run: Run, seconds: float) -> int:
    return await run.step("block", block, run.resources, seconds)


async def block(world: World, seconds: float) -> int:
    """Blocks the event loop, as careless code does."""
    world.note("block")
    time.sleep(seconds)
    return os.getpid()


@workflow("family", retry=Retry(attempts=3, initial=timedelta(0)))
async def family(run: Run, _: None) -> list[int]:
    """A child and a map of three, one of them at a time."""
    child = await run.start("only", 10, workflow=noted)
    mapped = await run.map("all", noted, [1, 2, 3], concurrency=1)
    return [await child.result(), *mapped]


@workflow("keyed-family", retry=Retry(attempts=3, initial=timedelta(0)))
async def keyed_family(run: Run, _: None) -> list[int]:
    """As `family`, with one key for the child and two of the map's."""
    child = await run.start("only", 10, workflow=noted, concurrency_key="k")
    mapped = await run.map("all", noted, [1, 2, 3], concurrency=2, concurrency_keys=["k", "k", None])
    return [await child.result(), *mapped]


@workflow("noted", retry=Retry(attempts=3, initial=timedelta(0)))
async def noted(run: Run, number: int) -> int:
    run.resources.note(f"child-{number}")
    return await run.step("double", double, number)


async def double(number: int) -> int:
    return 2 * number


@workflow("billing", retry=Retry(attempts=3, initial=timedelta(0)))
async def billing(run: Run, amount: int) -> int:
    """Writes into a table of the caller's, public.ledger."""
    world: World = run.resources
    await run.step("prepare", prepare, world)
    async with run.transaction("bill", int) as (connection, done):
        if not done:
            world.boundaries.cross("before the caller's SQL")
            total = await connection.fetchval("select coalesce(sum(amount), 0)::bigint from public.ledger")
            await connection.execute("insert into public.ledger (execution_id, amount) values ($1, $2)", run.id, amount)
            world.boundaries.cross("after the caller's SQL")
            if (world.folder / "hold-bills").exists():
                world.note("inside")
                await world.until("released")
            done.set(total + amount)
    await run.step("last", last_step, world)
    return done.value  # type: ignore[no-any-return]


@workflow("busy")
async def busy(run: Run, how: str) -> int:
    """Is somewhere until a file says otherwise: between its claim and its first step, in a step, in a thread, in a transaction."""
    world: World = run.resources
    if how == "before the first step":
        await hold(world)
    elif how == "in a transaction":
        async with run.transaction("busy", int) as (connection, done):
            await connection.execute("create table if not exists halves (n int)")
            await connection.execute("insert into halves values (1)")
            done.set(await hold(world))
    else:
        await run.step("busy", hold_thread if how == "in a thread" else hold, world)
    return os.getpid()


async def hold_thread(world: World) -> int:
    world.note("hold")

    def wait() -> None:
        while not (world.folder / "released").exists():
            time.sleep(0.01)

    await asyncio.to_thread(wait)
    return os.getpid()


@workflow("naps", retry=Retry(attempts=3, initial=timedelta(seconds=1), jitter=0))
async def naps(run: Run, _: None) -> None:
    """Pauses of every kind."""
    await run.step("stumble", stumble_once, run.resources)
    await run.sleep("sleep", timedelta(seconds=2))
    await run.wait("nobody", str, timeout=timedelta(seconds=1))


async def stumble_once(world: World) -> None:
    if not (world.folder / "stumbled").exists():
        world.note("stumbled")
        raise TemporaryError("not yet")


# A worker's life --------------------------------------------------------------------------------------------------------------


async def work(orders: Orders) -> None:
    world = World(Path(orders.world), Boundaries(orders.kill_at))
    known = Workflows()
    for function in (effects, three_steps, crasher, blocker, family, keyed_family, noted, billing, busy, naps):
        known.add(function)
    direct = orders.direct if orders.presence else nursery.NOWHERE
    database = CountedDatabase(orders.url, direct=direct, size=4, plan_once=True)
    database.boundaries = world.boundaries
    await database.open()
    runner = nursery.runner_for(orders, database, known, suspect=orders.crash_limit - 1, resources=world)
    world.note(f"owner-{runner.owner}")
    await runner.run()
    await database.close()
    (world.folder / "boundaries").write_text("\n".join(world.boundaries.passed))


if __name__ == "__main__":
    nursery.tend(Orders, work)
