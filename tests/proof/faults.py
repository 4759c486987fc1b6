"""The faults of a campaign: which, when and on whom is drawn from a seed; each is a real thing that happens to a process, to Postgres,
to the network between them, to a clock or to a disk.
"""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from tests.nursery import ROOT
from tests.proof.fleet import FAKETIME, Fleet, Worker
from tests.proof.server import Server

LEASE = 2.0
"""Seconds; short, so that a campaign ends in minutes."""
WORKER = {"lease": LEASE, "heartbeat": 0.5, "grace": 0.5, "restart": 2.0, "poll": 0.5, "drain": 3.0, "crash_limit": 100, "concurrency": 64}
"""A worker is lost again and again: what survives more of that than the default allows must not count as its killer. And there are places
enough for one worker to do it all: nothing waits only because the others are frozen."""

WEIGHTS = {
    "kill": 80,  # SIGKILL, and a new process after a moment
    "freeze": 60,  # SIGSTOP for longer than the lease, then SIGCONT
    "drain": 60,  # SIGTERM, and a new process at once
    "cut": 70,  # all of a worker's connections end
    "hole": 50,  # nothing passes, for less or more than the lease; what was under way arrives late or never
    "terminate": 60,  # pg_terminate_backend for some of the workers' backends
    "crash": 15,  # Postgres stops as with `pg_ctl stop -m immediate` and is started again
    "clock": 45,  # a worker's clock is ten minutes wrong, either way, or right again
    "serialization": 25,  # for a moment every third write is refused with 40001 or 40P01
    "deadlock": 25,  # others lock rows that the workers write, in the other order
    "disk": 10,  # the volume of the database is full
}

TROUBLE = """
create schema trouble;
create table trouble.now (chance float8, state text);
insert into trouble.now values (0, '40001');
create function trouble.stumble() returns trigger language plpgsql as $$
begin
    if random() < (select chance from trouble.now) then
        raise exception 'trouble' using errcode = (select state from trouble.now);
    end if;
    return null;
end $$;
"""
TABLES = ("workflow_executions", "operation_outputs", "operation_failures", "workflow_waits", "events", "effects")


@dataclass(frozen=True)
class Fault:
    kind: str
    pause: float
    """Seconds since the one before."""
    slot: int
    lasts: float
    """Seconds."""
    choice: float
    """In [0, 1): what else there is to choose."""


def plan(seed: int, count: int, *, slots: int, mean: float) -> list[Fault]:
    """The same faults for the same seed: every kind by its weight, in random order, `mean` seconds apart on average."""
    chance = random.Random(seed)
    total = sum(WEIGHTS.values())
    kinds = [kind for kind, weight in WEIGHTS.items() for _ in range(max(1, round(count * weight / total)))]
    kinds += chance.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=max(0, count - len(kinds)))  # what rounding took
    chance.shuffle(kinds)
    return [Fault(kind, chance.uniform(0, 2 * mean), chance.randrange(slots), _lasts(kind, chance), chance.random()) for kind in kinds]


def _lasts(kind: str, chance: random.Random) -> float:
    between = {
        "kill": (0.0, 1.0),
        "freeze": (LEASE + 0.3, LEASE + 1.5),
        "hole": (0.2, 2 * LEASE),
        "crash": (0.0, 2.0),
        "serialization": (0.2, 1.0),
        "deadlock": (0.3, 1.0),
        "disk": (0.5, 1.5),
    }
    return chance.uniform(*between.get(kind, (0.0, 0.0)))


def missing(server: Server) -> dict[str, str]:
    """The kinds that this machine cannot do, and why."""
    found = {}
    if not FAKETIME:
        found["clock"] = "libfaketime is missing: install Debian's faketime"
    if not server.mounted:
        found["disk"] = "only root may mount a small volume"
    return found


@dataclass(eq=False)
class Slot:
    """A place for a worker, with a way of its own to Postgres."""

    number: int
    url: str
    lives: int = 0
    worker: Worker | None = None
    hurt: int = 0
    """Faults under way that hold it up."""


