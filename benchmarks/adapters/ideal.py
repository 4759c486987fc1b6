"""Not a product: the leanest durable loop we could think of, as the box's ceiling for a Python worker.

asyncpg, group commit: claim BATCH with one UPDATE..SKIP LOCKED..RETURNING, one unnest insert per step
for the whole batch, one update to complete the batch. LOOPS such loops share one event loop, each on
its own connection. It keeps a lease column but has no heartbeat, retries, timers, signals or fencing:
the distance between it and a full engine is the price of features.
"""

import asyncio
import os
import time

import asyncpg
import uvloop

BATCH = int(os.environ.get("BENCH_IDEAL_BATCH", "500"))
LOOPS = int(os.environ.get("BENCH_IDEAL_LOOPS", "2"))
LEASE = int(os.environ.get("BENCH_LEASE", "30"))
CAPS = {"W0", "W1", "W3", "W3x2", "L", "S"}
N3_MUL = 10  # more items, or the run is over in a blink
SETTINGS = f"asyncpg+uvloop, {LOOPS} loops x batch {BATCH}, 1 commit per claim/step/complete of a batch, LISTEN/NOTIFY"

DDL = """
create table job(
  id bigint generated always as identity primary key,
  kind text not null, args jsonb not null, state smallint not null default 0,
  priority smallint not null default 0, run_at timestamptz not null default now(),
  lease_until timestamptz, owner text, attempt int not null default 0,
  created_at timestamptz not null default now(), done_at timestamptz) with (fillfactor=80);
create index job_ready on job(priority, run_at, id) where state=0;
create index job_lease on job(lease_until) where state=1;
create table checkpoint(
  job_id bigint not null, step int not null, out jsonb not null,
  at timestamptz not null default now(), primary key(job_id, step));
"""
CLAIM = """
with c as (select id from job where state=0 and run_at<=now() order by priority, run_at, id
           limit $1 for update skip locked)
update job j set state=1, owner=$2, attempt=attempt+1, lease_until=now()+make_interval(secs=>$3)
from c where j.id=c.id returning j.id, j.kind, j.args, j.attempt"""
CKPT = """insert into checkpoint(job_id, step, out)
select i, $2, '{}'::jsonb from unnest($1::bigint[]) i on conflict do nothing"""
DONE = """update job set state=2, done_at=now(), lease_until=null
where id = any($1::bigint[]) and state=1 and owner=$2"""
PUT = "insert into job(kind,args) values($1,$2)"


def setup(dsn):
    async def go():
        c = await asyncpg.connect(dsn)
        await c.execute(DDL)

    asyncio.run(go())


def enqueue_bulk(dsn, kind, n):
    """unnest insert, 1,000 rows to a statement."""

    async def go():
        c = await asyncpg.connect(dsn)
        t0 = time.perf_counter()
        for a in range(0, n, 1000):
            await c.execute(
                "insert into job(kind,args) select $1, a from unnest($2::jsonb[]) a",
                kind,
                ['{"i": %d, "t": 0}' % i for i in range(a, min(n, a + 1000))],
            )
        return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_copy(dsn, kind, n):
    async def go():
        c = await asyncpg.connect(dsn)
        t0 = time.perf_counter()
        await c.copy_records_to_table("job", columns=("kind", "args"), records=((kind, '{"i": %d, "t": 0}' % i) for i in range(n)))
        return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_conc(dsn, kind, n, clients):
    async def go():
        cs = [await asyncpg.connect(dsn) for _ in range(clients)]
        it = iter(range(n))

        async def one(c):
            st = await c.prepare(PUT)
            for i in it:
                await st.fetch(kind, '{"i": %d, "t": 0}' % i)

        t0 = time.perf_counter()
        await asyncio.gather(*(one(c) for c in cs))
        return time.perf_counter() - t0

    return uvloop.run(go())


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    async def go():
        c = await asyncpg.connect(dsn)
        start = time.perf_counter()
        for i in range(rate * secs):
            await asyncio.sleep(max(0, start + i / rate - time.perf_counter()))
            await c.execute(
                "with x as (insert into job(kind,args) values($1,$2) returning 1) select pg_notify('job','') from x",
                kind,
                '{"i": %d, "t": %r}' % (i, time.time()),
            )

    uvloop.run(go())


def run_worker(dsn, kind, sink, idx):
    import json

    steps = 3 if kind.startswith("wf3") else 0

    async def loop(wake):
        c = await asyncpg.connect(dsn)
        me = f"w{idx}"
        claim, ckpt, done = [await c.prepare(q) for q in (CLAIM, CKPT, DONE)]
        while True:
            wake.clear()
            rows = await claim.fetch(BATCH, me, float(LEASE))
            if not rows:
                try:
                    await asyncio.wait_for(wake.wait(), 1.0)
                except asyncio.TimeoutError:
                    pass
                continue
            ids = [r[0] for r in rows]
            if sink._fd is not None:
                for r in rows:
                    a = json.loads(r[2])
                    sink.log(a["i"], 0, a["t"])
            for k in range(steps):
                await ckpt.fetch(ids, k)
            await done.fetch(ids, me)
            sink.hits(len(ids))

    async def go():
        sink.ready()
        wakes = [asyncio.Event() for _ in range(LOOPS)]
        lc = await asyncpg.connect(dsn)
        await lc.add_listener("job", lambda *_: [w.set() for w in wakes])
        await asyncio.gather(*(loop(w) for w in wakes))

    uvloop.run(go())


REMAINING_SQL = "select count(*) from job where state<2"
DONE_SQL = "select count(*) from job where state=2"


def seed(cur, pending, completed):
    if completed:
        cur.execute(
            "insert into job(kind,args,state,done_at) select 'noop','{\"i\":1,\"t\":0}',2,now() from generate_series(1,%s)", (completed,)
        )
    if pending:
        cur.execute("insert into job(kind,args) select 'noop','{\"i\":1,\"t\":0}' from generate_series(1,%s)", (pending,))


def claim_probe(dsn, kind, n):
    async def go():
        c = await asyncpg.connect(dsn)
        out = []
        for _ in range(n):
            t = time.perf_counter()
            await c.fetch(CLAIM, 100, "probe", float(LEASE))
            out.append(time.perf_counter() - t)
        return out

    return uvloop.run(go())
