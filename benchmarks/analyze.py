"""analyze.py PEER KIND N : where the time goes, on Postgres 15 (:55433, pg_stat_statements; run pg15.sh start first).
Prints the statements of one drain by total time, statement counts per item, and (py-spy) the worker's hot functions.
Never a quoted rate: another server version, and py-spy rides along."""

import importlib
import os
import subprocess
import sys
import tempfile
import time

os.environ["BENCH_PG"] = "postgresql://postgres@127.0.0.1:55433"
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import runner as R  # noqa: E402


def main():
    peer, kind, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
    mod = importlib.import_module(f"adapters.{peer}")
    R.sql(R.ADMIN, "create extension if not exists pg_stat_statements")
    dsn = R.fresh(peer, mod)
    R.client(peer, dsn, "enqueue_bulk", kind, n)
    R.settle(dsn)
    folder = tempfile.mkdtemp(prefix="bench-")
    R.sql(R.ADMIN, "select pg_stat_statements_reset()")
    w = R.W(peer, dsn, kind, folder, 0)
    time.sleep(2)
    spy = subprocess.Popen(
        [
            os.path.join(os.path.dirname(sys.executable), "py-spy"),
            "record",
            "-p",
            str(w.p.pid),
            "-r",
            "200",
            "-d",
            "8",
            "-f",
            "raw",
            "-o",
            f"{folder}/spy",
            "--nonblocking",
        ]
        + (["-g"] if os.environ.get("SPY_GIL") else []),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    t, got = R.wait_done(peer, mod, dsn, [w], n, 120)
    rows = R.sql(
        R.ADMIN,
        "select s.calls, s.total_exec_time, s.mean_exec_time, s.rows, s.shared_blks_hit, s.wal_bytes, toplevel, "
        "regexp_replace(s.query,'\\s+',' ','g') from pg_stat_statements s join pg_database d on d.oid=s.dbid "
        "where d.datname=%s order by total_exec_time desc limit 16",
        dsn.rsplit("/", 1)[1],
    )
    print(f"## {peer} {kind} n={n} bodies={got}")
    for c, tot, mean, rws, hit, wal, top, q in rows:
        print(
            f"{c / n:8.3f} calls/item {tot:9.1f} ms total {mean:8.4f} ms mean {rws / max(c, 1):8.1f} rows {hit / max(c, 1):9.1f} blk "
            f"{int(wal) / max(c, 1):8.0f} wal {'top' if top else '  in'} {q[:110]}"
        )
    try:
        spy.wait(10)
    except subprocess.TimeoutExpired:
        spy.terminate()
        spy.wait()
    w.kill()
    leaf, incl, total = {}, {}, 0
    for line in open(f"{folder}/spy"):
        stack, k = line.rsplit(" ", 1)
        fr = stack.split(";")
        k = int(k)
        total += k
        leaf[fr[-1]] = leaf.get(fr[-1], 0) + k
        for f in set(fr):
            incl[f] = incl.get(f, 0) + k
    for name, d in (("self", leaf), ("inclusive", incl)):
        print("--", name, "of", total)
        for f, k in sorted(d.items(), key=lambda x: -x[1])[:22]:
            print(f"  {100 * k / max(total, 1):5.1f}% {f[-100:]}")


main()
