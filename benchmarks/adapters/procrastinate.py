"""procrastinate 3.10: psycopg3 async connector, LISTEN/NOTIFY on, uvloop."""

import asyncio
import os
import time

import procrastinate
import uvloop

CONC = int(os.environ.get("BENCH_PROCRASTINATE_CONC", "20"))
POOL = int(os.environ.get("BENCH_PROCRASTINATE_POOL", "10"))
CAPS = {"W0", "W1", "L", "S"}
SETTINGS = f"async worker, concurrency={CONC}, psycopg pool max_size={POOL}, listen_notify=True, delete_jobs=never (default), uvloop"


def _app(dsn, size=POOL):
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=size, max_size=size))

    @app.task(name="noop", queue="q")
    async def noop(i, t):
        if app.sink is not None:
            app.sink.hit()
            app.sink.log(i, 0, t)

    app.sink = None
    return app, noop


def setup(dsn):
    async def go():
        app, _ = _app(dsn, 1)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(go())


def enqueue_bulk(dsn, kind, n):
    async def go():
        app, noop = _app(dsn, 1)
        async with app.open_async():
            t0 = time.perf_counter()
            for a in range(0, n, 1000):
                await noop.batch_defer_async(*({"i": i, "t": 0.0} for i in range(a, min(n, a + 1000))))
            return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_conc(dsn, kind, n, clients):
    async def go():
        app, noop = _app(dsn, min(clients, 32))
        async with app.open_async():
            it = iter(range(n))

            async def one():
                for i in it:
                    await noop.defer_async(i=i, t=0.0)

            t0 = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(clients)))
            return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    async def go():
        app, noop = _app(dsn, 1)
        async with app.open_async():
            start = time.perf_counter()
            for i in range(rate * secs):
                await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
                await noop.defer_async(i=i, t=time.time())

    uvloop.run(go())


def run_worker(dsn, kind, sink, idx):
    async def go():
        app, _ = _app(dsn)
        app.sink = sink
        async with app.open_async():
            sink.ready()
            await app.run_worker_async(queues=["q"], concurrency=CONC, wait=True, listen_notify=True, install_signal_handlers=False)

    uvloop.run(go())


REMAINING_SQL = "select count(*) from procrastinate_jobs where status in ('todo','doing')"
DONE_SQL = "select count(*) from procrastinate_jobs where status='succeeded'"


def seed(cur, pending, completed):
    """Called with a psycopg cursor on a database that has one exemplar job row."""
    cur.execute("set session_replication_role=replica")
    if completed:
        cur.execute(
            """insert into procrastinate_jobs(queue_name,task_name,args,status,attempts)
            select 'q','noop',jsonb_build_object('i',g,'t',0.0),'succeeded',1
            from generate_series(1,%s) g""",
            (completed,),
        )
    if pending:
        cur.execute(
            """insert into procrastinate_jobs(queue_name,task_name,args)
            select 'q','noop',jsonb_build_object('i',g,'t',0.0) from generate_series(1,%s) g""",
            (pending,),
        )


def claim_probe(dsn, kind, n):
    import psycopg

    out = []
    with psycopg.connect(dsn, autocommit=True) as c:
        w = c.execute("select procrastinate_register_worker_v1()").fetchone()[0]
        for _ in range(n):
            t = time.perf_counter()
            c.execute("SELECT * FROM procrastinate_fetch_job_v2(%s::varchar[], %s)", (["q"], w)).fetchall()
            out.append(time.perf_counter() - t)
    return out
