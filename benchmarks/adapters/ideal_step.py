"""The second ceiling: still no product, but shaped like an engine. One coroutine per workflow; every step awaits its
own durable checkpoint; a flusher writes whatever has gathered while the last write was on its way (natural group
commit, no timer); fenced by owner; heartbeats; expired leases are taken over and finished steps are skipped.
Schema and enqueue are those of adapters/ideal.py."""

import asyncio
import json
import os
import time

import asyncpg
import uvloop

from adapters.ideal import (
    DDL,
    DONE_SQL,
    LEASE,
    REMAINING_SQL,
    claim_probe,
    enqueue_bulk,
    enqueue_conc,  # noqa: F401
    enqueue_copy,
    enqueue_paced,
    enqueue_seq,
    seed,
    setup,
)

BATCH = int(os.environ.get("BENCH_STEP_BATCH", "200"))
INFLIGHT = int(os.environ.get("BENCH_STEP_INFLIGHT", "800"))
LANES = int(os.environ.get("BENCH_STEP_LANES", "2"))
CAPS = {"W0", "W3", "W3x2", "L", "R"}
N3_MUL = 4
SETTINGS = (
    f"asyncpg+uvloop, coroutine per workflow, in flight<={INFLIGHT}, claim batch<={BATCH}, "
    f"checkpoint flush by natural group commit in {LANES} lanes, fenced, heartbeat every lease/3, LISTEN/NOTIFY"
)

CLAIM = """
with c as (select id from job where state=0 and run_at<=now() order by priority, run_at, id
           limit $1 for update skip locked)
update job j set state=1, owner=$2, attempt=attempt+1, lease_until=now()+make_interval(secs=>$3)
from c where j.id=c.id returning j.id, j.kind, j.args, j.attempt"""
STEAL = """
with c as (select id from job where state=1 and lease_until<now() order by lease_until
           limit $1 for update skip locked)
update job j set owner=$2, attempt=attempt+1, lease_until=now()+make_interval(secs=>$3)
from c where j.id=c.id returning j.id, j.kind, j.args, j.attempt"""
# The fence is owner+attempt (owner is null once done) and NOT state=1: with it, stale statistics (a queue's running rows
# come and go) lure the planner into the partial lease index and a quadratic nested loop: 20 ms instead of 2 ms a flush.
CKPT = """
insert into checkpoint(job_id, step, out)
select i.id, i.step, i.out from unnest($1::bigint[], $2::int[], $3::jsonb[], $5::int[]) i(id, step, out, att)
join job j on j.id=i.id and j.owner=$4 and j.attempt=i.att
on conflict do nothing returning job_id"""
DONE = """
update job j set state=2, done_at=now(), lease_until=null, owner=null
from unnest($1::bigint[], $2::int[]) i(id, att)
where j.id=i.id and j.owner=$3 and j.attempt=i.att returning j.id"""
BEAT = "update job set lease_until=now()+make_interval(secs=>$2) where id=any($1::bigint[]) and owner=$3"


class Lost(Exception):
    pass


class Flusher:
    """Items gather while a write is under way; the next write takes them all."""

    def __init__(self, loop, dsn, write, lanes):
        self.loop, self.dsn, self.write = loop, dsn, write
        self.buf, self.wake = [], asyncio.Event()
        self.tasks = [loop.create_task(self.run()) for _ in range(lanes)]
        self.batches = self.items = 0

    def put(self, item):
        f = self.loop.create_future()
        self.buf.append((item, f))
        self.wake.set()
        return f

    async def run(self):
        c = await asyncpg.connect(self.dsn)
        while True:
            if not self.buf:
                self.wake.clear()
                await self.wake.wait()
            got, self.buf = self.buf, []
            if not got:
                continue
            ok = await self.write(c, [g[0] for g in got])
            self.batches += 1
            self.items += len(got)
            for item, f in got:
                if item[0] in ok:
                    f.set_result(None)
                else:
                    f.set_exception(Lost())


def run_worker(dsn, kind, sink, idx):
    me = f"w{idx}-{os.getpid()}"

    async def go():
        loop = asyncio.get_running_loop()

        async def write_ckpt(c, xs):
            r = await c.fetch(CKPT, [x[0] for x in xs], [x[1] for x in xs], [x[2] for x in xs], me, [x[3] for x in xs])
            return {x[0] for x in r}

        async def write_done(c, xs):
            r = await c.fetch(DONE, [x[0] for x in xs], [x[1] for x in xs], me)
            return {x[0] for x in r}

        ck = Flusher(loop, dsn, write_ckpt, LANES)
        dn = Flusher(loop, dsn, write_done, 1)
        live, room, wake = {}, asyncio.Event(), asyncio.Event()

        async def flow(jid, k, args, att, seen):
            try:
                a = json.loads(args)

                async def step(n, body):
                    if n in seen:
                        return seen[n]
                    out = await body(a["i"], n)
                    await ck.put((jid, n, json.dumps(out), att))
                    return out

                if k == "noop":
                    sink.log(a["i"], 0, a["t"])
                else:
                    for n in range(3):
                        await step(n, slow if k == "wf3sleep" else fast)
                await dn.put((jid, att))
                sink.hit()
            except Lost:
                pass
            finally:
                del live[jid]
                if len(live) <= INFLIGHT - BATCH:
                    room.set()

        async def fast(i, n):
            sink.log(i, n)
            return n

        async def slow(i, n):
            sink.log(i, n)
            await asyncio.sleep(0.05)
            return n

        async def take(c, q, n):
            rows = await c.fetch(q, n, me, float(LEASE))
            seen = {}
            again = [r[0] for r in rows if r[3] > 1]
            if again:
                for r in await c.fetch("select job_id, step, out from checkpoint where job_id=any($1::bigint[])", again):
                    seen.setdefault(r[0], {})[r[1]] = r[2]
            for r in rows:
                if r[0] not in live:
                    live[r[0]] = loop.create_task(flow(r[0], r[1], r[2], r[3], seen.get(r[0], {})))
            return len(rows)

        async def beat():
            c = await asyncpg.connect(dsn)
            while True:
                await asyncio.sleep(LEASE / 3)
                if live:
                    await c.execute(BEAT, list(live), float(LEASE), me)

        async def steal():
            c = await asyncpg.connect(dsn)
            while True:
                if len(live) <= INFLIGHT - BATCH and await take(c, STEAL, BATCH):
                    continue
                await asyncio.sleep(0.5)

        c = await asyncpg.connect(dsn)
        await c.add_listener("job", lambda *_: wake.set())
        sink.ready()
        side = [loop.create_task(beat()), loop.create_task(steal())]
        while True:
            free = INFLIGHT - len(live)
            if free < BATCH:
                room.clear()
                await room.wait()
                continue
            wake.clear()
            if not await take(c, CLAIM, BATCH):
                try:
                    await asyncio.wait_for(wake.wait(), 1.0)
                except asyncio.TimeoutError:
                    pass
            assert not any(t.done() for t in side)

    uvloop.run(go())
