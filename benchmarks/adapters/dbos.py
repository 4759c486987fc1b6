"""DBOS 3.4: sync workflows on its thread pool (its async path only wraps the same sync calls in to_thread)."""

import os
import threading
import time
import uuid

import sqlalchemy as sa
from dbos import DBOS, DBOSClient

CONC = int(os.environ.get("BENCH_DBOS_CONC", "30"))
POOL = int(os.environ.get("BENCH_DBOS_POOL", "20"))
POLL = float(os.environ.get("BENCH_DBOS_POLL", "0.02"))
SAME_ID = os.environ.get("BENCH_DBOS_SAME_ID", "0") == "1"
CAPS = {"W0", "W1", "W3", "W3x2", "L", "R", "S"}
SETTINGS = (
    f"sync workflows and steps, worker_concurrency={CONC}, polling_interval_sec={POLL} (default 1.0), sys_db_pool_size={POOL}, psycopg3"
)
_NAMES = {"noop": "noop", "wf3": "wf3", "wf3sleep": "wf3sleep"}


def _url(dsn):
    return dsn.replace("postgresql://", "postgresql+psycopg://")


def _dbos(dsn, sink, idx):
    d = DBOS(
        config={
            "name": "bench",
            "system_database_url": _url(dsn),
            "sys_db_pool_size": POOL,
            **({"db_engine_kwargs": {"pool_pre_ping": False}} if os.environ.get("BENCH_DBOS_PREPING") == "0" else {}),
            "log_level": "ERROR",
            "application_version": "v1",
            "executor_id": "w0" if SAME_ID else f"w{idx}",
            "max_executor_threads": max(64, CONC + 16),
        }
    )

    @DBOS.step(name="s")
    def s(i, k):
        if sink:
            sink.log(i, k)
        return k

    @DBOS.step(name="ssleep")
    def ssleep(i, k):
        sink.log(i, k)
        time.sleep(0.05)
        return k

    @DBOS.workflow(name="noop")
    def noop(i, t):
        sink.hit()
        sink.log(i, 0, t)

    @DBOS.workflow(name="wf3")
    def wf3(i, t):
        s(i, 0)
        s(i, 1)
        s(i, 2)
        sink.hit()

    @DBOS.workflow(name="wf3sleep")
    def wf3sleep(i, t):
        ssleep(i, 0)
        ssleep(i, 1)
        ssleep(i, 2)
        sink.hit()

    return d


def setup(dsn):
    d = _dbos(dsn, None, 0)
    DBOS.launch()
    DBOS.register_queue("q", worker_concurrency=CONC, polling_interval_sec=POLL, on_conflict="always_update")
    DBOS.destroy()


def _client(dsn, pool=1):
    return DBOSClient(system_database_url=_url(dsn), system_database_pool_size=pool)


def _opt(kind):
    return {"queue_name": "q", "workflow_name": _NAMES[kind], "app_version": "v1"}


def enqueue_bulk(dsn, kind, n):
    """No bulk API: enqueue_in_transaction, 1,000 to a transaction, is the documented nearest."""
    c = _client(dsn)
    eng = sa.create_engine(_url(dsn))
    t0 = time.perf_counter()
    for a in range(0, n, 1000):
        with eng.begin() as conn:
            for i in range(a, min(n, a + 1000)):
                c.enqueue_in_transaction(conn, _opt(kind), i, 0.0)
    dt = time.perf_counter() - t0
    c.destroy()
    return dt


def enqueue_conc(dsn, kind, n, clients):
    c = _client(dsn, clients)
    it = iter(range(n))
    lock = threading.Lock()

    def one():
        while True:
            with lock:
                i = next(it, None)
            if i is None:
                return
            c.enqueue(_opt(kind), i, 0.0)

    ts = [threading.Thread(target=one) for _ in range(clients)]
    t0 = time.perf_counter()
    [t.start() for t in ts]
    [t.join() for t in ts]
    dt = time.perf_counter() - t0
    c.destroy()
    return dt


def enqueue_seq(dsn, kind, n):
    return enqueue_conc(dsn, kind, n, 1)


def enqueue_paced(dsn, kind, rate, secs):
    c = _client(dsn)
    start = time.perf_counter()
    for i in range(rate * secs):
        time.sleep(max(0, start + i / rate - time.perf_counter()))
        c.enqueue(_opt(kind), i, time.time())
    c.destroy()


def run_worker(dsn, kind, sink, idx):
    _dbos(dsn, sink, idx)
    sink.ready()
    DBOS.launch()
    DBOS.register_queue("q", worker_concurrency=CONC, polling_interval_sec=POLL, on_conflict="always_update")
    threading.Event().wait()


REMAINING_SQL = "select count(*) from dbos.workflow_status where status in ('ENQUEUED','PENDING')"
DONE_SQL = "select count(*) from dbos.workflow_status where status='SUCCESS'"


def seed(cur, pending, completed):
    cur.execute("set session_replication_role=replica")
    cur.execute(
        "select column_name from information_schema.columns where table_schema='dbos' "
        "and table_name='workflow_status' and is_generated='NEVER' and is_identity='NO' "
        "and column_name not in ('workflow_uuid','status','output','created_at')"
    )
    cols = ",".join(f'"{r[0]}"' for r in cur.fetchall())
    for n, st in ((completed, "SUCCESS"), (pending, "ENQUEUED")):
        if n:
            cur.execute(
                f"""insert into dbos.workflow_status(workflow_uuid,status,created_at,{cols})
                select gen_random_uuid()::text,'{st}',e.created_at+g,{cols}
                from (select * from dbos.workflow_status limit 1) e, generate_series(1,%s) g""",
                (n,),
            )
    # inputs live in a side table; without a row there a claimed workflow cannot start
    cur.execute("""insert into dbos.workflow_input(workflow_uuid,inputs,retention_timestamp)
        select s.workflow_uuid,i.inputs,i.retention_timestamp
        from dbos.workflow_status s, (select * from dbos.workflow_input limit 1) i on conflict do nothing""")


def claim_probe(dsn, kind, n):
    """Claims under another executor id, so that the drain after it does not start with a recovery."""
    from dbos._utils import GlobalParams

    d = _dbos(dsn, None, 99)
    DBOS.listen_queues([]) if hasattr(DBOS, "listen_queues") else None
    DBOS.launch()
    q = DBOS.retrieve_queue("q")
    out = []
    for _ in range(n):
        t = time.perf_counter()
        d._sys_db.start_queued_workflows(q, GlobalParams.executor_id, "v1", None, 0, owner_xid=str(uuid.uuid4()))
        out.append(time.perf_counter() - t)
    os_exit(out)


def os_exit(out):
    import json

    print("\n@@" + json.dumps({"result": out, "wall_s": 0}), flush=True)
    os._exit(0)
