"""The state service's numbers for Prometheus: gauges read from the records when scraped, counters as commits pass.

No ids in labels. The table is docs/metrics.md. Source: interfaces.md section 7.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from iris_bus.telemetry import SECONDS, new_registry
from iris_core.resources import DIMENSIONS, Amount
from iris_core.states import JobState, TaskState, WorkerState, display_name
from iris_state.changes import Judged, Moved, SessionMoved
from iris_state.machine import Machine, Output


class StateMetrics:
    """A registry of its own, so that two machines can live in one process."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self.registry = new_registry()
        self.registry.register(LedgerCollector(machine))
        self._commit = Histogram(
            "iris_commit_seconds", "Time until a commit is durable.", buckets=SECONDS, registry=self.registry
        )
        self._transitions = Counter(
            "iris_task_transitions", "Task state changes.", ["from_state", "to_state"], registry=self.registry
        )
        self._ended = Counter(
            "iris_attempts_ended", "Attempts that ended.", ["state", "cause", "charged_to"], registry=self.registry
        )
        self._handled = Counter(
            "iris_handler_results", "Judgements of handlers.", ["handler", "result"], registry=self.registry
        )
        self._children: dict[tuple[str, str], Counter] = {}

    def committed(self, output: Output, seconds: float) -> None:
        """One commit is durable."""
        self._commit.observe(seconds)
        for change in output.changes:
            if isinstance(change, Moved):
                charged = change.charged_to.value if change.charged_to is not None else ""
                self._ended.labels(display_name(change.shown), change.cause.value, charged).inc()
            elif isinstance(change, SessionMoved | Judged):
                self._handled.labels(change.handler, change.result.value).inc()
        for edge, n in Tally(output.moves).items():
            child = self._children.get(edge)
            if child is None:
                child = self._children[edge] = self._transitions.labels(*edge)
            child.inc(n)


class LedgerCollector(Collector):
    """Gauges that mirror the records, counted when asked."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._current = machine

    @property
    def _machine(self) -> Machine:
        return self._current()

    def collect(self) -> Iterable[Metric]:
        yield from self._jobs_and_tasks()
        yield from self._waiting()
        yield from self._hosts()

    def _jobs_and_tasks(self) -> Iterator[Metric]:
        tasks: Tally[tuple[str, str]] = Tally()
        jobs: Tally[str] = Tally({display_name(state): 0 for state in JobState if state})
        for job in self._machine.ledger.jobs.values():
            jobs[display_name(job.state)] += 1
            for task_state, n in job.counted().items():
                tasks[(display_name(task_state), display_name(job.band))] += n
        gauge = GaugeMetricFamily("iris_tasks", "Tasks by state and band.", labels=["state", "band"])
        for labels, n in tasks.items():
            gauge.add_metric(labels, n)
        yield gauge
        gauge = GaugeMetricFamily("iris_jobs", "Jobs by state.", labels=["state"])
        for state, n in jobs.items():
            gauge.add_metric([state], n)
        yield gauge

    def _waiting(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        waiting: Tally[tuple[str, str]] = Tally()
        oldest = None
        for number in ledger.queue.jobs():
            job = ledger.jobs[number]
            reason = ledger.reasons.get(number)
            code = reason.code.value if reason is not None else "not_yet_looked_at"
            waiting[(code, display_name(job.band))] += job.counts[TaskState.PENDING]
            oldest = min(job.submitted_ms, oldest or job.submitted_ms)
        gauge = GaugeMetricFamily("iris_pending_tasks", "Waiting tasks by reason.", labels=["reason", "band"])
        for labels, n in waiting.items():
            gauge.add_metric(labels, n)
        yield gauge
        seconds = (self._machine.last_ms - oldest) / 1000 if oldest is not None else 0.0
        yield GaugeMetricFamily("iris_oldest_pending_seconds", "Age of the longest waiting job.", value=seconds)

    def _hosts(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        states = Tally({state.value: 0 for state in WorkerState})
        total, held = Amount(), Amount()
        for worker in ledger.workers.values():
            states[worker.state.value] += 1
            held = held + ledger.presence[worker.id].committed
            if worker.state is not WorkerState.LOST:
                total = total + worker.total
        gauge = GaugeMetricFamily("iris_workers", "Hosts by state.", labels=["state"])
        for state, n in states.items():
            gauge.add_metric([state], n)
        yield gauge
        for name, amount in (("capacity", total), ("committed", held)):
            gauge = GaugeMetricFamily(f"iris_resource_{name}", f"Resources: {name}.", labels=["resource"])
            for dimension in DIMENSIONS:
                gauge.add_metric([dimension], getattr(amount, dimension))
            yield gauge
