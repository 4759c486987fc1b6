"""A worker process of the proof, and its workflow: five steps, two of them effects outside, with a sleep and a wait in between.

Forked by a nursery. Every body writes down that it began, in a world that no fault reaches.
"""

import asyncio
import json
import os
import random
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from suture.engine import Database, Retry, Run, Workflows, workflow
from suture.engine.database import Row
from suture.errors import TemporaryError
from tests import nursery


@dataclass(frozen=True, kw_only=True)
class Orders(nursery.Orders):
    clock: str = ""
    """The file from which libfaketime reads how wrong this worker's clock is."""


class World:
    """The outside: what is done here stays done, whoever dies. Its clock is the machine's monotonic one, the same for all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "acts").mkdir(exist_ok=True)
        self._bodies = os.open(folder / f"bodies-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def began(self, run: Run, step: str) -> None:
        """Write down that the body of a step begins."""
        _append(self._bodies, {"id": str(run.id), "step": step, "epoch": run.execution.epoch, "at": time.monotonic()})

    def act(self, key: str, *, looked_at: float) -> str:
        """Do it: whoever acts twice is seen to have acted twice."""
        file = os.open(self.folder / "acts" / key, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            _append(file, {"key": key, "pid": os.getpid(), "looked_at": looked_at, "at": time.monotonic()})
        finally:
            os.close(file)
        return key

    def find(self, key: str) -> str | None:
        path = self.folder / "acts" / key
        return key if path.exists() and path.stat().st_size else None


def _append(file: int, line: dict[str, object]) -> None:
    os.write(file, json.dumps(line).encode() + b"\n")  # one call: a kill comes before or after it
    os.fsync(file)


# The workflow ----------------------------------------------------------------------------------------------------------------


class Order(BaseModel):
    number: int
    sleep: float
    """Seconds."""
    work: float
    """Seconds that the longest step takes."""
    stumbles: bool
    """Whether its first step fails the first time."""


class Receipt(BaseModel):
    number: int
    approved_by: str
    announced: str
    delivered: str


@workflow("five-steps", retry=Retry(attempts=5, initial=timedelta(seconds=0.05)))
async def five_steps(run: Run, order: Order) -> Receipt:
    await run.step("reserve", reserve, run, order)
    announced = await effect(run, "announce")
    await run.sleep("pause", timedelta(seconds=order.sleep))
    await run.step("price", price, run, order)
    approved = await run.wait("approval", str)
    assert approved is not None
    delivered = await effect(run, "deliver")
    number = await run.step("settle", settle, run, order)
    return Receipt(number=number, approved_by=approved, announced=announced, delivered=delivered)


async def reserve(run: Run, order: Order) -> None:
    run.resources.began(run, "reserve")
    if order.stumbles and run.failures("reserve") == 0:
        raise TemporaryError("not yet", delay=timedelta(seconds=0.05))


async def price(run: Run, order: Order) -> None:
    run.resources.began(run, "price")
    await asyncio.sleep(order.work)


async def settle(run: Run, order: Order) -> int:
    run.resources.began(run, "settle")
    await asyncio.sleep(0)
    return order.number


async def effect(run: Run, name: str) -> str:
    """Both the question and the act take a while, and the act is done before its answer is here: a worker may die in between."""
    world: World = run.resources
    key, looked_at = f"{name}-{run.id}", 0.0

    async def find() -> str | None:
        nonlocal looked_at
        world.began(run, name)
        looked_at = time.monotonic()
        found = world.find(key)
        await asyncio.sleep(random.uniform(0, 0.01))
        return found

    async def act() -> str:
        # At once: a worker that is stopped past its lease between the engine's last look at it and this line is beyond every fence.
        done = world.act(key, looked_at=looked_at)
        await asyncio.sleep(random.uniform(0, 0.05))
        return done

    return await run.effect(name, key=key, find=find, act=act, returns=str)


@workflow("one-step")
async def one_step(run: Run, _: None) -> None:
    await run.step("only", nothing)


async def nothing() -> None:
    pass


# A worker's life -------------------------------------------------------------------------------------------------------------


class TimedDatabase(Database):
    """Writes down how long each claim took that took something."""

    claims: int

    async def many(self, name: str, *args: object) -> list[Row]:
        started = time.monotonic()
        rows = await super().many(name, *args)
        if name == "claim" and rows:
            line = {"at": started, "took": time.monotonic() - started, "rows": len(rows)}
            os.write(self.claims, json.dumps(line).encode() + b"\n")
        return rows


async def work(orders: Orders) -> None:
    if orders.clock:
        os.environ["FAKETIME_TIMESTAMP_FILE"] = orders.clock
    known = Workflows()
    known.add(five_steps)
    known.add(one_step)
    async with TimedDatabase.connect(orders.url, direct=None if orders.presence else nursery.NOWHERE, size=4, plan_once=True) as database:
        database.claims = os.open(Path(orders.world) / f"claims-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        await nursery.runner_for(orders, database, known, suspect=orders.crash_limit, resources=World(Path(orders.world))).run()


if __name__ == "__main__":
    nursery.tend(Orders, work)
