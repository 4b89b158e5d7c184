"""What this process saw, for Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as TallyOf
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from satchel.commit import Seen
from satchel.domain.run import TERMINAL

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Requests(Collector):
    """Requests and their times, counted in plain dicts: the locks of the usual counters would cost each request more than
    its identity does. All requests are counted on one event loop."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._buckets = [0] * (len(_SECONDS) + 1)
        self._sum = 0.0

    def answered(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """``seconds``: None for a stream, which lasts as long as it lasts."""
        key = (method, route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        if seconds is not None:
            self._buckets[bisect_left(_SECONDS, seconds)] += 1
            self._sum += seconds

    def collect(self) -> Iterator[Metric]:
        counted = CounterMetricFamily("satchel_requests", "Requests answered.", labels=("method", "route", "status"))
        for (method, route, status), count in self._counts.items():
            counted.add_metric((method, route, str(status)), count)
        yield counted
        so_far = accumulate(self._buckets)
        bounds = (*map(str, _SECONDS), "+Inf")
        buckets = [(bound, float(count)) for bound, count in zip(bounds, so_far, strict=True)]
        yield HistogramMetricFamily(
            "satchel_request_seconds",
            "From the first byte of a request to the last of its answer; streams are left out.",
            buckets=buckets,
            sum_value=self._sum,
        )


class Metrics:
    """One registry for each service, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Requests()
        self.registry.register(self.requests)
        self.refusals = Counter(
            "satchel_refusals", "Requests refused, by the code of their problem.", ("code",), registry=self.registry
        )
        self.conflicts = Counter(
            "satchel_conflicts", "Writes refused by the state that they met.", ("code",), registry=self.registry
        )
        self.replays = Counter(
            "satchel_replays", "Writes that were answered as they were first.", registry=self.registry
        )
        self.followers = Gauge("satchel_followers", "Streams that are open.", registry=self.registry)
        self.commits = Counter("satchel_commits", "Commits of the store.", registry=self.registry)
        self.commit_seconds = Histogram(
            "satchel_commit_seconds", "From handing in to durable.", registry=self.registry, buckets=_SECONDS
        )
        self.batch = Histogram(
            "satchel_batch_decisions",
            "Decisions that shared one commit.",
            registry=self.registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
        )
        self.events = Counter("satchel_events", "Events written, by kind.", ("kind",), registry=self.registry)
        self.runs = Counter(
            "satchel_runs", "Runs whose end was written here, by status.", ("status",), registry=self.registry
        )
        self.queue_age = Gauge(
            "satchel_queue_age_seconds",
            "For how long the first run that is ready has waited for a worker; 0: none is.",
            registry=self.registry,
        )

    def committed(self, seen: Seen) -> None:
        self.commits.inc()
        self.commit_seconds.observe(seen.seconds)
        self.batch.observe(seen.decisions)
        for kind, count in TallyOf(seen.kinds).items():
            self.events.labels(kind).inc(count)
        for run in seen.runs:
            if run.status in TERMINAL:
                self.runs.labels(run.status).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
