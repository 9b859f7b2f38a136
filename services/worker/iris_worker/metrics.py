"""The metrics of a worker for Prometheus, without ids in labels. The table is docs/metrics.md."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from iris_service.telemetry import SECONDS, new_registry


class WorkerMetrics:
    """A registry per worker, so that many workers can run in one process."""

    def __init__(self, attempts: Callable[[], int]) -> None:
        self.registry = new_registry()
        self._build = Histogram(
            "iris_build_seconds",
            "Time of a step before a task.",
            ["step"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._lag = Histogram(
            "iris_heartbeat_lag_seconds",
            "How late a heartbeat was sent.",
            buckets=SECONDS,
            registry=self.registry,
        )
        self._reports = Counter(
            "iris_worker_reports",
            "Reports to the state service.",
            ["result"],
            registry=self.registry,
        )
        self._dropped = Counter(
            "iris_worker_log_dropped_bytes",
            "Output of tasks left out of the log.",
            registry=self.registry,
        )
        self._probes = Histogram(
            "iris_route_probe_seconds",
            "Time of one probe of a route.",
            ["result"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._checks = Histogram(
            "iris_worker_check_seconds",
            "Time of one check of the host.",
            ["result"],
            buckets=SECONDS,
            registry=self.registry,
        )
        running = Gauge(
            "iris_worker_attempts", "Attempts that are not over.", registry=self.registry
        )
        running.set_function(attempts)
        self._spawn = self._build.labels("start")
        self._taken, self._lost = self._reports.labels("taken"), self._reports.labels("unanswered")
        self._passed, self._failed = self._probes.labels("passed"), self._probes.labels("failed")

    def started(self, seconds: float) -> None:
        self._spawn.observe(seconds)

    def built(self, step: str, seconds: float) -> None:
        """``step`` is download, unpack, copy, environment or image."""
        self._build.labels(step).observe(seconds)

    def heartbeat(self, lag_s: float) -> None:
        self._lag.observe(lag_s)

    def reported(self, taken: bool) -> None:
        (self._taken if taken else self._lost).inc()

    def probed(self, passed: bool, seconds: float) -> None:
        (self._passed if passed else self._failed).observe(seconds)

    def checked(self, passed: bool, seconds: float) -> None:
        self._checks.labels("passed" if passed else "failed").observe(seconds)

    def dropped(self, count: int) -> None:
        if count:
            self._dropped.inc(count)
