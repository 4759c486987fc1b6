"""The stage on which the engine's guarantees are tested: runners in this process, worker processes, and patience with a deadline."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest

from suture.engine import Database, Engine, Execution, Lease, Retry, Runner, Workflows
from suture.errors import DatabaseUnavailable
from tests.nursery import HEARD, Nursery, nursery
from tests.postgres.engine.sample_worker import Orders

PACKAGES = ("suture.engine", "suture.remediation")
QUICK = Retry(attempts=3, initial=timedelta(0))
"""Tries again at once."""

LEASE = Lease(grace=timedelta(seconds=0.1), restart=timedelta(0))
"""Of a Postgres that may have started just now: the tests' own."""

PATIENCE = float(os.environ.get("SUTURE_TEST_PATIENCE", "30"))
"""Seconds after which a wait is given up: nobody waits that long but on a machine that is busy, or for what is broken."""

T = TypeVar("T")


@asynccontextmanager
async def running(database: Database, *functions: Any, **options: Any) -> AsyncIterator[Runner]:
    """A runner in this process that knows `functions`."""
    known = Workflows()
    for function in functions:
        known.add(function)
    settings = {
        "name": "here",
        "poll": timedelta(seconds=0.05),
        "lease": LEASE,
        "drain": timedelta(0),
    } | options
    runner = Runner(database, known, **settings)
    life = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        runner.stop()
        await asyncio.wait_for(life, 20)


async def eventually(look: Callable[[], Awaitable[T]], *, within: float = PATIENCE, what: str = "it") -> T:
    """The first true answer of `look`; fails when there is none in time."""
    end = asyncio.get_running_loop().time() + within
    while not (answer := await _while_away(look)):
        if asyncio.get_running_loop().time() > end:
            pytest.fail(f"{what} did not happen within {within:g} s")
        await asyncio.sleep(0.01)
    return answer


async def _while_away(look: Callable[[], Awaitable[T]]) -> T | None:
    try:
        return await look()
    except DatabaseUnavailable:
        return None


async def ended(engine: Engine, id_: UUID, *, within: float = PATIENCE) -> Execution:
    async def look() -> Execution | None:
        found = await engine.get(id_)
        return found if found.finished_at else None

    return await eventually(look, within=within, what=f"the end of {id_}")


async def reached(engine: Engine, id_: UUID, status: str, *, within: float = PATIENCE) -> Execution:
    async def look() -> Execution | None:
        found = await engine.get(id_)
        return found if found.status == status else None

    return await eventually(look, within=within, what=f"{status} of {id_}")


@dataclass(frozen=True)
class Worker:
    """A worker process."""

    pid: int
    world: Path

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Tell it to stop; returns when it has heard."""
        self.signal(signal.SIGTERM)

        async def look() -> bool:
            return HEARD in self.log()

        await eventually(look, what=f"that process {self.pid} hears")

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def gone(self, *, within: float = PATIENCE) -> None:
        async def look() -> bool:
            return not self.alive

        await eventually(look, within=within, what=f"the end of process {self.pid}")

    def log(self) -> str:
        return (self.world / f"log-{self.pid}").read_text()


sample_workers = partial(nursery, "tests.postgres.engine.sample_worker")


class Workers:
    """The worker processes of one test."""

    def __init__(self, nursery: Nursery, url: str, world: Path, *, direct: str | None = None) -> None:
        self._nursery, self._url, self._direct, self.world = nursery, url, direct, world
        self.started: list[Worker] = []

    def start(self, **orders: Any) -> Worker:
        given = Orders(**({"url": self._url, "direct": self._direct, "world": str(self.world)} | orders))
        worker = Worker(self._nursery.fork(given), Path(given.world))
        self.started.append(worker)
        return worker

    def notes(self, name: str) -> list[int]:
        """The processes that were there, in order."""
        path = self.world / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    async def noted(self, name: str, *, times: int = 1, within: float = PATIENCE) -> list[int]:
        async def look() -> list[int]:
            return found if len(found := self.notes(name)) >= times else []

        return await eventually(look, within=within, what=f"{times} of {name}")

    def release(self) -> None:
        (self.world / "released").touch()
