"""The fault campaign: workers run thousands of executions while everything that can happen to them happens; then the oracle judges."""

import asyncio
import contextlib
import random
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from suture.engine import Database, Engine, migrate
from suture.errors import DatabaseUnavailable, IllegalTransition
from tests.proof import oracle
from tests.proof.faults import LEASE, Slot, Stage, missing, network, plan, prepare
from tests.proof.figures import Figure, Say, at_most, none_of, skipped
from tests.proof.fleet import fleet, forget
from tests.proof.server import server

SETTINGS = {
    "max_connections": "200",
    "deadlock_timeout": "100ms",
    "min_wal_size": "32MB",
    "max_wal_size": "64MB",
    "restart_after_crash": "on",
}
SLOTS = 4
_GLANCE = 0.2  # seconds between two looks at what stands still
_OVERDUE = """
    select id, 'a lease that ran out' as what from suture.workflow_executions where status = 'running' and lease_expires < now()
    union all
    select id, 'due and not claimed' from suture.workflow_executions where status = 'enqueued' and run_at < now()
    union all
    select e.id, 'a sleep that is over' from suture.workflow_executions e join suture.workflow_waits w on w.execution_id = e.id
    where e.status = 'waiting' and w.step_id = e.step and w.outcome is null and w.wake_at < now()
    union all
    select e.id, 'an event that is there' from suture.workflow_executions e
    join suture.workflow_waits w on w.execution_id = e.id and w.step_id = e.step
    join suture.events v on v.execution_id = e.id and v.name = w.event
    where e.status = 'waiting' and w.outcome is null
"""


@dataclass(frozen=True)
class Size:
    executions: int
    faults: int
    mean: float
    """Seconds between two faults, on average."""
    leases: int = 3
    """For so long may anything due stand still."""


FULL = Size(executions=2_000, faults=500, mean=1.1)
SHORT = Size(executions=300, faults=60, mean=1.1, leases=6)
"""Beside other tests, which take the processor from the workers: heartbeats of half a second are late then."""


def prove(say: Say, *, seed: int, quick: bool) -> list[Figure]:
    return asyncio.run(run(say, seed=seed, size=SHORT if quick else FULL))


async def run(say: Say, *, seed: int, size: Size) -> list[Figure]:
    world = Path(tempfile.mkdtemp(prefix="suture-campaign-"))
    try:
        async with server(settings=SETTINGS, own_volume=True) as postgres:
            await migrate(postgres.url)
            psql = await asyncpg.connect(postgres.url)
            await prepare(psql)
            await psql.close()
            with fleet(world) as ships:
                async with network(postgres, SLOTS) as (proxy, urls):
                    stage = Stage(postgres, ships, [Slot(number, url) for number, url in enumerate(urls)], proxy)
                    campaign = Campaign(say, stage, size, random.Random(seed))
                    await campaign.run(seed)
            return await campaign.judge(world)
    finally:
        forget(world)


