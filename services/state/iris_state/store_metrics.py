"""What the NATS servers say about the stores, as metrics of the leader. Out of scope: asking them (`store_watch`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from iris_bus.contract import ServerStorage, StoreStanding
from iris_core.subjects import JOURNAL

LAST_BACKUP = "iris-last-backup-ms"
"""The metadata of the journal's stream under which `iris admin backup` notes when it was done (Unix, ms)."""


class StoreCollector(Collector):
    """Gauges over what was found out last.

    Attributes:
        standings: by the name of the store; empty on a replica that does not lead.
        storage: by the name of each server.
    """

    def __init__(self) -> None:
        self.standings: Mapping[str, StoreStanding] = {}
        self.storage: Mapping[str, ServerStorage] = {}

    def collect(self) -> Iterable[Metric]:
        yield from self._sizes()
        yield self._copies()
        yield self._servers()
        yield self._storage()
        backup = GaugeMetricFamily(
            "iris_last_backup_timestamp_seconds", "When `iris admin backup` has last finished; 0: never.", labels=[]
        )
        journal = self.standings.get(JOURNAL.name)
        if journal is not None:
            backup.add_metric([], int(journal.notes.get(LAST_BACKUP, 0)) / 1000)
        yield backup

    def _sizes(self) -> Iterator[Metric]:
        words = "What each stream and bucket holds on the NATS server."
        stored = GaugeMetricFamily("iris_stored_bytes", words, labels=["store"])
        words = "The most that each stream may hold, for those with a limit."
        limit = GaugeMetricFamily("iris_store_limit_bytes", words, labels=["store"])
        for store, standing in self.standings.items():
            stored.add_metric([store], standing.bytes)
            if standing.limit_bytes:
                limit.add_metric([store], standing.limit_bytes)
        yield from (stored, limit)

    def _copies(self) -> Metric:
        words = (
            "Copies of each stream and bucket: wanted by the settings or its declaration, declared on the servers, "
            "current on a server that answers."
        )
        copies = GaugeMetricFamily("iris_store_copies", words, labels=["store", "kind"])
        for store, standing in self.standings.items():
            for kind in ("wanted", "declared", "current"):
                copies.add_metric([store, kind], getattr(standing, kind))
        return copies

    def _servers(self) -> Metric:
        words = "1 while a NATS server of the cluster answers the others, else 0; none where there is one server."
        servers = GaugeMetricFamily("iris_nats_server_up", words, labels=["server"])
        answers: dict[str, bool] = {}
        for standing in self.standings.values():
            for name, up in standing.servers.items():
                answers[name] = up and answers.get(name, True)
        for name, up in sorted(answers.items()):
            servers.add_metric([name], up)
        return servers

    def _storage(self) -> Metric:
        words = (
            "What each NATS server has stored, has reserved for streams with a limit, and may store (`max_file_store`)."
        )
        storage = GaugeMetricFamily("iris_nats_server_storage_bytes", words, labels=["server", "kind"])
        for name, found in sorted(self.storage.items()):
            for kind in ("stored", "reserved", "limit"):
                storage.add_metric([name, kind], getattr(found, kind))
        return storage
