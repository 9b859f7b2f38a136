"""The proxy's Prometheus metrics."""

from __future__ import annotations

from http import HTTPStatus

from prometheus_client import Counter, Histogram

from iris_service.telemetry import SECONDS, new_registry

_STATUSES = frozenset(HTTPStatus)
CLIENT_LEFT = 499
"""The status of a request whose client left first."""


class ProxyMetrics:
    """The metrics in their own registry."""

    def __init__(self) -> None:
        self.registry = new_registry()
        self._requests = Counter(
            "iris_proxy_requests",
            "Requests to deployments, by status.",
            ["status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "iris_proxy_request_seconds",
            "From a request's head to the end of its answer.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._retries = Counter(
            "iris_proxy_retries",
            "Requests that were sent again, to another route or on another connection.",
            registry=self.registry,
        )
        self._by_status: dict[int, Counter] = {}

    def answered(self, status: int, seconds: float) -> None:
        """Count an ended request; status 499: its client disconnected first."""
        counter = self._by_status.get(status)
        if counter is None:
            known = status in _STATUSES or status == CLIENT_LEFT
            counter = self._by_status[status] = self._requests.labels(
                str(status) if known else "other"
            )
        counter.inc()
        self._seconds.observe(seconds)

    def retried(self) -> None:
        """Count a retry."""
        self._retries.inc()
