"""page.py RAW.jsonl.. : the results page, with what was to be reached, tables and plots, into results/.

Medians of one run; a figure that was not measured in it is said to be missing, never filled in from another one.
"""

import contextlib
import io
import json
import runpy
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import psutil

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "suture", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
from matplotlib import pyplot  # noqa: E402 (after the choice of its backend)

HERE = Path(__file__).resolve().parent
OUT = HERE / "results"
OURS = "suture"
COLOURS = {OURS: "#0b7a75", "ideal_step": "#9aa5b1", "ideal": "#cbd2d9"}
RIVALS = ("pgqueuer", "dbos", "absurd", "procrastinate", "temporal_pg")


@dataclass(frozen=True)
class Goal:
    """A figure to reach: `least` (or at most) times that of a peer in the same run, or an absolute bound."""

    what: str
    workload: str
    key: str
    bound: float
    peer: str | None = None
    most: bool = False

    def line(self, rows: list[dict]) -> str:
        ours, other = median(rows, self.workload, OURS, self.key), median(rows, self.workload, self.peer, self.key) if self.peer else 1.0
        sign = "≤" if self.most else "≥"
        asked = f"{sign} {self.bound:g}" + (f" × {self.peer}" if self.peer else "")
        if ours is None or other is None:
            return f"| {self.what} | {asked} | {shown(ours)} | - | not measured in this run |"
        ratio = ours / other
        met = ratio <= self.bound if self.most else ratio >= self.bound
        beside = f"{shown(other)}: {ratio:.2f} ×" if self.peer else "-"
        return f"| {self.what} | {asked} | {shown(ours)} | {beside} | {'met' if met else '**not met**'} |"


GOALS = [
    Goal("W0, one-step tasks a second", "W0", "rate", 1.3, "pgqueuer"),
    *(Goal("W0, one-step tasks a second", "W0", "rate", 20, peer) for peer in ("dbos", "absurd", "procrastinate")),
    Goal("W3, three-step workflows a second", "W3", "rate", 0.5, "ideal_step"),
    *(Goal("W3, three-step workflows a second", "W3", "rate", 60, peer) for peer in ("dbos", "temporal_pg")),
    Goal("W3, three-step workflows a second", "W3", "rate", 30, "absurd"),
    Goal("W1, one client, rows a second", "W1", "seq", 0.8, "ideal"),
    Goal("W1, 32 clients, rows a second", "W1", "conc32", 0.6, "ideal"),
    Goal("W1, bulk, rows a second", "W1", "bulk", 0.5, "ideal"),
    *(Goal("L, p99 of enqueue to start, idle, ms", "L", "p99", 1, peer, most=True) for peer in ("pgqueuer", "procrastinate")),
    Goal("H, p99 of enqueue to start at half of the W3 rate, ms", "H", "p99", 50, most=True),
    Goal("W3, bytes of WAL a workflow", "W3", "wal_bytes_per_item", 2000, most=True),
    Goal("W3, commits a workflow", "W3", "commits_per_item", 0.1, most=True),
    Goal("M, worker memory with 10,000 executions in a step, MB", "M", "in_flight_rss_mb", 150, most=True),
    Goal("M, worker memory with 10,000 executions waiting, MB", "M", "waiting_rss_mb", 150, most=True),
    Goal("R, kill -9 to the first orphan, s", "R", "first_orphan_s", 1, most=True),
]


def median(rows: list[dict], workload: str, peer: str | None, key: str) -> float | None:
    found = [r[key] for r in rows if r.get("workload") == workload and r["peer"] == peer and isinstance(r.get(key), (int, float))]
    return statistics.median(found) if found else None


def shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.3g}"


def two_workers(rows: list[dict]) -> str:
    one, two = median(rows, "W3", OURS, "rate"), median(rows, "W3x2", OURS, "rate")
    verdict = "not measured in this run" if one is None or two is None else "met" if two >= one else "**not met**"
    beside = "-" if one is None or two is None else f"{shown(one)}: {two / one:.2f} ×"
    return f"| W3x2, two workers on two cores, workflows a second | ≥ 1 × one worker | {shown(two)} | {beside} | {verdict} |"


