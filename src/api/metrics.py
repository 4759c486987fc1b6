"""Metrics for Prometheus: gauges from the engine's rows, counters of our own requests. Own registries: the process's default stays empty.

Labels are bounded: a route's template instead of its path, the known methods, the status's number. Reads nothing itself.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from suture.engine import Health

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)  # PagerDuty gives up after 5


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
    yield _family("suture_executions", "Living executions.", ("queue", "status"), health.depth, "count")
    yield _family(
        "suture_oldest_seconds", "Age of the oldest living execution in its state.", ("queue", "status"), health.depth, "oldest_seconds"
    )
    yield GaugeMetricFamily("suture_workers", "Workers that have not stopped.", value=len(health.workers))
    beats = [worker["beat_seconds"] for worker in health.workers]
    yield GaugeMetricFamily("suture_worker_oldest_beat_seconds", "Age of the oldest of their last beats.", value=max(beats, default=0))
    yield GaugeMetricFamily("suture_dead_letters", "Dead letters that nobody has requeued.", value=health.dead_letters)
    yield _family("suture_unclaimable", "Overdue executions that no worker takes.", ("workflow",), health.unclaimable, "count")
    attempts = [{**ending, "attempt": str(min(ending["attempt"], 10))} for ending in health.endings]  # 10 stands for more too
    yield _family("suture_ended_last_hour", "Executions that ended in the last hour.", ("workflow", "attempt"), attempts, "ended")
    yield _family("suture_failed_last_hour", "Those of them that failed.", ("workflow", "attempt"), attempts, "failed")
    latency = [{"quantile": name, "seconds": value} for name, value in health.latency_seconds.items() if value is not None]
    yield _family("suture_start_latency_seconds", "From creation to the first claim, last hour.", ("quantile",), latency, "seconds")


def _family(name: str, text: str, labels: tuple[str, ...], rows: list[dict[str, Any]], value: str) -> Metric:
    sums: dict[tuple[str, ...], float] = {}
    for row in rows:  # rows that a bounded label made equal are added up: a sample may stand only once
        key = tuple(str(row[label]) for label in labels)
        sums[key] = sums.get(key, 0.0) + float(row[value])
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, total in sums.items():
        family.add_metric(key, total)
    return family
