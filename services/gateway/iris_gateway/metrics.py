"""The gateway's metrics, in one registry per process."""

from __future__ import annotations

from functools import cache

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from iris_service.observing import GuardedRegistry

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The gateway's counters. Labels hold route templates, never ids."""

    def __init__(self, registry: GuardedRegistry | None = None) -> None:
        self.registry = registry or GuardedRegistry()
        self.requests = Counter(
            "iris_http_requests_total",
            "Requests answered.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "iris_http_request_seconds",
            "From a request's head to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.watchers = Gauge(
            "iris_http_watchers", "Event and log streams that are open.", registry=self.registry
        )
        self.refused = Counter(
            "iris_http_problems_total", "Refusals by code.", ("code",), registry=self.registry
        )
        self._requests_of, self._seconds_of = (
            cache(self.requests.labels),
            cache(self.seconds.labels),
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request."""
        self._requests_of(route, method, status).inc()
        self._seconds_of(route).observe(seconds)

    def text(self) -> bytes:
        """The Prometheus exposition."""
        return generate_latest(self.registry)
