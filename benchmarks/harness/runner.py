"""runner.py: interleaved runs of PEERS x WORKLOADS x reps on one Postgres, raw JSON lines out.

  runner.py --peers procrastinate,dbos --workloads W0,W1,W3,W3x2,L,R,S --reps 3 [--n0 20000 ...]

Order: for rep, for workload, for peer; so that every table row was taken side by side.
"""

import argparse
import importlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import psutil
import psycopg

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
from harness.sink import read_counter, read_logs  # noqa: E402

HOST = os.environ.get("BENCH_PG", "postgresql://postgres@127.0.0.1:55432")
ADMIN = HOST + "/postgres"
PY = sys.executable


def log(*a):
    print(time.strftime("%H:%M:%S"), *a, flush=True)


def sql(dsn, q, *args):
    with psycopg.connect(dsn, autocommit=True) as c:
        cur = c.execute(q, args or None)
        return cur.fetchall() if cur.description else None


# ---- databases -----------------------------------------------------------
def template(peer, mod):
    name = f"bt_{peer}"
    if not sql(ADMIN, "select 1 from pg_database where datname=%s", name):
        sql(ADMIN, f"create database {name}")
        mod.setup(f"{HOST}/{name}")
    return name


def fresh(peer, mod, src=None):
    src = src or template(peer, mod)
    name = f"b_{peer}"
    sql(ADMIN, f"drop database if exists {name} with (force)")
    for _ in range(40):
        try:
            sql(ADMIN, f"create database {name} template {src}")
            break
        except psycopg.errors.ObjectInUse:
            time.sleep(0.25)
    return f"{HOST}/{name}"


def settle(dsn, vacuum=True):
    if vacuum:
        sql(dsn, "vacuum analyze")
    sql(ADMIN, "checkpoint")
    time.sleep(1.0)


