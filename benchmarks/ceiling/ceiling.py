"""What Postgres itself allows on this box: pgbench -M prepared micro-scripts, COPY, and EXPLAINs.

ceiling.py [--reps 3] [--secs 8]     -> one JSON line per measurement in results/raw/<date>-ceiling.jsonl
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

import psycopg

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)
from adapters import ideal  # noqa: E402

HOST = os.environ.get("BENCH_PG", "postgresql://postgres@127.0.0.1:55432")
PGBENCH = os.environ.get("BENCH_PGBENCH", "/usr/lib/postgresql/15/bin/pgbench")
SCRIPT = "/var/tmp/suture-bench/pgbench.sql"
ROWS = 400_000

INSERT1 = "insert into job(kind,args) values('noop','{\"i\":1,\"t\":0}');\n"
INSERT100 = "insert into job(kind,args) select 'noop','{\"i\":1,\"t\":0}' from generate_series(1,100);\n"
CLAIM = """with c as (select id from job where state=0 and run_at<=now() order by priority, run_at, id
 limit {n} for update skip locked)
update job j set state=1, owner='w', attempt=attempt+1, lease_until=now()+interval '30 s' from c where j.id=c.id
returning j.id, j.args;
"""
CLAIM_IN = """update job set state=1, owner='w', attempt=attempt+1, lease_until=now()+interval '30 s'
where id in (select id from job where state=0 and run_at<=now() order by priority, run_at, id
 limit {n} for update skip locked) returning id, args;
"""
CKPT1 = "\\set j random(1,1000000000)\ninsert into checkpoint(job_id,step,out) values(:j,0,'{}') on conflict do nothing;\n"
CKPT100 = (
    "\\set j random(1,1000000000)\ninsert into checkpoint(job_id,step,out) "
    "select :j+g,0,'{}' from generate_series(1,100) g on conflict do nothing;\n"
)
DONE1 = "\\set j random(1,%d)\nupdate job set state=2, done_at=now(), lease_until=null where id=:j and state<2;\n" % ROWS
DONE100 = (
    "with n as (select nextval('done_seq')*100 as a) update job set state=2, done_at=now(), lease_until=null "
    "from n where id > n.a and id <= n.a+100;\n"
)  # each range once
NOTIFY = "insert into job(kind,args) values('noop','{\"i\":1,\"t\":0}');\nselect pg_notify('job','');\n"
TESTS = [  # name, script, rows per txn, clients, loaded pending rows
    ("insert 1 row, 1 client", INSERT1, 1, 1, 0),
    ("insert 1 row, 32 clients", INSERT1, 1, 32, 0),
    ("insert 1 row + notify in one txn, 32 clients", "begin;\n" + NOTIFY + "commit;\n", 1, 32, 0),
    ("insert 100 rows, 2 clients", INSERT100, 100, 2, 0),
    ("claim 1 (CTE join), 1 client", CLAIM.format(n=1), 1, 1, ROWS),
    ("claim 1 (CTE join), 8 clients", CLAIM.format(n=1), 1, 8, ROWS),
    ("claim 1 (id IN), 1 client", CLAIM_IN.format(n=1), 1, 1, ROWS),
    ("claim 100 (CTE join), 1 client", CLAIM.format(n=100), 100, 1, ROWS),
    ("claim 100 (CTE join), 2 clients", CLAIM.format(n=100), 100, 2, ROWS),
    ("claim 100 (id IN), 1 client", CLAIM_IN.format(n=100), 100, 1, ROWS),
    ("checkpoint insert 1, 1 client", CKPT1, 1, 1, 0),
    ("checkpoint insert 1, 32 clients", CKPT1, 1, 32, 0),
    ("checkpoint insert 100, 1 client", CKPT100, 100, 1, 0),
    ("checkpoint insert 100, 2 clients", CKPT100, 100, 2, 0),
    ("complete 1, 1 client", DONE1, 1, 1, ROWS),
    ("complete 1, 32 clients", DONE1, 1, 32, ROWS),
    ("complete 100, 2 clients", DONE100, 100, 2, ROWS),
]


def fresh(pending):
    with psycopg.connect(HOST + "/postgres", autocommit=True) as c:
        c.execute("drop database if exists b_ceiling with (force)")
        c.execute("create database b_ceiling")
    dsn = HOST + "/b_ceiling"
    ideal.setup(dsn)
    with psycopg.connect(dsn, autocommit=True) as c:
        c.execute("create sequence done_seq minvalue 0 start 0")
    if pending:
        with psycopg.connect(dsn, autocommit=True) as c:
            ideal.seed(c.cursor(), pending, 0)
            c.execute("vacuum analyze")
            c.execute("checkpoint")
    return dsn


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--secs", type=int, default=5)
    p.add_argument("--only", default="", help="substring of test names")
    p.add_argument("--out", default=f"{ROOT}/results/raw/{time.strftime('%Y-%m-%d')}-ceiling.jsonl")
    a = p.parse_args()
    for rep in range(a.reps):
        for name, script, rows, clients, pending in TESTS:
            if a.only not in name:
                continue
            dsn = fresh(pending)
            with open(SCRIPT, "w") as f:
                f.write(script)
            secs = a.secs if rows == 1 or not pending else 3
            r = subprocess.run(
                [
                    PGBENCH,
                    "-n",
                    "-M",
                    "prepared",
                    "-f",
                    SCRIPT,
                    "-c",
                    str(clients),
                    "-j",
                    "1",
                    *(["-t", str(ROWS // 100 // clients)] if "complete 100" in name else ["-T", str(secs)]),
                    "-h",
                    "127.0.0.1",
                    "-p",
                    "55432",
                    "-U",
                    "postgres",
                    "b_ceiling",
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            tps = float(re.search(r"tps = ([\d.]+)", r.stdout).group(1))
            with psycopg.connect(dsn) as c:
                left = c.execute("select count(*) from job where state=0").fetchone()[0]
            row = {"test": name, "rep": rep, "tps": round(tps), "rows_per_s": round(tps * rows), "pending_left": left}
            if "claim" in name and left < rows * 10:
                row["ran_dry"] = True  # the queue emptied before the time: not a rate
            print(json.dumps(row), flush=True)
            with open(a.out, "a") as f:
                f.write(json.dumps(row) + "\n")
        dsn = fresh(0)
        dt = ideal.enqueue_copy(dsn, "noop", 200_000)
        row = {"test": "asyncpg COPY enqueue, 1 client", "rep": rep, "tps": 1, "rows_per_s": round(200_000 / dt)}
        print(json.dumps(row), flush=True)
        with open(a.out, "a") as f:
            f.write(json.dumps(row) + "\n")
    with psycopg.connect(HOST + "/postgres", autocommit=True) as c:
        c.execute("drop database if exists b_ceiling with (force)")


if __name__ == "__main__":
    main()
