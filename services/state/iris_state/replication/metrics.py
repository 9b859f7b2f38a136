"""The state service's numbers for Prometheus: gauges read from the records when scraped, counters
as commits pass.

No ids in labels. The table is docs/metrics.md. Out of scope: figures of people, projects and hosts
(`people_metrics`), and of pools (`fleet_metrics`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from msgspec.structs import asdict
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from iris_core.placement.reasons import NOT_YET_LOOKED_AT, ReasonCode
from iris_core.spec.resources import RESOURCES
from iris_core.states import JobState, RouteStatus, TaskState, WorkerState, display_name
from iris_core.tables import deployment as table
from iris_service.telemetry import SECONDS, gauges, new_registry
from iris_state.effects.kinds import Output, PlacementRefused
from iris_state.machine.machine import Machine
from iris_state.records import changes as c
from iris_state.records.entities import Fact
from iris_state.records.fleet_changes import SliceMoved
from iris_state.records.gates import GateKind
from iris_state.records.reactions import complete
from iris_state.replication.fleet_metrics import FleetMetrics
from iris_state.replication.people_metrics import HostFailures, PeopleCollector
from iris_state.replication.store_metrics import StoreCollector
from iris_state.views.cluster.demand import demand, known_shapes
from iris_state.views.pages import at_once

ROUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Buckets for rounds, in seconds."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replica does now.

    Attributes:
        behind: commits of the leader that it has not applied. unpublished: events not yet confirmed
            by their stream. times_ahead_s: its times of records less its wall clock.
    """

    leads: bool = False
    behind: int = 0
    unpublished: int = 0
    times_ahead_s: float = 0.0


class StateMetrics:
    """A registry of its own, so that two machines can live in one process.

    Args:
        standing: what the replica does; asked when scraped.
    """

    def __init__(
        self, machine: Callable[[], Machine], standing: Callable[[], Standing] = Standing
    ) -> None:
        self.registry = new_registry()
        self._machine = machine
        self._host_failures = HostFailures()
        self.registry.register(LedgerCollector(machine))
        self.registry.register(PeopleCollector(machine, self._host_failures))
        self._fleet = FleetMetrics(machine)
        self.registry.register(self._fleet)
        self.registry.register(ReplicaCollector(machine, standing))
        self._transitions = Counts(
            "iris_task_transitions", "Task state changes.", ["from_state", "to_state"]
        )
        self._ended = Counts(
            "iris_attempts_ended", "Attempts that ended.", ["state", "cause", "charged_to"]
        )
        self._handled = Counts(
            "iris_handler_results", "Judgements of handlers.", ["handler", "result"]
        )
        self._refused = Counts(
            "iris_assignments_refused", "Placements of plans that were not taken.", ["cause"]
        )
        self._commit = Durations("iris_commit_seconds", "Time until a commit is durable.")
        self._round = Durations(
            "iris_round_seconds",
            "Processor time of one round: judging what came, and answering reads.",
            ROUNDS,
        )
        self._waited = Durations(
            "iris_task_queue_wait_seconds", "How long placed tasks had waited."
        )
        self._ran = Durations("iris_task_run_seconds", "How long attempts that ran had run.")
        self.stores = StoreCollector()
        self.registry.register(self.stores)
        self.raised = Counts(
            "iris_inputs_set_aside",
            "Inputs and timers whose handling raised an exception.",
            ["kind"],
        )
        counts = (self._transitions, self._ended, self._handled, self._refused, self.raised)
        for collector in (*counts, self._commit, self._round, self._waited, self._ran):
            self.registry.register(collector)

    def worked(self, seconds: float) -> None:
        """A round has finished."""
        self._round.note(seconds)

    def committed(self, output: Output, seconds: float) -> None:
        """One commit is durable."""
        self._commit.note(seconds)
        for refused in output.of(PlacementRefused):
            self._refused.note(refused.cause)
        for change in output.changes:
            react = self.REACTIONS.get(type(change))
            if react is not None:
                react(self, change)
        for fact in output.facts:
            if isinstance(fact, Fact) and fact.entity == "task" and fact.previous is not None:
                self._transitions.note(fact.previous, fact.state)
                if fact.lasted_ms is not None:
                    (self._waited if fact.state == "assigned" else self._ran).note(
                        fact.lasted_ms / 1000
                    )

    def _moved(self, change: c.Moved) -> None:
        if change.attempt >= 0:
            charged = change.charged_to.value if change.charged_to is not None else ""
            self._ended.note(display_name(change.shown), change.cause.value, charged)
            self._host_failures.note(self._machine().ledger, change)

    def _judged(self, change: c.Judged | c.SessionMoved) -> None:
        self._handled.note(change.handler, change.result.value)

    def _slice_moved(self, change: SliceMoved) -> None:
        self._fleet.moved(change)

    REACTIONS = complete(
        {
            c.Moved: _moved,
            c.SessionMoved: _judged,
            c.Judged: _judged,
            SliceMoved: _slice_moved,
        },
        nothing=(
            *(
                c.GatesOpened,
                c.JobAmended,
                c.Requeued,
                c.GraceEnded,
                c.StopOrdered,
                c.Noticed,
                c.JobGrown,
                c.JobClosed,
            ),
            *(c.QueueHeld, c.QueueReleased),
            *(
                c.JobAdmitted,
                c.JobMoved,
                c.JobPruned,
                c.Assigned,
                c.Staged,
                c.Closed,
                c.Nominated,
                c.Avoided,
            ),
            *(c.WorkerRegistered, c.WorkerMoved, c.WorkerForgotten, c.QuotaSet, c.GroupsNoted),
            *(c.Answered, c.Dropped, c.Evicted, c.Audited, c.Led),
            *c.DEPLOYMENT_KINDS,
            *(kind for kind in c.FLEET_KINDS if kind is not SliceMoved),
            *c.PROJECT_KINDS,
        ),
    )


