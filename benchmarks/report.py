"""report.py RAW.jsonl.. : medians and min-max from raw lines, as Markdown tables on stdout."""

import json
import statistics
import sys

rows = [json.loads(line) for f in sys.argv[1:] for line in open(f)]
ORDER = ["procrastinate", "pgqueuer", "dbos", "absurd", "temporal", "temporal_pg", "temporal_pg_local", "ours", "ideal_step", "ideal"]


def get(wl, peer, key):
    v = [r for r in rows if r.get("workload") == wl and r["peer"] == peer]
    out = []
    for r in v:
        x = r
        for k in key.split("."):
            x = x.get(k) if isinstance(x, dict) else None
        if isinstance(x, (int, float)):
            out.append(x)
    return out


def cell(v, nd=0):
    if not v:
        return "-"
    f = f"{{:,.{nd}f}}"
    m = f.format(statistics.median(v))
    return m if len(v) == 1 or max(v) == min(v) else f"**{m}** ({f.format(min(v))}-{f.format(max(v))})"


def table(title, wl, cols):
    peers = [p for p in ORDER if any(r.get("workload") == wl and r["peer"] == p for r in rows)]
    peers += sorted({r["peer"] for r in rows if r.get("workload") == wl} - set(ORDER))
    if not peers:
        return
    print(f"\n### {title}\n\n| peer | " + " | ".join(c[0] for c in cols) + " |\n|---|" + "---|" * len(cols))
    for p in peers:
        print(f"| {p} | " + " | ".join(cell(get(wl, p, c[1]), c[2]) for c in cols) + " |")


D = [
    ("items", "n", 0),
    ("items/s", "rate", 0),
    ("first body s", "first_body_s", 2),
    ("commits/item", "commits_per_item", 2),
    ("WAL fsyncs/item", "wal_fsyncs_per_item", 2),
    ("WAL B/item", "wal_bytes_per_item", 0),
    ("worker cores", "worker_cores", 2),
    ("box cores busy", "box_cores_busy", 2),
    ("worker RSS MB", "rss_mb", 0),
]
table("W0 queue drain, one worker process", "W0", D)
table(
    "W1 enqueue, rows/s",
    "W1",
    [
        ("1 client", "seq", 0),
        ("32 clients", "conc32", 0),
        ("bulk API", "bulk", 0),
        ("COPY", "copy", 0),
        ("commits/row 1 client", "seq_commits", 2),
        ("WAL B/row 1 client", "seq_wal", 0),
    ],
)
table("W3 workflows of 3 checkpointed steps, one worker process", "W3", D)
table("W3x2 the same, two worker processes", "W3x2", D)
table(
    "L dispatch latency, ms",
    "L",
    [
        ("n", "n", 0),
        ("p50", "p50", 1),
        ("p95", "p95", 1),
        ("p99", "p99", 1),
        ("max", "max", 1),
        ("idle worker cores", "idle_worker_cores", 3),
    ],
)
table(
    "R kill -9 in mid-run, s after the kill",
    "R",
    [
        ("in flight", "in_flight_at_kill", 0),
        ("w2 ready", "w2_ready_s", 1),
        ("w2 first body", "w2_first_body_s", 1),
        ("first orphan", "first_orphan_s", 1),
        ("last orphan", "last_orphan_s", 1),
        ("all done", "all_done_s", 1),
        ("bodies run twice", "bodies_twice", 0),
        ("completed", "completed", 0),
        ("steps missing", "steps_missing", 0),
    ],
)
table(
    "S scale",
    "S",
    [
        (f"{n} {k}", f"{n}_{f}", d)
        for n in ("base", "pending1M", "done5M")
        for k, f, d in (("claim p50 ms", "claim_ms.p50", 2), ("p95", "claim_ms.p95", 2), ("drain/s", "rate", 0))
    ],
)
c = [r for r in rows if "test" in r]
if c:
    print("\n### C ceiling: pgbench -M prepared, and COPY\n\n| statement | txn/s | rows/s |\n|---|---|---|")
    for t in sorted(dict.fromkeys(r["test"] for r in c)):
        v = [r for r in c if r["test"] == t]
        dry = " (queue ran dry)" if any(r.get("ran_dry") for r in v) else ""
        print(f"| {t}{dry} | {cell([r['tps'] for r in v])} | {cell([r['rows_per_s'] for r in v])} |")