# ---- processes -----------------------------------------------------------
def client(peer, dsn, action, kind, *args, env=None):
    p = subprocess.run(
        [PY, f"{ROOT}/harness/client.py", peer, dsn, action, kind, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    for line in reversed(p.stdout.splitlines()):
        if line.startswith("@@"):
            return json.loads(line[2:])
    raise RuntimeError(f"{peer} {action}: {p.stderr[-2000:]}")


class W:
    def __init__(self, peer, dsn, kind, folder, idx, want_log=False, env=None):
        self.idx, self.folder = idx, folder
        self.err = open(f"{folder}/err.{idx}", "wb")
        self.p = subprocess.Popen(
            [PY, f"{ROOT}/harness/worker.py", peer, dsn, kind, folder, str(idx), "1" if want_log else "0"],
            stdout=self.err,
            stderr=self.err,
            env={**os.environ, **(env or {})},
        )
        self.ps = psutil.Process(self.p.pid)

    def count(self):
        return read_counter(self.folder, self.idx)

    def cpu(self):
        try:
            t = self.ps.cpu_times()
            return t.user + t.system
        except psutil.Error:
            return 0.0

    def rss(self):
        try:
            return self.ps.memory_info().rss / 1e6
        except psutil.Error:
            return 0.0

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.err.close()


class Probe:
    """CPU, commits and WAL between two moments."""

    def __init__(self, dsn, mod=None):
        self.dsn, self.db = dsn, getattr(mod, "STAT_DB", dsn.rsplit("/", 1)[1])
        self.a = self.snap()

    def snap(self):
        c = psutil.cpu_times()
        v18 = sql(ADMIN, "show server_version_num")[0][0] >= "180000"
        r = sql(
            ADMIN,
            "select xact_commit+xact_rollback, pg_wal_lsn_diff(pg_current_wal_lsn(),'0/0')::bigint, "
            + ("(select sum(fsyncs) from pg_stat_io where object='wal')" if v18 else "(select wal_sync from pg_stat_wal)")
            + " from pg_stat_database where datname=%s",
            self.db,
        )
        x, w, f = r[0] if r else (0, 0, 0)
        return dict(busy=sum(c) - c.idle - c.iowait, x=int(x), wal=int(w), fs=int(f or 0))

    def end(self, n, wall, cpu):
        time.sleep(1.3)  # backends flush their counters at most a second late
        b = self.snap()
        return {
            "commits_per_item": round((b["x"] - self.a["x"]) / n, 3),
            "wal_bytes_per_item": round((b["wal"] - self.a["wal"]) / n),
            "wal_fsyncs_per_item": round((b["fs"] - self.a["fs"]) / n, 3),
            "worker_cpu_s": round(cpu, 2),
            "worker_cores": round(cpu / wall, 2),
            "box_cores_busy": round((b["busy"] - self.a["busy"] - 0.05) / wall, 2),
        }


def remaining(peer, mod, dsn, conn=None):
    if hasattr(mod, "remaining"):
        return mod.remaining()[0]
    return (conn.execute(mod.REMAINING_SQL) if conn else psycopg.connect(dsn).execute(mod.REMAINING_SQL)).fetchone()[0]


def done(peer, mod, dsn):
    return mod.remaining()[1] if hasattr(mod, "remaining") else sql(dsn, mod.DONE_SQL)[0][0]


def wait_done(peer, mod, dsn, workers, n, limit):
    """Durable end: bodies counted in shared memory first (free), then the peer's own table."""
    t_end = time.time() + limit
    last = (-1, time.time())
    with psycopg.connect(ADMIN if hasattr(mod, "remaining") else dsn, autocommit=True) as c:
        while time.time() < t_end:
            got = sum(w.count()[0] for w in workers)
            if got != last[0]:
                last = (got, time.time())
            if got >= n or time.time() - last[1] > 3:
                if remaining(peer, mod, dsn, c) == 0:
                    return time.time(), got
                time.sleep(0.5 if got < n else 0.1 if hasattr(mod, "remaining") else 0.01)
            else:
                time.sleep(0.01)
    return None, got


# ---- workloads -----------------------------------------------------------
def drain(peer, mod, a, kind, n, nworkers):
    dsn = fresh(peer, mod)
    enq = client(peer, dsn, "enqueue_bulk", kind, n)
    settle(dsn)
    folder = tempfile.mkdtemp(prefix="bench-")
    pr = Probe(dsn, mod)
    ws = [W(peer, dsn, kind, folder, i) for i in range(nworkers)]
    t_done, got = wait_done(peer, mod, dsn, ws, n, a.limit)
    cpu, rss = sum(w.cpu() for w in ws), sum(w.rss() for w in ws)
    cs = [w.count() for w in ws]
    ready = max(c[3] for c in cs) / 1e6
    first = min([c[1] for c in cs if c[1]] or [0])
    each = [c[0] for c in cs]
    out = {"n": n, "bodies": got, "per_worker": each, "enqueue_bulk_per_s": round(n / enq["result"]), "rss_mb": round(rss)}
    if t_done:
        wall = t_done - ready
        out |= {
            "wall_s": round(wall, 3),
            "rate": round(n / wall, 1),
            "first_body_s": round(first - ready, 3),
            "last_body_s": round(max(c[2] for c in cs) - ready, 3),
            "steady_rate": round(n / max(1e-6, t_done - first), 1),
        }
        out |= pr.end(n, wall, cpu)
        out["done_rows"] = done(peer, mod, dsn)
    else:
        span = max(c[2] for c in cs) - first
        out |= {"timeout": True, "partial_rate": round(got / max(span, 1e-6), 1)}
    for w in ws:
        w.kill()
    err = open(f"{folder}/err.0", "rb").read()[-400:].decode(errors="replace")
    if err.strip():
        out["stderr"] = err
    shutil.rmtree(folder, ignore_errors=True)
    return out


def w0(peer, mod, a):
    return drain(peer, mod, a, "noop", a.n0 // getattr(mod, "N_DIV", 1), 1)


def w3(peer, mod, a):
    return drain(peer, mod, a, "wf3", a.n3 * getattr(mod, "N3_MUL", 1) // getattr(mod, "N3_DIV", 1), 1)


def w3x2(peer, mod, a):
    return drain(peer, mod, a, "wf3", a.n3 * getattr(mod, "N3_MUL", 1) // getattr(mod, "N3_DIV", 1), 2)


def w1(peer, mod, a):
    out = {}
    for name, action, args in (
        ("seq", "enqueue_seq", (a.n1s // getattr(mod, "N3_DIV", 1),)),
        ("conc32", "enqueue_conc", (a.n1c // getattr(mod, "N3_DIV", 1), 32)),
        ("bulk", "enqueue_bulk", (a.n1b // getattr(mod, "N_DIV", 1),)),
        ("copy", "enqueue_copy", (a.n1b * 5,)),
    ):
        if not hasattr(mod, action):
            continue
        dsn = fresh(peer, mod)
        sql(ADMIN, "checkpoint")
        pr = Probe(dsn, mod)
        r = client(peer, dsn, action, "noop", *args)
        out[name] = round(args[0] / r["result"], 1)
        e = pr.end(args[0], r["result"], 0)
        out[name + "_commits"], out[name + "_wal"] = e["commits_per_item"], e["wal_bytes_per_item"]
    return out


def pct(v, p):
    v = sorted(v)
    return v[min(len(v) - 1, int(len(v) * p / 100))] if v else None


def lat(peer, mod, a):
    dsn = fresh(peer, mod)
    folder = tempfile.mkdtemp(prefix="bench-")
    w = W(peer, dsn, "noop", folder, 0, True)
    t = time.time()
    while not w.count()[3] and time.time() - t < 20:
        time.sleep(0.05)
    time.sleep(3)
    c0, b0 = w.cpu(), psutil.cpu_times()
    time.sleep(3)
    idle = (w.cpu() - c0) / 3
    client(peer, dsn, "enqueue_paced", "noop", 20, a.lsecs)
    time.sleep(2)
    rows = read_logs(folder)
    v = [(r[1] - float(r[4])) * 1e3 for r in rows]
    w.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "n": len(v),
        "sent": 20 * a.lsecs,
        "p50": round(pct(v, 50), 2),
        "p95": round(pct(v, 95), 2),
        "p99": round(pct(v, 99), 2),
        "max": round(max(v), 2),
        "idle_worker_cores": round(idle, 3),
    }


def half(peer, mod, a):
    """Latency of the first step at half of the peer's own W3 rate, which is measured right before."""
    full = w3(peer, mod, a)
    if "rate" not in full:
        return full
    rate = int(full["rate"] / 2)
    dsn = fresh(peer, mod)
    folder = tempfile.mkdtemp(prefix="bench-")
    w = W(peer, dsn, "wf3", folder, 0, True)
    t = time.time()
    while not w.count()[3] and time.time() - t < 20:
        time.sleep(0.05)
    time.sleep(1)
    client(peer, dsn, "enqueue_stream", "wf3", rate, a.hsecs)
    _, got = wait_done(peer, mod, dsn, [w], rate * a.hsecs, a.limit)
    v = [(r[1] - float(r[4])) * 1e3 for r in read_logs(folder) if r[3] == "0"]
    w.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "full_rate": full["rate"],
        "offered": rate,
        "n": len(v),
        "sent": rate * a.hsecs,
        "finished": got,
        "p50": round(pct(v, 50), 2),
        "p95": round(pct(v, 95), 2),
        "p99": round(pct(v, 99), 2),
        "max": round(max(v), 2),
    }


def memory(peer, mod, a):
    """Most memory of one worker with 10,000 executions inside a step, and with 10,000 that wait for an event."""
    out = {}
    for name, kind, env in (("in_flight", "hold", {"BENCH_SUTURE_CONC": str(a.nm)}), ("waiting", "await", {})):
        dsn = fresh(peer, mod)
        client(peer, dsn, "enqueue_bulk", kind, a.nm)
        settle(dsn)
        folder = tempfile.mkdtemp(prefix="bench-")
        w = W(peer, dsn, kind, folder, 0, env=env)
        most, end = 0.0, time.time() + a.limit
        while time.time() < end and (w.count()[0] < a.nm or (name == "waiting" and mod.held(dsn).get("waiting") != a.nm)):
            most = max(most, w.rss())
            time.sleep(0.05)
        settled = time.time() + 3
        while time.time() < settled:
            most = max(most, w.rss())
            time.sleep(0.05)
        out |= {f"{name}_n": w.count()[0], f"{name}_rss_mb": round(most), f"{name}_held": mod.held(dsn)}
        w.kill()
        shutil.rmtree(folder, ignore_errors=True)
    return out


def rec(peer, mod, a):
    n = 1000
    dsn = fresh(peer, mod)
    client(peer, dsn, "enqueue_bulk", "wf3sleep", n)
    settle(dsn)
    folder = tempfile.mkdtemp(prefix="bench-")
    env = {"BENCH_LEASE": str(a.lease), "BENCH_DBOS_SAME_ID": "1"}
    w = W(peer, dsn, "wf3sleep", folder, 0, True, env)
    while w.count()[0] < n * 0.4:
        time.sleep(0.005)
    time.sleep(0.07)  # batch workers finish 50 at once: do not kill right on a batch's edge
    done0 = done(peer, mod, dsn) if not hasattr(mod, "remaining") else w.count()[0]
    t_kill = time.time()
    os.kill(w.p.pid, signal.SIGKILL)
    w.p.wait()
    rows = read_logs(folder)
    started = {r[2] for r in rows}
    lastk = {(r[2], r[3]) for r in rows}
    full = {i for i in started if (i, "2") in lastk}
    orphans = started - full
    orphans_or_tail = started  # a workflow whose last step ran may still be unfinished
    w2 = W(peer, dsn, "wf3sleep", folder, 1, True, env)
    t_end, t_done = time.time() + a.rlimit, None
    with psycopg.connect(ADMIN if hasattr(mod, "remaining") else dsn, autocommit=True) as c:
        while time.time() < t_end:
            if remaining(peer, mod, dsn, c) == 0:
                t_done = time.time()
                break
            time.sleep(0.1)
    rows = read_logs(folder)
    by2 = [r for r in rows if r[0] == 1]
    res = [r[1] for r in by2 if r[2] in orphans_or_tail]
    ran = {}
    for r in rows:
        ran[(r[2], r[3])] = ran.get((r[2], r[3]), 0) + 1
    fin = done(peer, mod, dsn)
    out = {
        "n": n,
        "lease_s": a.lease,
        "killed_after_done": done0,
        "in_flight_at_kill": len(orphans),
        "w2_ready_s": round(w2.count()[3] / 1e6 - t_kill, 2),
        "w2_first_body_s": round(by2[0][1] - t_kill, 2) if by2 else None,
        "first_orphan_s": round(min(res) - t_kill, 2) if res else None,
        "last_orphan_s": round(max(res) - t_kill, 2) if res else None,
        "all_done_s": round(t_done - t_kill, 2) if t_done else None,
        "bodies_twice": sum(1 for v in ran.values() if v > 1),
        "completed": fin,
        "steps_missing": 3 * n - len(ran),
        "timeout": t_done is None,
    }
    w2.kill()
    shutil.rmtree(folder, ignore_errors=True)
    return out


def scale(peer, mod, a):
    """Claim latency and drain rate with 20k pending, 1M pending, 5M completed + 20k pending."""
    out = {}
    for name, pend, comp in (("base", a.n0, 0), ("pending1M", a.spend, 0), ("done5M", a.n0, a.sdone)):
        tname = f"bs_{peer}_{name}".lower()
        if not sql(ADMIN, "select 1 from pg_database where datname=%s", tname):
            t0 = time.time()
            sql(ADMIN, f"create database {tname} template {template(peer, mod)}")
            tdsn = f"{HOST}/{tname}"
            client(peer, tdsn, "enqueue_bulk", "noop", 1)
            with psycopg.connect(tdsn) as c:
                mod.seed(c.cursor(), pend, comp)
                c.commit()
            sql(tdsn, "vacuum analyze")
            out[name + "_seed_s"] = round(time.time() - t0, 1)
        dsn = f"{HOST}/{tname}"  # no copy: 40 claims of a probe are nothing beside the backlog
        out[name + "_db_mb"] = sql(dsn, "select pg_database_size(current_database())/1000000")[0][0]
        settle(dsn, vacuum=False)
        v = client(peer, dsn, "claim_probe", "noop", 40)["result"]
        out[name + "_claim_ms"] = {
            "p50": round(statistics.median(v) * 1e3, 2),
            "p95": round(pct(v, 95) * 1e3, 2),
            "first": round(v[0] * 1e3, 2),
        }
        folder = tempfile.mkdtemp(prefix="bench-")
        w = W(peer, dsn, "noop", folder, 0)
        t = time.time()
        while time.time() - t < a.ssecs and w.count()[0] < a.n0:
            time.sleep(0.02)
        nb, first, last, ready = w.count()
        out[name + "_rate"] = round(nb / max(1e-3, last - ready / 1e6), 1) if nb else 0
        out[name + "_first_body_s"] = round(first - ready / 1e6, 2) if first else None
        w.kill()
        shutil.rmtree(folder, ignore_errors=True)
        log(peer, "S", name, {k: v for k, v in out.items() if k.startswith(name)})
        if not a.keep:
            sql(ADMIN, f"drop database if exists {tname} with (force)")
    sql(ADMIN, f"drop database if exists b_{peer} with (force)")
    return out


ALL = {"W0": w0, "W1": w1, "W3": w3, "W3x2": w3x2, "L": lat, "H": half, "M": memory, "R": rec, "S": scale}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--peers", required=True)
    p.add_argument("--workloads", required=True)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--n0", type=int, default=20000)
    p.add_argument("--n3", type=int, default=5000)
    p.add_argument("--n1s", type=int, default=1000)
    p.add_argument("--n1c", type=int, default=5000)
    p.add_argument("--n1b", type=int, default=20000)
    p.add_argument("--lsecs", type=int, default=20)
    p.add_argument("--hsecs", type=int, default=10)
    p.add_argument("--nm", type=int, default=10_000)
    p.add_argument("--ssecs", type=int, default=15)
    p.add_argument("--lease", type=int, default=10)
    p.add_argument("--limit", type=int, default=180)
    p.add_argument("--rlimit", type=int, default=150)
    p.add_argument("--spend", type=int, default=1_000_000)
    p.add_argument("--sdone", type=int, default=5_000_000)
    p.add_argument("--keep", action="store_true")
    p.add_argument("--tag", default="")
    p.add_argument("--out", default=f"{ROOT}/results/raw/{time.strftime('%Y-%m-%d')}.jsonl")
    a = p.parse_args()
    mods = {x: importlib.import_module(f"adapters.{x}") for x in a.peers.split(",")}
    servers = importlib.import_module("harness.temporal_server") if any(hasattr(m, "NEEDS_SERVER") for m in mods.values()) else None
    for rep in range(a.reps):
        for wl in a.workloads.split(","):
            for peer, mod in mods.items():
                if wl not in mod.CAPS:
                    continue
                t = time.time()
                srv = servers.start(mod.SERVER_MODE) if hasattr(mod, "NEEDS_SERVER") else None
                try:
                    r = ALL[wl](peer, mod, a)
                except Exception as e:  # report, go on
                    r = {"error": repr(e)[-1500:]}
                finally:
                    if srv:
                        servers.stop(srv)
                row = {
                    "at": time.strftime("%FT%TZ", time.gmtime()),
                    "peer": peer,
                    "workload": wl,
                    "rep": rep,
                    "tag": a.tag,
                    "settings": mod.SETTINGS,
                    "host": socket.gethostname(),
                    "took_s": round(time.time() - t, 1),
                    "load1": os.getloadavg()[0],
                    **r,
                }
                os.makedirs(os.path.dirname(a.out), exist_ok=True)
                with open(a.out, "a") as f:
                    f.write(json.dumps(row) + "\n")
                log(wl, peer, f"rep{rep}", json.dumps({k: v for k, v in r.items()}))
    for peer in mods:
        sql(ADMIN, f"drop database if exists b_{peer} with (force)")


if __name__ == "__main__":
    main()