def scale(rows: list[dict]) -> list[str]:
    base = median(rows, "S", OURS, "base_rate")
    lines = []
    for name, what in (("pending1M", "10^6 pending"), ("done5M", "5 x 10^6 finished")):
        rate = median(rows, "S", OURS, f"{name}_rate")
        if base is None or rate is None:
            lines.append(f"| S, W0 with {what}, a second | ≥ 0.9 × empty | {shown(rate)} | - | not measured in this run |")
        else:
            verdict = "met" if rate >= 0.9 * base else "**not met**"
            lines.append(
                f"| S, W0 with {what}, a second | ≥ 0.9 × empty | {shown(rate)} | {shown(base)}: {rate / base:.2f} × | {verdict} |"
            )
    return lines


def bars(rows: list[dict], name: str, title: str, figures: list[tuple[str, str]], unit: str) -> str:
    """One panel a figure, a bar a peer, on a logarithmic axis; the file's name, or nothing when there is no figure."""
    known = [(w, k) for w, k in figures if any(median(rows, w, p, k) is not None for p in (OURS, *RIVALS))]
    if not known:
        return ""
    figure, panels = pyplot.subplots(1, len(known), figsize=(4.2 * len(known), 2.8), squeeze=False)
    for panel, (workload, key) in zip(panels[0], known, strict=True):
        peers = [p for p in (OURS, *RIVALS, "ideal_step", "ideal") if median(rows, workload, p, key) is not None]
        values = [median(rows, workload, p, key) or 0.0 for p in peers]
        drawn = panel.barh(peers, values, color=[COLOURS.get(p, "#d9822b") for p in peers])
        panel.bar_label(drawn, [shown(v) for v in values], padding=3)
        panel.set_xscale("log")
        panel.invert_yaxis()
        panel.margins(x=0.35)
        panel.set_title(f"{workload} {key}".replace("_", " "), loc="left")
        panel.set_xlabel(unit)
    figure.suptitle(title, x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
    return f"![{title}]({name}.svg)\n"


def machine(rows: list[dict]) -> str:
    processor = subprocess.run(
        ["sh", "-c", "grep -m1 'model name' /proc/cpuinfo | cut -d: -f2"], capture_output=True, text=True, check=False
    )
    first, last = min(r["at"] for r in rows), max(r["at"] for r in rows)
    memory = psutil.virtual_memory().total / 2**30
    return f"{psutil.cpu_count()} cores ({processor.stdout.strip()}), {memory:.0f} GiB, {first} to {last}."


def tables(files: list[str]) -> str:
    said, before = io.StringIO(), sys.argv
    sys.argv = ["report.py", *files]
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(HERE / "report.py"))
    finally:
        sys.argv = before
    return said.getvalue()


def main() -> None:
    files = sys.argv[1:]
    rows = [json.loads(line) for f in files for line in Path(f).read_text().splitlines()]
    rows = [r for r in rows if "peer" in r and "error" not in r]
    goals = [goal.line(rows) for goal in GOALS]
    text = [
        "# Results of the last run",
        "",
        f"{machine(rows)} Worker, clients and Postgres 18 share the cores; fsync and synchronous_commit are on. Medians of this run.",
        "Written by `make bench`; what the workloads are, and how fair they are, is told in [../README.md](../README.md).",
        "",
        "| what | to reach | Suture | beside | |",
        "|---|---|---|---|---|",
        *goals,
        two_workers(rows),
        *scale(rows),
        "",
        bars(rows, "rates", "Finished a second (more is better)", [("W0", "rate"), ("W3", "rate")], "a second, logarithmic"),
        bars(
            rows,
            "enqueue",
            "Enqueued a second (more is better)",
            [("W1", "seq"), ("W1", "conc32"), ("W1", "bulk")],
            "rows a second, logarithmic",
        ),
        bars(rows, "latency", "Enqueue to start, idle (less is better)", [("L", "p50"), ("L", "p99")], "ms, logarithmic"),
        bars(rows, "recovery", "After kill -9 (less is better)", [("R", "first_orphan_s"), ("R", "all_done_s")], "s, logarithmic"),
        tables(files),
        "## Settings",
        "",
        *(f"- **{peer}**: {next(r['settings'] for r in rows if r['peer'] == peer)}" for peer in dict.fromkeys(r["peer"] for r in rows)),
    ]
    (OUT / "README.md").write_text("\n".join(text).rstrip() + "\n")
    print(f"{OUT / 'README.md'}: {sum('| met |' in g for g in goals)} of {len(goals)} ratios met")


main()
