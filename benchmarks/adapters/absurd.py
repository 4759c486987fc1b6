"""Absurd SDK 0.5.1 with the SQL that absurdctl 0.5.1 installs. One connection per client by design."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd

CONC = int(os.environ.get("BENCH_ABSURD_CONC", "1"))
BATCH = int(os.environ.get("BENCH_ABSURD_BATCH", "50"))
POLL = float(os.environ.get("BENCH_ABSURD_POLL", "0.02"))
LEASE = int(os.environ.get("BENCH_LEASE", "120"))
MODE = os.environ.get("BENCH_ABSURD_MODE", "sync")
CAPS = {"W0", "W1", "W3", "W3x2", "L", "R"}
SETTINGS = (
    f"{MODE} worker, concurrency={CONC}, batch_size={BATCH}, poll_interval={POLL} (default 0.25), "
    f"claim_timeout={LEASE}; R: async, concurrency 50"
)


def setup(dsn):
    subprocess.run([os.path.join(os.path.dirname(sys.executable), "absurdctl"), "init", "-d", dsn], check=True, stdout=subprocess.DEVNULL)
    Absurd(dsn, queue_name="q").create_queue("q")


def enqueue_bulk(dsn, kind, n):
    """No bulk API in the SDK: spawn() on one connection, 1,000 to a transaction."""
    with psycopg.connect(dsn) as c:
        app = Absurd(c, queue_name="q")
        t0 = time.perf_counter()
        for a in range(0, n, 1000):
            for i in range(a, min(n, a + 1000)):
                app.spawn(kind, {"i": i, "t": 0.0}, queue="q")
            c.commit()
        return time.perf_counter() - t0


def enqueue_conc(dsn, kind, n, clients):
    it = iter(range(n))
    lock = threading.Lock()
    apps = [Absurd(dsn, queue_name="q") for _ in range(clients)]

    def one(app):
        while True:
            with lock:
                i = next(it, None)
            if i is None:
                return
            app.spawn(kind, {"i": i, "t": 0.0}, queue="q")

    ts = [threading.Thread(target=one, args=(a,)) for a in apps]
    t0 = time.perf_counter()
    [t.start() for t in ts]
    [t.join() for t in ts]
    return time.perf_counter() - t0


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    app = Absurd(dsn, queue_name="q")
    start = time.perf_counter()
    for i in range(rate * secs):
        time.sleep(max(0, start + i / rate - time.perf_counter()))
        app.spawn(kind, {"i": i, "t": time.time()}, queue="q")


def run_worker(dsn, kind, sink, idx):
    if kind == "wf3sleep" or MODE == "async":
        return _run_async(dsn, kind, sink, idx)
    app = Absurd(dsn, queue_name="q")

    @app.register_task("noop")
    def noop(params, ctx):
        sink.hit()
        sink.log(params["i"], 0, params["t"])

    @app.register_task("wf3")
    def wf3(params, ctx):
        for k in range(3):
            ctx.step(f"s{k}", lambda: k)
        sink.hit()

    sink.ready()
    app.start_worker(worker_id=f"w{idx}", claim_timeout=LEASE, concurrency=CONC, batch_size=BATCH, poll_interval=POLL)


def _run_async(dsn, kind, sink, idx):
    conc = 50 if kind == "wf3sleep" else CONC

    async def go():
        app = AsyncAbsurd(dsn, queue_name="q")

        @app.register_task("noop")
        async def noop(params, ctx):
            sink.hit()
            sink.log(params["i"], 0, params["t"])

        @app.register_task("wf3")
        async def wf3(params, ctx):
            for k in range(3):

                async def body():
                    return k

                await ctx.step(f"s{k}", body)
            sink.hit()

        @app.register_task("wf3sleep")
        async def wf3sleep(params, ctx):
            for k in range(3):

                async def body():
                    sink.log(params["i"], k)
                    await asyncio.sleep(0.05)
                    return k

                await ctx.step(f"s{k}", body)
            sink.hit()

        sink.ready()
        await app.start_worker(
            worker_id=f"w{idx}", claim_timeout=LEASE, concurrency=conc, batch_size=conc if kind == "wf3sleep" else BATCH, poll_interval=POLL
        )

    asyncio.run(go())


REMAINING_SQL = "select count(*) from absurd.t_q where state not in ('completed','failed','cancelled')"
DONE_SQL = "select count(*) from absurd.t_q where state='completed'"
