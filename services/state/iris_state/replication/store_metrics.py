"""What the NATS servers say about the stores, as metrics of the leader. Out of scope: asking them
(`store_watch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from iris_bus.contract import ServerStorage, StoreStanding
from iris_core.subjects import JOURNAL, LAST_BACKUP
from iris_service.telemetry import gauges


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
        journal = self.standings.get(JOURNAL.name)
        done = {(): int(journal.notes.get(LAST_BACKUP, 0)) / 1000} if journal is not None else {}
        words = "When `iris admin backup` has last finished; 0: never."
        yield gauges("iris_last_backup_timestamp_seconds", words, (), done)

    def _sizes(self) -> Iterator[Metric]:
        stored = {store: standing.bytes for store, standing in self.standings.items()}
        limits = {
            store: standing.limit_bytes
            for store, standing in self.standings.items()
            if standing.limit_bytes
        }
        words = "What each stream and bucket holds on the NATS server."
        yield gauges("iris_stored_bytes", words, ["store"], stored)
        words = "The most that each stream may hold, for those with a limit."
        yield gauges("iris_store_limit_bytes", words, ["store"], limits)

    def _copies(self) -> Metric:
        words = (
            "Copies of each stream and bucket: wanted by the settings or its declaration, declared on the servers, "
            "current on a server that answers."
        )
        return gauges(
            "iris_store_copies",
            words,
            ["store", "kind"],
            _parts(self.standings, "wanted declared current"),
        )

    def _servers(self) -> Metric:
        words = "1 while a NATS server of the cluster answers the others, else 0; none where there is one server."
        answers: dict[str, bool] = {}
        for standing in self.standings.values():
            for name, up in standing.servers.items():
                answers[name] = up and answers.get(name, True)
        return gauges("iris_nats_server_up", words, ["server"], dict(sorted(answers.items())))

    def _storage(self) -> Metric:
        words = "What each NATS server has stored, has reserved for streams with a limit, and may store (`max_file_store`)."
        found = _parts(dict(sorted(self.storage.items())), "stored reserved limit")
        return gauges("iris_nats_server_storage_bytes", words, ["server", "kind"], found)


def _parts(records: Mapping[str, object], kinds: str) -> Mapping[tuple[str, str], int]:
    """Some attributes of each record, by its name and theirs."""
    return {
        (name, kind): getattr(record, kind)
        for name, record in records.items()
        for kind in kinds.split()
    }
