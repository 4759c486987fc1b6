"""Metrics for Prometheus: gauges from the engine's rows, counters of our own requests. Own registries: the process's default stays empty.

Labels are bounded: a route's template instead of its path, the known methods, the status's number, so many names of queues, steps and
schedules, and never a key or an id. Reads nothing itself.
"""

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from suture.engine import Health

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # PagerDuty gives up after 5

_MOST = 500
"""Queues, pauses and schedules that are told by name; other queues are told as one, the others are left out."""
_OTHER = "other"

_OF_THE_ENQUEUED = {
    "due": "Enqueued executions whose time has come and that are not parked.",
    "delayed": "Enqueued executions whose time is still to come.",
    "parked": "Enqueued executions that stand behind others with their concurrency key.",
}
_LIMITS = {
    "concurrency": ("concurrency_limit", "Executions of it that may run at the same time."),
    "per_key": ("key_limit", "Executions of it with one concurrency key that may live at the same time."),
    "starts_per_second": ("starts_per_second_limit", "First claims that it may have in a second."),
}
_TIMES = {
    "paused": ("paused", "1: it does not fire."),
    "broken": ("broken", "1: the engine paused it, since what its row says cannot be read."),
    "next_at": ("next_run_timestamp_seconds", "When it is due next; none: never again."),
    "last_at": ("last_run_timestamp_seconds", "The newest time that fired."),
}
_COUNTS = {
    "fired_count": ("fired", "Times that fired."),
    "missed_count": ("missed", "Times at which nobody looked and that were not made up for."),
    "skipped_count": ("skipped", "Times that were let go because an earlier execution lived."),
}


class Traffic:
    """Counts the requests of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route")
        self._requests = Counter("suture_http_requests", "Requests answered.", (*labels, "status"), registry=self.registry)
        self._seconds = Histogram("suture_http_request_seconds", "Time to the answer.", labels, registry=self.registry, buckets=_SECONDS)
        self._webhooks = Counter(
            "suture_webhooks", "Signed webhooks by what became of them.", ("provider", "state"), registry=self.registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(known, route).observe(seconds)

    def delivered(self, provider: str, state: str) -> None:
        self._webhooks.labels(provider, state).inc()


def page(traffic: Traffic, health: Health | None) -> bytes:
    """The text that Prometheus reads; without `health` (Postgres is away) only what this process knows."""
    rows = CollectorRegistry()
    rows.register(_Rows(health))
    return generate_latest(rows) + generate_latest(traffic.registry)


class _Rows(Collector):
    def __init__(self, health: Health | None) -> None:
        self._health = health

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("suture_database_up", "Whether Postgres answers.", value=float(self._health is not None))
        if self._health is not None:
            yield from _gauges(self._health)


def _gauges(health: Health) -> Iterator[Metric]:
    yield from _queues(health)
    yield from _steps(health)
    yield from _schedules(health)
    yield GaugeMetricFamily("suture_workers", "Workers that have not stopped.", value=len(health.workers))
    beats = [worker["beat_seconds"] for worker in health.workers]
    yield GaugeMetricFamily("suture_worker_oldest_beat_seconds", "Age of the oldest of their last beats.", value=max(beats, default=0))
    yield GaugeMetricFamily("suture_dead_letters", "Dead letters that nobody has requeued.", value=health.dead_letters)
    yield _family("suture_unclaimable", "Overdue executions that no worker takes.", ("workflow",), health.unclaimable, "count")
    attempts = [{**ending, "attempt": str(min(ending["attempt"], 10))} for ending in health.endings]  # 10 stands for more too
    yield _family("suture_ended_last_hour", "Executions that ended in the last hour.", ("workflow", "attempt"), attempts, "ended")
    yield _family("suture_failed_last_hour", "Those of them that failed.", ("workflow", "attempt"), attempts, "failed")
    latency = [{"quantile": name, "seconds": value} for name, value in health.latency_seconds.items()]
    yield _family("suture_start_latency_seconds", "From creation to the first claim, last hour.", ("quantile",), latency, "seconds")


def _queues(health: Health) -> Iterator[Metric]:
    named = _named(health)
    depth = [{**row, "queue": row["queue"] if row["queue"] in named else _OTHER} for row in health.depth]
    enqueued = [row for row in depth if row["status"] == "enqueued"]
    states = ("queue", "status")
    yield _family("suture_executions", "Living executions.", states, depth, "count")
    yield _family("suture_oldest_seconds", "Age of the oldest living execution in its state.", states, depth, "oldest_seconds", join=max)
    for what, text in _OF_THE_ENQUEUED.items():
        yield _family(f"suture_queue_{what}", text, ("queue",), enqueued, what)
    text = "How long the first of the due has been due."
    yield _family("suture_queue_oldest_due_seconds", text, ("queue",), enqueued, "due_seconds", join=max)
    unpaused = [{"queue": row["queue"], "paused": False} for row in depth]
    steered = [{**row, "queue": row["name"]} for row in health.queues if row["name"] in named]
    yield _family("suture_queue_paused", "1: nothing is claimed from it.", ("queue",), steered + unpaused, "paused", join=max)
    for limit, (name, text) in _LIMITS.items():
        yield _family(f"suture_queue_{name}", text, ("queue",), steered, limit)


def _steps(health: Health) -> Iterator[Metric]:
    labels, pauses = ("step", "workflow"), [{**row, "at": row["paused_at"].timestamp()} for row in health.paused_steps[:_MOST]]
    yield _family("suture_step_paused_timestamp_seconds", "When the pause of these steps began.", labels, pauses, "at")
    yield _family("suture_step_held", "Executions that wait for the end of the pause.", labels, pauses, "held")


def _schedules(health: Health) -> Iterator[Metric]:
    rows = [
        {name: row[name] for name in ("paused", "fired_count", "missed_count", "skipped_count")}
        | {"schedule": row["name"], "broken": row["problem"] is not None}
        | {name: row[name] and row[name].timestamp() for name in ("next_at", "last_at")}
        for row in health.schedules[:_MOST]
    ]
    for column, (name, text) in _TIMES.items():
        yield _family(f"suture_schedule_{name}", text, ("schedule",), rows, column)
    for column, (name, text) in _COUNTS.items():
        yield _family(f"suture_schedule_{name}", text, ("schedule",), rows, column, kind=CounterMetricFamily)


def _named(health: Health) -> frozenset[str]:
    """The queues that are told by name: those that somebody steers, and the fullest."""
    fullest = sorted(health.depth, key=lambda row: -row["count"])
    names = dict.fromkeys([row["name"] for row in health.queues] + [row["queue"] for row in fullest])
    return frozenset(list(names)[:_MOST])


def _family(
    name: str,
    text: str,
    labels: tuple[str, ...],
    rows: list[dict[str, Any]],
    value: str,
    *,
    join: Callable[[tuple[float, float]], float] = sum,
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> Metric:
    joined: dict[tuple[str, ...], float] = {}
    for row in rows:  # rows that a bounded label made equal are joined: a sample may stand only once
        if row[value] is not None:
            key, one = tuple(str(row[label]) for label in labels), float(row[value])
            joined[key] = join((joined[key], one)) if key in joined else one
    family = kind(name, text, labels=labels)
    for key, total in joined.items():
        family.add_metric(key, total)
    return family
