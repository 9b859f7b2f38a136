"""The provisioner's numbers for Prometheus. No names of slices in labels."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from iris_service.telemetry import new_registry

_SECONDS = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class ProvisionerMetrics:
    """A registry of its own."""

    def __init__(self) -> None:
        self.registry = new_registry()
        self._calls = Counter(
            "iris_provider_calls",
            "Calls of a provider, by what came of them.",
            ["provider", "call", "answer"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "iris_provider_call_seconds",
            "How long calls of a provider take.",
            ["provider", "call"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def called(self, provider: str, call: str, answer: str, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(provider, call, answer).inc()
        self._seconds.labels(provider, call).observe(seconds)