class Counts(Collector):
    """Counters by label that are cheap to increment: no lock; Prometheus reads the sums at each
    scrape.
    """

    def __init__(self, name: str, help_text: str, labels: Sequence[str]) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self._counts: dict[tuple[str, ...], int] = {}

    def note(self, *labels: str) -> None:
        self._counts[labels] = self._counts.get(labels, 0) + 1

    @property
    def total(self) -> int:
        """The sum over all labels."""
        return sum(self._counts.values())

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._help, labels=self._labels)
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family


class Durations(Collector):
    """A histogram of seconds that is cheap to update: one bucket, no lock; cumulative sums are made
    at each scrape.
    """

    def __init__(self, name: str, help_text: str, bounds: Sequence[float] = SECONDS) -> None:
        self._name = name
        self._help = help_text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Iterable[Metric]:
        bounds = [*(str(bound) for bound in self._bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets=buckets, sum_value=self._sum)


class ReplicaCollector(Collector):
    """Which replica this is: whether it leads, of which epoch it knows, and how far it has come."""

    def __init__(self, machine: Callable[[], Machine], standing: Callable[[], Standing]) -> None:
        self._machine = machine
        self._standing = standing

    def collect(self) -> Iterable[Metric]:
        machine = self._machine()
        standing = self._standing()
        yield GaugeMetricFamily(
            "iris_leader", "1 on the replica that leads, 0 on a standby.", value=standing.leads
        )
        yield GaugeMetricFamily(
            "iris_epoch",
            "Number of the newest leader: one more than the last, the time (ms) at the start of records and at a restore.",
            value=machine.ledger.epoch,
        )
        applied = "Sequence of the newest commit applied on this replica."
        yield GaugeMetricFamily("iris_journal_sequence", applied, value=machine.sequence)
        words = (
            "Messages not processed yet: commits that a standby has not applied (journal), events not confirmed "
            "(events)."
        )
        pending = {"journal": standing.behind, "events": standing.unpublished}
        yield gauges("iris_consumer_pending", words, ["consumer"], pending)
        yield GaugeMetricFamily(
            "iris_times_ahead_seconds",
            "Times of records on this replica less its host's wall clock.",
            value=standing.times_ahead_s,
        )


def shape_label(shape: Mapping[str, int]) -> str:
    """What a host has, as the label of a metric: ``cpu=8000,memory=34359738368``."""
    return ",".join(
        f"{resource.word}={shape[resource.name]}" for resource in RESOURCES if shape[resource.name]
    )


class LedgerCollector(Collector):
    """Gauges over the records, computed at each scrape."""

    def __init__(self, machine: Callable[[], Machine]) -> None:
        self._current = machine

    @property
    def _machine(self) -> Machine:
        return self._current()

    def collect(self) -> Iterable[Metric]:
        yield from self._jobs_and_tasks()
        yield from self._waiting()
        yield from self._hosts()
        yield from self._gangs()
        yield from self._demand()
        yield from self._kept()
        yield from self._routes()

    def _kept(self) -> Iterator[Metric]:
        machine = self._machine
        ledger = machine.ledger
        letters = CounterMetricFamily(
            "iris_dead_letters", "Commands that failed with an internal error."
        )
        letters.add_metric([], ledger.totals.dead_letters)
        yield letters
        number = {
            "finished_jobs": machine.retention.finished,
            "spent_keys": len(ledger.spent_keys),
            "answers": len(ledger.answers),
        }
        yield gauges("iris_kept", "What is kept in memory for a while, by kind.", ["kind"], number)
        size = {
            "finished_jobs": machine.retention.bytes,
            "spent_keys": ledger.spent_keys.held.bytes,
            "answers": ledger.answers.held.bytes,
        }
        yield gauges("iris_kept_bytes", "About how much memory it takes, by kind.", ["kind"], size)

    def _jobs_and_tasks(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        tasks = {
            (display_name(state), display_name(band)): counts[state]
            for band, counts in ledger.tally.items()
            for state in TaskState
            if counts[state]
        }
        yield gauges("iris_tasks", "Tasks by state and band.", ["state", "band"], tasks)
        jobs = {
            display_name(state): len(ledger.index.of(("state", state)))
            for state in JobState
            if state
        }
        yield gauges("iris_jobs", "Jobs by state.", ["state"], jobs)

    def _waiting(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        waiting = Tally(
            {
                (band, NOT_YET_LOOKED_AT.code): counts[TaskState.PENDING]
                for band, counts in ledger.tally.items()
            }
        )
        for (band, code), n in ledger.pending_because.items():
            waiting[band, code] += n
            waiting[band, NOT_YET_LOOKED_AT.code] -= n
        for job in map(ledger.jobs.__getitem__, ledger.gates.gated):
            kinds = {gate.kind for gate in job.gates if gate.is_closed and not gate.each}
            if kinds:  # a hold first, as in `gates.reason_for`
                code = ReasonCode(min(kinds, key=lambda kind: (kind is not GateKind.HELD, kind)))
                waiting[job.band, code] += job.counts[TaskState.PENDING]
                waiting[job.band, NOT_YET_LOOKED_AT.code] -= job.counts[TaskState.PENDING]
        pending = {(code.value, display_name(band)): n for (band, code), n in (+waiting).items()}
        yield gauges("iris_pending_tasks", "Waiting tasks by reason.", ["reason", "band"], pending)

    def _gangs(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        sessions = {status.value.lower(): len(queue) for status, queue in ledger.timeouts.items()}
        yield gauges(
            "iris_sessions", "Sessions in a status that has a timeout.", ["status"], sessions
        )
        words = "TPU slices: free as a whole, used by a task, or broken (a host is missing or takes no work)."
        yield gauges("iris_slices", words, ["variant", "state"], +ledger.host_sums.slice_states)

    def _demand(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        missing = at_once(demand(ledger))
        variants = Tally({variant: 0 for variant, _ in +ledger.host_sums.slice_states})
        variants.update({one.variant: 0 for one in missing.slices})
        for one in missing.slices:
            variants[one.variant] += one.slices
        yield gauges(
            "iris_demand_slices", "TPU slices that waiting work lacks.", ["variant"], variants
        )
        shapes = Tally(
            dict.fromkeys(
                (shape_label(asdict(shape.total)) for shape in at_once(known_shapes(ledger))), 0
            )
        )
        for host in missing.hosts:
            shapes[shape_label(host.shape)] += host.hosts
        yield gauges(
            "iris_demand_hosts", "Hosts of a shape that waiting work lacks.", ["shape"], shapes
        )
        words = "Waiting tasks that lack slices, hosts, or a kind of host that there is not."
        lacks: Mapping[str, Sequence[Any]] = {
            "slices": missing.slices,
            "hosts": missing.hosts,
            "unsatisfiable": missing.unsatisfiable,
        }
        tasks = {kind: sum(one.tasks for one in lacking) for kind, lacking in lacks.items()}
        yield gauges("iris_demand_tasks", words, ["kind"], tasks)

    def _routes(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        deployments = ledger.deployments.values()
        states = Tally(
            route.status.value for deployment in deployments for route in deployment.held()
        )
        routes = {
            status.value: states[status.value]
            for status in RouteStatus
            if status is not RouteStatus.TERMINATED
        }
        yield gauges("iris_deployment_routes", "Routes of deployments by state.", ["state"], routes)
        wanted = sum(
            deployment.spec.replicas
            for deployment in deployments
            if deployment.status in table.LIVE
        )
        words = "Routes that deployments are to have, by hand or by their scaling rule."
        yield GaugeMetricFamily("iris_deployment_wanted_routes", words, value=wanted)
        at = ledger.now_ms, ledger.probes.floor_ms
        unknown = sum(bool(ledger.loads.unknown(deployment, *at)) for deployment in deployments)
        words = "Deployments whose load is not known, so that their scaling rule changes nothing."
        yield GaugeMetricFamily("iris_deployment_load_unknown", words, value=unknown)

    def _hosts(self) -> Iterator[Metric]:
        ledger = self._machine.ledger
        sums = ledger.host_sums
        states = {state.value: sums.states[state] for state in WorkerState}
        yield gauges("iris_workers", "Hosts by state.", ["state"], states)
        words = "Resources of healthy hosts: {}.".format
        for name, amount in (("capacity", sums.capacity), ("committed", sums.committed)):
            yield gauges(f"iris_resource_{name}", words(name), ["resource"], asdict(amount))
