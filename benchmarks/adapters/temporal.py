"""Temporal (Python SDK 1.35) against a server at BENCH_TEMPORAL_ADDR. A step = an activity."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor  # noqa: F401
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

ADDR = os.environ.get("BENCH_TEMPORAL_ADDR", "127.0.0.1:17233")
CONC = int(os.environ.get("BENCH_TEMPORAL_CONC", "100"))
POLLERS = int(os.environ.get("BENCH_TEMPORAL_POLLERS", "10"))
LOCAL = os.environ.get("BENCH_TEMPORAL_LOCAL", "0") == "1"
CAPS = {"W0", "W1", "W3", "W3x2", "L", "R"}
SETTINGS = (
    f"async worker, unsandboxed workflows, max_concurrent_workflow_tasks={CONC}, "
    f"max_concurrent_activities={CONC}, pollers={POLLERS}, "
    f"{'local activities' if LOCAL else 'activities'}, start_to_close 10 s, sticky timeout 10 s"
)
NEEDS_SERVER = True
SERVER_MODE = "memory"  # the CLI dev server keeps nothing on disk: NOT durable
N_DIV, N3_DIV = 10, 5  # fewer items, for time; rates are per second all the same
_sink = None


@activity.defn(name="s")
async def s(i: int, k: int) -> int:
    _sink.log(i, k)
    return k


@activity.defn(name="ssleep")
async def ssleep(i: int, k: int) -> int:
    _sink.log(i, k)
    await asyncio.sleep(0.05)
    return k


@workflow.defn(name="noop")
class Noop:
    @workflow.run
    async def run(self, i: int, t: float) -> None:
        if not workflow.unsafe.is_replaying():
            _sink.hit()
            _sink.log(i, 0, t)


async def _step(a, i, k):
    if LOCAL:
        await workflow.execute_local_activity(a, args=[i, k], start_to_close_timeout=timedelta(seconds=10))
    else:
        await workflow.execute_activity(a, args=[i, k], start_to_close_timeout=timedelta(seconds=10))


@workflow.defn(name="wf3")
class Wf3:
    @workflow.run
    async def run(self, i: int, t: float) -> None:
        for k in range(3):
            await _step(s, i, k)
        if not workflow.unsafe.is_replaying():
            _sink.hit()


@workflow.defn(name="wf3sleep")
class Wf3Sleep:
    @workflow.run
    async def run(self, i: int, t: float) -> None:
        for k in range(3):
            await _step(ssleep, i, k)
        if not workflow.unsafe.is_replaying():
            _sink.hit()


def setup(dsn):
    pass


async def _start(c, kind, i, t):
    await c.start_workflow(kind, args=[i, t], id=f"{kind}-{os.getpid()}-{i}", task_queue="q")


def enqueue_conc(dsn, kind, n, clients):
    async def go():
        c = await Client.connect(ADDR)
        it = iter(range(n))

        async def one():
            for i in it:
                await _start(c, kind, i, 0.0)

        t0 = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        return time.perf_counter() - t0

    return asyncio.run(go())


def enqueue_bulk(dsn, kind, n):
    """No bulk API: 64 starts in flight."""
    return enqueue_conc(dsn, kind, n, 64)


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    async def go():
        c = await Client.connect(ADDR)
        start = time.perf_counter()
        for i in range(rate * secs):
            await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
            await _start(c, kind, i, time.time())

    asyncio.run(go())


def run_worker(dsn, kind, sink, idx):
    global _sink
    _sink = sink

    async def go():
        c = await Client.connect(ADDR)
        w = Worker(
            c,
            task_queue="q",
            workflows=[Noop, Wf3, Wf3Sleep],
            activities=[s, ssleep],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_workflow_tasks=CONC,
            max_concurrent_activities=CONC,
            max_concurrent_local_activities=CONC,
            max_concurrent_workflow_task_polls=POLLERS,
            max_concurrent_activity_task_polls=POLLERS,
            max_cached_workflows=10000,
        )
        sink.ready()
        await w.run()

    asyncio.run(go())


def remaining():
    async def go():
        c = await Client.connect(ADDR)
        r = await c.count_workflows("ExecutionStatus='Running'")
        d = await c.count_workflows("ExecutionStatus='Completed'")
        return r.count, d.count

    return asyncio.run(go())