@dataclass(eq=False)
class Campaign:
    say: Say
    stage: Stage
    size: Size
    chance: random.Random
    enqueued: dict[UUID, int] = field(default_factory=dict)
    emitted: set[tuple[UUID, str, str]] = field(default_factory=set)
    waited: dict[tuple[UUID, str], float] = field(default_factory=dict)
    """For how long something due has stood still so far, counted only while Postgres and a worker were untouched."""
    longest: tuple[float, str] = (0.0, "")
    worst: UUID | None = None
    after: float = 0.0
    """Seconds from the last fault until everything had ended."""

    async def run(self, seed: int) -> None:
        faults = [f for f in plan(seed, self.size.faults, slots=SLOTS, mean=self.size.mean) if f.kind not in missing(self.stage.server)]
        lasts = sum(fault.pause for fault in faults)
        self.say(f"seed {seed}: {len(faults)} faults in {lasts:.0f} s, {self.size.executions} executions, lease {LEASE:g} s")
        for slot in self.stage.slots:
            self.stage.start(slot)
        async with Database.connect(self.stage.server.url, size=12) as database:
            engine = Engine(database)
            watching = asyncio.create_task(self._watch(database))
            feeding = asyncio.create_task(self._feed(engine, pause=0.9 * lasts / self.size.executions))
            try:
                async with asyncio.TaskGroup() as strikes:
                    for number, fault in enumerate(faults):
                        await asyncio.sleep(fault.pause)
                        strikes.create_task(self.stage.strike(fault))
                        if number % 50 == 49:
                            self.say(f"{number + 1} faults, {len(self.enqueued)} enqueued")
                await self.stage.mend()
                mended = time.monotonic()
                self.say(f"the last fault is over: {self.stage.done}")
                await feeding
                await self._until_all_ended(database)
                self.after = time.monotonic() - mended
                self.say(f"all has ended {self.after:.1f} s later")
            finally:
                for task in (watching, feeding):
                    task.cancel()
                await asyncio.gather(watching, feeding, return_exceptions=True)
        for slot in self.stage.slots:
            assert slot.worker
            slot.worker.signal(signal.SIGTERM)
        for worker in self.stage.fleet.started:
            await worker.gone()

    # The client --------------------------------------------------------------------------------------------------------------

    async def _feed(self, engine: Engine, *, pause: float) -> None:
        async with asyncio.TaskGroup() as telling:
            for number in range(self.size.executions):
                await asyncio.sleep(self.chance.uniform(0, 2 * pause))
                order = {
                    "number": number,
                    "sleep": round(self.chance.uniform(0, 0.5), 3),
                    "work": round(self.chance.choice([0, 0.05, 0.2, 0.2, self.chance.uniform(0.5, 2.5 * LEASE)]), 3),
                    "stumbles": self.chance.random() < 0.1,
                }
                telling.create_task(self._one(engine, order, [self.chance.uniform(0, 3) for _ in range(self.chance.choice([1, 1, 1, 2]))]))

    async def _one(self, engine: Engine, order: dict[str, Any], emissions: list[float]) -> None:
        """Enqueue it, whatever it takes, and tell it what it waits for, once or from two sides."""
        id_ = await self._insist(lambda: engine.enqueue("five-steps", order, actor="client", operation_key=f"order-{order['number']}"))
        self.enqueued[id_.execution.id] = order["number"]
        await asyncio.gather(*(self._emit(engine, id_.execution.id, f"client {n}", delay) for n, delay in enumerate(emissions)))

    async def _emit(self, engine: Engine, id_: UUID, by: str, delay: float) -> None:
        await asyncio.sleep(delay)
        with contextlib.suppress(IllegalTransition):  # the other one was first, and it has ended already
            event = await self._insist(lambda: engine.emit(id_, "approval", by, actor=by))
            if event.payload == by:  # a second try finds what the first has done although nobody heard of it
                self.emitted.add((id_, "approval", by))

    async def _insist(self, work: Any) -> Any:
        while True:
            try:
                return await work()
            except DatabaseUnavailable:
                await asyncio.sleep(self.chance.uniform(0.05, 0.2))

    # The watch over what stands still ----------------------------------------------------------------------------------------

    async def _watch(self, database: Database) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(_GLANCE)
            now, healthy = time.monotonic(), self.stage.healthy
            try:
                async with database.session() as session:
                    rows = await session.connection.fetch(_OVERDUE)
            except (DatabaseUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
                last = time.monotonic()
                continue
            # On a machine that has no time for this process either, nobody can be blamed for all of it.
            passed = min(now - last, 2 * _GLANCE) if healthy and self.stage.healthy else 0.0
            last = now
            self.waited = {key: self.waited.get(key, 0.0) + passed for key in ((row["id"], row["what"]) for row in rows)}
            if self.waited:
                (id_, what), seconds = max(self.waited.items(), key=lambda item: item[1])
                if seconds > self.longest[0]:
                    self.longest, self.worst = (seconds, f"{id_}: {what}"), id_

    async def _until_all_ended(self, database: Database) -> None:
        """Wait for as long as there is any hope: the oracle tells what was lost."""
        end = time.monotonic() + 20 * LEASE
        while time.monotonic() < end:
            async with database.session() as session:
                left = await session.connection.fetchval("select count(*) from suture.executions where finished_at is null")
            if not left:
                return
            await asyncio.sleep(0.1)

    # The judgement -----------------------------------------------------------------------------------------------------------

    async def judge(self, world: Path) -> list[Figure]:
        psql = await asyncpg.connect(self.stage.server.url)
        try:
            await oracle.testify(psql, world, enqueued=self.enqueued, emitted=self.emitted)
            found = await oracle.judge(psql)
            crashes, epochs = await psql.fetchrow("select sum(crashes), sum(epoch) from suture.executions")
            bodies = await psql.fetchval("select count(*) from oracle.bodies")
            if self.longest[0] > self.size.leases * LEASE:
                for move in await psql.fetch("select * from suture.timeline where execution_id = $1 order by id", self.worst):
                    self.say(f"{move['at']:%H:%M:%S.%f} {move['from_status']} -> {move['to_status']} by {move['actor']}: {move['reason']}")
        finally:
            await psql.close()
        self.say(f"{len(self.enqueued)} executions, {epochs} claims, {crashes} taken from the lost, {bodies} bodies began")
        made = sum(self.stage.done.values())
        return [
            Figure("faults", f"{made}", f">= {self.size.faults}", made >= self.size.faults, str(self.stage.done)),
            *(skipped(f"fault: {kind}", "done", why) for kind, why in missing(self.stage.server).items()),
            *(none_of(name, broken) for name, broken in found.items()),
            at_most("longest that anything due stood still", self.longest[0], self.size.leases * LEASE, "s", self.longest[1]),
        ]