@dataclass(eq=False)
class Stage:
    """All that a fault can happen to."""

    server: Server
    fleet: Fleet
    slots: list[Slot]
    proxy: asyncio.subprocess.Process
    postgres_away: int = 0
    done: dict[str, int] = field(default_factory=dict)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Faults of Postgres as a whole: two at once are one."""

    @property
    def healthy(self) -> bool:
        """Whether Postgres and a worker are untouched at this moment."""
        return not self.postgres_away and any(not slot.hurt for slot in self.slots)

    def start(self, slot: Slot) -> None:
        slot.lives += 1
        slot.worker = self.fleet.start(url=slot.url, name=f"w{slot.number}-{slot.lives}", **WORKER)

    async def strike(self, fault: Fault) -> None:
        self.done[fault.kind] = self.done.get(fault.kind, 0) + 1
        strike: Callable[[Fault, Slot], Awaitable[None]] = getattr(self, f"_{fault.kind}")
        await strike(fault, self.slots[fault.slot])

    def tell_proxy(self, verb: str, slot: Slot) -> None:
        assert self.proxy.stdin
        self.proxy.stdin.write(f"{verb} {slot.number}\n".encode())

    async def mend(self) -> None:
        """Everything is as it should be again: nobody is frozen, cut off or wrong about the time; four workers live."""
        self.server.free()
        if not self.server.is_up:
            await self.server.stop()
            await self.server.start()
        for slot in self.slots:
            self.tell_proxy("heal", slot)
            assert slot.worker
            slot.worker.signal(signal.SIGCONT)
            slot.worker.set_clock(0)
            if not slot.worker.alive:
                self.start(slot)

    @asynccontextmanager
    async def _hurting(self, slot: Slot) -> AsyncIterator[None]:
        slot.hurt += 1
        try:
            yield
        finally:
            slot.hurt -= 1

    @asynccontextmanager
    async def _away(self) -> AsyncIterator[None]:
        async with self._one_at_a_time:
            self.postgres_away += 1
            try:
                yield
            finally:
                self.postgres_away -= 1

    async def _kill(self, fault: Fault, slot: Slot) -> None:
        assert slot.worker
        async with self._hurting(slot):
            victim = slot.worker
            victim.signal(signal.SIGKILL)
            await asyncio.sleep(fault.lasts)
            if slot.worker is victim:  # nobody else has replaced it meanwhile
                self.start(slot)

    async def _freeze(self, fault: Fault, slot: Slot) -> None:
        assert slot.worker
        async with self._hurting(slot):
            frozen = slot.worker
            frozen.signal(signal.SIGSTOP)
            await asyncio.sleep(fault.lasts)
            frozen.signal(signal.SIGCONT)

    async def _drain(self, fault: Fault, slot: Slot) -> None:
        assert slot.worker
        slot.worker.signal(signal.SIGTERM)
        self.start(slot)

    async def _cut(self, fault: Fault, slot: Slot) -> None:
        self.tell_proxy("cut", slot)

    async def _hole(self, fault: Fault, slot: Slot) -> None:
        async with self._hurting(slot):
            self.tell_proxy("hole", slot)
            await asyncio.sleep(fault.lasts)
            self.tell_proxy("heal" if fault.choice < 0.5 else "reset", slot)

    async def _terminate(self, fault: Fault, slot: Slot) -> None:
        query = """select count(pg_terminate_backend(pid)) from pg_stat_activity
                   where backend_type = 'client backend' and application_name = 'worker' and random() < $1"""
        await self._at_psql(lambda psql: psql.execute(query.replace("$1", f"{fault.choice:.3f}")))

    async def _crash(self, fault: Fault, slot: Slot) -> None:
        async with self._away():
            await self.server.crash()
            await asyncio.sleep(fault.lasts)
            await self.server.start()

    async def _clock(self, fault: Fault, slot: Slot) -> None:
        assert slot.worker
        slot.worker.set_clock((-600, 600, 0)[int(fault.choice * 3)])

    async def _serialization(self, fault: Fault, slot: Slot) -> None:
        state = "40001" if fault.choice < 0.7 else "40P01"
        await self._at_psql(lambda psql: psql.execute(f"update trouble.now set chance = 0.3, state = '{state}'"))
        await asyncio.sleep(fault.lasts)
        while not await self._at_psql(lambda psql: psql.execute("update trouble.now set chance = 0")):
            await asyncio.sleep(0.1)

    async def _deadlock(self, fault: Fault, slot: Slot) -> None:
        """Two of them: one from the greatest id down, as no statement of the engine does, and one from the least."""
        end = asyncio.get_running_loop().time() + fault.lasts
        while asyncio.get_running_loop().time() < end:
            await asyncio.gather(*(self._at_psql(lambda psql, order=order: _lock_one_by_one(psql, order)) for order in ("asc", "desc")))

    async def _disk(self, fault: Fault, slot: Slot) -> None:
        async with self._away():
            self.server.fill()
            await asyncio.sleep(fault.lasts)
            self.server.free()
            if not self.server.is_up or not await self.server.answers():
                await self.server.crash()
                await self.server.start()

    async def _at_psql(self, work: Callable[["asyncpg.Connection[Any]"], Awaitable[Any]]) -> bool:
        """Whether it could be done: Postgres may be away at the same time."""
        try:
            connection = await asyncpg.connect(self.server.url, timeout=5)
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return False
        try:
            await asyncio.wait_for(work(connection), 10)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return False
        finally:
            connection.terminate()
        return True


async def _lock_one_by_one(psql: "asyncpg.Connection[Any]", order: str) -> None:
    async with psql.transaction():
        ids = await psql.fetch(f"select id from suture.workflow_executions where status = 'running' order by id {order} limit 6")
        for row in ids:
            await psql.execute("select from suture.workflow_executions where id = $1 for no key update", row["id"])
            await asyncio.sleep(0.01)


async def prepare(psql: "asyncpg.Connection[Any]") -> None:
    """What a refused write needs in the database."""
    await psql.execute(TROUBLE)
    for table in TABLES:
        await psql.execute(
            f"create trigger stumble before insert or update on suture.{table} for each statement execute function trouble.stumble()"
        )


@asynccontextmanager
async def network(server: Server, count: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[str]]]:
    """The proxy, and the addresses that lead through it."""
    proxy = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.proof.proxy", str(server.socket), str(count),
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert proxy.stdout
    try:
        ports = (await proxy.stdout.readline()).split()
        yield proxy, [f"postgresql://suture@127.0.0.1:{int(port)}/suture?sslmode=disable&application_name=worker" for port in ports]
    finally:
        with suppress(ProcessLookupError):
            proxy.kill()
        await proxy.wait()
