"""docs/metrics.md: what each service shows on `/metrics`, read from its registry."""

from __future__ import annotations

from collections.abc import Iterator

from drawings.markdown import document, grid
from iris_gateway.metrics import Metrics
from iris_notifier.metrics import NotifierMetrics
from iris_provisioner.metrics import ProvisionerMetrics
from iris_proxy.metrics import ProxyMetrics
from iris_scheduler.metrics import SchedulerMetrics
from iris_service.observing import GuardedCollector, GuardedRegistry
from iris_service.telemetry import ServiceCollector
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.replication.metrics import StateMetrics
from iris_worker.metrics import WorkerMetrics

EXPLAINED = """\
For Prometheus. Base units, no ids in labels; a name once released stays. Labels of users, projects and hosts have the
20 largest by name and the rest as `other`; the project of work without the label `project` is `none`. Gauges that
mirror records are counted from the records when they are asked for. Every service also shows its process
(`process_*`) and its interpreter (`python_*`). The gateway serves `/metrics` beside the API, the other services where
`[run] metrics` says."""


def registries() -> dict[str, GuardedRegistry]:
    """A registry of each service, as it is before anything has happened."""
    machine = Machine(Policy(), "drawing")
    shared = GuardedRegistry()
    shared.register(ServiceCollector("drawing", lambda: None))
    notifier = NotifierMetrics()
    notifier.show(lambda: 0, dict)
    return {
        "Every service": shared,
        "State": StateMetrics(lambda: machine).registry,
        "Scheduler": SchedulerMetrics(lambda: 0.0).registry,
        "Worker": WorkerMetrics(lambda: 0).registry,
        "Gateway": Metrics().registry,
        "Proxy": ProxyMetrics().registry,
        "Provisioner": ProvisionerMetrics().registry,
        "Notifier": notifier.registry,
    }


def families(registry: GuardedRegistry) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, labels and help of every metric of Iris in a registry, by name."""
    # What a family is labelled with is not public, and before the first sample it stands nowhere
    # else.
    found = {}
    for collector in list(registry._collector_to_names):
        source = collector.source if isinstance(collector, GuardedCollector) else collector
        for family in collector.collect():
            labels = getattr(source, "_labelnames", ()) or getattr(family, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (
                family.type,
                " ".join(f"`{label}`" for label in labels),
                family.documentation,
            )
    return ((f"`{name}`", *found[name]) for name in sorted(found) if name.startswith("iris_"))


def metrics_document() -> str:
    """One table per service."""
    parts = []
    for service, registry in registries().items():
        parts += [
            f"## {service}",
            grid(("metric", "type", "labels", "meaning"), families(registry)),
        ]
    return document("Metrics", "the registries of the services", EXPLAINED, *parts)
