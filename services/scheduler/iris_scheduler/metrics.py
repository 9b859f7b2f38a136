"""The scheduler's numbers for Prometheus. No ids in labels."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import Counter, Gauge, Histogram

from iris_service.telemetry import SECONDS, new_registry


class SchedulerMetrics:
    """A registry of its own.

    Args:
        age_s: returns the age of the mirror in seconds; called at each scrape.
    """

    def __init__(self, age_s: Callable[[], float]) -> None:
        self.registry = new_registry()
        self._cycle = Histogram(
            "iris_scheduler_cycle_seconds",
            "Time to make one plan.",
            buckets=SECONDS,
            registry=self.registry,
        )
        assignments = Counter(
            "iris_scheduler_assignments",
            "Tasks given a place that was taken.",
            ["kind"],
            registry=self.registry,
        )
        self._tasks, self._gangs = assignments.labels("task"), assignments.labels("gang")
        self._evictions = Counter(
            "iris_scheduler_evictions",
            "Attempts asked to make way for a higher band.",
            registry=self.registry,
        )
        age = Gauge(
            "iris_snapshot_age_seconds", "Age of what the scheduler knows.", registry=self.registry
        )
        age.set_function(age_s)

    def cycle(self, seconds: float) -> None:
        """Count a cycle that made a plan."""
        self._cycle.observe(seconds)

    def taken(self, tasks: int, gang_tasks: int, evictions: int) -> None:
        """Count an accepted plan: single tasks and gang members placed, attempts to be stopped."""
        self._tasks.inc(tasks)
        self._gangs.inc(gang_tasks)
        self._evictions.inc(evictions)
