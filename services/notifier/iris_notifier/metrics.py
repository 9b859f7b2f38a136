"""The notifier's numbers for Prometheus. No names of people or targets in labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from iris_service.telemetry import new_registry


class _Present(Collector):
    """What is there now, asked with each scrape."""

    def __init__(self, pending: Callable[[], int], targets: Callable[[], dict[str, int]]) -> None:
        self._pending = pending
        self._targets = targets

    def collect(self) -> Iterable[Metric]:
        waiting = GaugeMetricFamily("iris_notify_pending", "Messages that wait.")
        waiting.add_metric([], self._pending())
        targets = GaugeMetricFamily(
            "iris_notify_targets", "Targets of messages, by state.", labels=["state"]
        )
        for state, number in self._targets().items():
            targets.add_metric([state], number)
        return [waiting, targets]


class NotifierMetrics:
    """A registry of its own."""

    def __init__(self) -> None:
        self.registry = new_registry()
        self._deliveries = Counter(
            "iris_notify_deliveries",
            "Messages that have ended, by what became of them.",
            ["result"],
            registry=self.registry,
        )
        self._tries = Counter(
            "iris_notify_tries",
            "Tries to send a message, by what came of them.",
            ["result"],
            registry=self.registry,
        )
        self._gaps = Counter(
            "iris_notify_gaps",
            "Times that events were deleted, or their stream was made anew, before they were read.",
            registry=self.registry,
        )
        for result in ("delivered", "given_up"):
            self._deliveries.labels(result)

    def show(self, pending: Callable[[], int], targets: Callable[[], dict[str, int]]) -> None:
        """Show what is there, from now on."""
        self.registry.register(_Present(pending, targets))

    def ended(self, result: str) -> None:
        """Count a message that was delivered or given up."""
        self._deliveries.labels(result).inc()

    def tried(self, *, is_delivered: bool) -> None:
        """Count a try."""
        self._tries.labels("delivered" if is_delivered else "failed").inc()

    def missed(self) -> None:
        """Count that there are events that nobody can read any more."""
        self._gaps.inc()
