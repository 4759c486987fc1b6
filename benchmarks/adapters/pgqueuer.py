"""pgqueuer 1.6: asyncpg pool driver, durable tables (default), NOTIFY on, uvloop (its CLI's default)."""

import asyncio
import json
import os
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

BATCH = int(os.environ.get("BENCH_PGQUEUER_BATCH", "200"))
MAXC = int(os.environ.get("BENCH_PGQUEUER_MAXC", "0"))
LEASE = int(os.environ.get("BENCH_LEASE", "30"))
CAPS = {"W0", "W1", "L", "S"}
SETTINGS = f"asyncpg single connection, batch_size={BATCH}, max_concurrent_tasks={MAXC or 'None (unlimited)'}, durability=durable, uvloop"


async def _queries(dsn):
    return Queries(AsyncpgDriver(await asyncpg.connect(dsn)))


def setup(dsn):
    async def go():
        q = await _queries(dsn)
        await q.install()

    asyncio.run(go())


def _pay(i, t=0.0):
    return json.dumps({"i": i, "t": t}).encode()


def enqueue_bulk(dsn, kind, n):
    async def go():
        q = await _queries(dsn)
        t0 = time.perf_counter()
        for a in range(0, n, 1000):
            k = min(n, a + 1000) - a
            await q.enqueue(["noop"] * k, [_pay(i) for i in range(a, a + k)], [0] * k)
        return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_conc(dsn, kind, n, clients):
    async def go():
        qs = [await _queries(dsn) for _ in range(clients)]
        it = iter(range(n))

        async def one(q):
            for i in it:
                await q.enqueue("noop", _pay(i), 0)

        t0 = time.perf_counter()
        await asyncio.gather(*(one(q) for q in qs))
        return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    async def go():
        q = await _queries(dsn)
        start = time.perf_counter()
        for i in range(rate * secs):
            await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
            await q.enqueue("noop", _pay(i, time.time()), 0)

    uvloop.run(go())


def run_worker(dsn, kind, sink, idx):
    async def go():
        pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn)))

        @pgq.entrypoint("noop")
        async def noop(job):
            sink.hit()
            if sink._fd is not None:
                p = json.loads(job.payload)
                sink.log(p["i"], 0, p["t"])

        sink.ready()
        await pgq.run(
            dequeue_timeout=timedelta(seconds=30),
            batch_size=BATCH,
            max_concurrent_tasks=MAXC or None,
            heartbeat_timeout=timedelta(seconds=LEASE),
        )

    uvloop.run(go())


REMAINING_SQL = "select count(*) from pgqueuer"
DONE_SQL = "select count(*) from pgqueuer_log where status='successful'"


def seed(cur, pending, completed):
    cur.execute("set session_replication_role=replica")
    if completed:
        cur.execute(
            """insert into pgqueuer_log(job_id,status,entrypoint,priority,aggregated)
            select g,'successful','noop',0,true from generate_series(1,%s) g""",
            (completed,),
        )
    if pending:
        cur.execute(
            """insert into pgqueuer(priority,status,entrypoint,payload)
            select 0,'queued','noop',convert_to('{"i": 1, "t": 0.0}','utf8')
            from generate_series(1,%s) g""",
            (pending,),
        )


def claim_probe(dsn, kind, n):
    import uuid

    from pgqueuer.ports.repository import EntrypointExecutionParameter

    async def go():
        q = await _queries(dsn)
        out = []
        for _ in range(n):
            t = time.perf_counter()
            await q.dequeue(
                batch_size=BATCH,
                entrypoints={"noop": EntrypointExecutionParameter(concurrency_limit=0)},
                queue_manager_id=uuid.uuid4(),
                global_concurrency_limit=None,
                heartbeat_timeout=timedelta(seconds=LEASE),
            )
            out.append(time.perf_counter() - t)
        return out

    return uvloop.run(go())
