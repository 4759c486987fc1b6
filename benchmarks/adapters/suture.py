"""Suture's engine: one Runner, uvloop, its own defaults but for concurrency; bulk enqueue by the engine's bulk call."""

import asyncio
import gc
import logging
import os
import time
from datetime import timedelta

import uvloop

from suture.engine import Database, Engine, Lease, Runner, Workflows, migrate, workflow

CONC = int(os.environ.get("BENCH_SUTURE_CONC", "800"))
LEASE = int(os.environ.get("BENCH_LEASE", "30"))
CAPS = {"W0", "W1", "W3", "W3x2", "L", "H", "M", "R", "S"}
N3_MUL = 4
SETTINGS = f"Runner, asyncpg, uvloop, concurrency={CONC}, lease {LEASE} s, heartbeat lease/3, LISTEN, presence"


def settle():
    """As `suture worker`, `suture api` and `suture operator` begin."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def setup(dsn):
    asyncio.run(migrate(dsn, packages=("suture.engine",)))


def _input(i, t=0.0):
    return {"i": i, "t": t}


def enqueue_bulk(dsn, kind, n):
    settle()

    async def go():
        async with Database.connect(dsn) as database:
            engine = Engine(database)
            await engine.ping()
            t0 = time.perf_counter()
            for a in range(0, n, 5000):
                await engine.enqueue_many(kind, [_input(i) for i in range(a, min(n, a + 5000))], actor="bench")
            return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_conc(dsn, kind, n, clients):
    settle()

    async def go():
        async with Database.connect(dsn, size=clients) as database:
            engine, it = Engine(database), iter(range(n))
            await engine.ping()

            async def one():
                for i in it:
                    await engine.enqueue(kind, _input(i), actor="bench")

            t0 = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(clients)))
            return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    async def go():
        async with Database.connect(dsn) as database:
            engine = Engine(database)
            await engine.ping()
            start = time.perf_counter()
            for i in range(rate * secs):
                await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
                await engine.enqueue(kind, _input(i, time.time()), actor="bench")

    uvloop.run(go())


def enqueue_stream(dsn, kind, rate, secs):
    """`rate` a second, each enqueued on its own when its time has come, as callers that know nothing of each other do."""

    async def go():
        async with Database.connect(dsn) as database:
            engine, start = Engine(database), time.perf_counter()
            offset, under_way = time.time() - start, set()
            for i in range(rate * secs):
                due = start + i / rate
                if (pause := due - time.perf_counter()) > 0.001:
                    await asyncio.sleep(pause)
                task = asyncio.create_task(engine.enqueue(kind, _input(i, due + offset), actor="bench"))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.gather(*under_way)

    uvloop.run(go())


def held(dsn):
    """How many executions a worker holds, or wait, in the database's view."""

    async def go():
        async with Database.connect(dsn) as database:
            health = await Engine(database).health()
            return {one["status"]: one["count"] for one in health.depth}

    return uvloop.run(go())


def run_worker(dsn, kind, sink, idx):
    logging.disable(logging.CRITICAL)
    settle()
    known = Workflows()

    @known.add
    @workflow("noop")
    async def noop(run, asked: dict) -> None:
        sink.log(asked["i"], 0, asked["t"])
        sink.hit()

    async def fast(i: int, n: int, t: float) -> int:
        sink.log(i, n, t)
        return n

    async def slow(i: int, n: int, t: float) -> int:
        sink.log(i, n)
        await asyncio.sleep(0.05)
        return n

    async def three(run, asked, body):
        for n in range(3):
            await run.step(STEPS[n], body, asked["i"], n, asked["t"])
        sink.hit()

    @known.add
    @workflow("wf3")
    async def wf3(run, asked: dict) -> None:
        await three(run, asked, fast)

    async def linger(i: int) -> int:
        sink.hit()
        await asyncio.sleep(60)
        return i

    @known.add
    @workflow("hold")
    async def hold(run, asked: dict) -> None:
        await run.step("linger", linger, asked["i"])

    @known.add
    @workflow("await")
    async def await_(run, asked: dict) -> None:
        sink.hit()
        await run.wait("answer", dict, timeout=timedelta(days=1))

    @known.add
    @workflow("wf3sleep")
    async def wf3sleep(run, asked: dict) -> None:
        await three(run, asked, slow)

    async def go():
        async with Database.connect(dsn, plan_once=True) as database:  # as `suture worker` does
            lease = Lease(timedelta(seconds=LEASE), timedelta(seconds=LEASE / 3))
            runner = Runner(database, known, name=f"bench-{idx}", concurrency=CONC, lease=lease)
            sink.ready()
            await runner.run()

    uvloop.run(go())


STEPS = ("one", "two", "three")

REMAINING_SQL = "select count(*) from suture.workflow_executions where status in ('enqueued', 'running', 'waiting')"
DONE_SQL = "select count(*) from suture.executions where status = 'completed'"


def seed(cur, pending, completed):
    cur.execute("set session_replication_role = replica")
    row = "gen_random_uuid(), 'noop', '{\"i\": 1, \"t\": 0.0}'::jsonb, '\\x00', 'bench'"
    if completed:
        cur.execute(
            f"""insert into suture.workflow_history (id, workflow, input, input_digest, changed_by, status, finished_at, started_at, started_by,
                                                     epoch)
            select {row}, 'completed', now(), now(), 'bench', 1 from generate_series(1, %s)""",
            (completed,),
        )
    if pending:
        cur.execute(
            f"""insert into suture.workflow_executions (id, workflow, input, input_digest, changed_by)
            select {row} from generate_series(1, %s)""",
            (pending,),
        )


def claim_probe(dsn, kind, n):
    from uuid import uuid4

    async def go():
        out = []
        async with Database.connect(dsn) as database:
            for _ in range(n):
                t = time.perf_counter()
                await database.many("claim", uuid4(), ["default"], ["noop"], [1], 200, timedelta(seconds=LEASE), "probe", 3, False)
                out.append(time.perf_counter() - t)
        return out

    return uvloop.run(go())
