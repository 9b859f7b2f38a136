"""Runs what only looks at a process: collectors of metrics, probes, descriptions. It ends nothing.

An exception that ends a service is right where records are decided, and wrong where they are read:
a scrape during an outage would end what the scrape is to watch. So each look runs in
`CollectorGuard`, which counts the failure (`iris_collector_failures_total`), logs its first in a
row, and goes on.
Out of scope: what is looked at (`telemetry`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger(__name__)

T = TypeVar("T")

_FILE_WAIT_S = 0.1
_WORDS = "Failures of what only looks at the process: collectors, probes, descriptions. Part of the page is missing."


class CollectorGuard(Collector):
    """Survives the failures of what it runs."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._failing: set[str] = set()

    @property
    def failures(self) -> Mapping[str, int]:
        """How often each has failed."""
        return self._failures

    @contextlib.contextmanager
    def surviving(self, name: str) -> Iterator[None]:
        """Count an exception of the block and leave it. Logged when the last run of ``name`` was
        good, so that a failing collector is logged once and not at each scrape.
        """
        try:
            yield
        except Exception as error:
            self._failures[name] = self._failures.get(name, 0) + 1
            if name not in self._failing:
                self._failing.add(name)
                log.exception("%s failed, which ends nothing: %s", name, error)
        else:
            if name in self._failing:
                self._failing.discard(name)
                log.info("%s works again", name)

    def read(self, name: str, look: Callable[[], T], otherwise: T) -> T:
        """What ``look`` returns, or ``otherwise`` when it raises."""
        found = otherwise
        with self.surviving(name):
            found = look()
        return found  # noqa: RET504 - the block may have been left before

    def collect(self) -> Iterable[Metric]:
        failed = CounterMetricFamily("iris_collector_failures", _WORDS, labels=["collector"])
        for name, count in list(self._failures.items()):
            failed.add_metric([name], count)
        yield failed


class GuardedCollector(Collector):
    """Another collector, of which a failure costs the families that it had not yielded yet.

    Attributes:
        source: the other one.
    """

    def __init__(self, source: Collector, guard: CollectorGuard) -> None:
        self.source = source
        self._guard = guard
        self._name = _name_of(source)

    def describe(self) -> Iterable[Metric]:
        describe = getattr(self.source, "describe", self.source.collect)
        return self._run(describe)

    def collect(self) -> Iterable[Metric]:
        return self._run(self.source.collect)

    def _run(self, read: Callable[[], Iterable[Metric]]) -> Iterable[Metric]:
        found: list[Metric] = []
        with self._guard.surviving(self._name):
            for family in read():
                _check(family)
                found.append(family)
        return found


class GuardedRegistry(CollectorRegistry):
    """A registry whose collectors cannot end or break a scrape.

    Attributes:
        guard: what runs them; it shows its own count.
    """

    def __init__(self) -> None:
        super().__init__(auto_describe=True)
        self.guard = CollectorGuard()
        super().register(self.guard)

    def register(self, collector: Collector) -> None:
        super().register(GuardedCollector(collector, self.guard))


class FileFact(Generic[T]):
    """A fact about a file or a disk, read in a thread of its own: one that does not answer, such as
    a network's, delays nobody. The first read begins at once.

    Args:
        read: returns it, or raises OSError or ValueError where there is none.
    """

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._newest: T | None = None
        self._reader = self._begin()

    def newest(self) -> T | None:
        """The newest one that could be read; None where there is none, or not yet."""
        if not self._reader.is_alive():
            self._reader = self._begin()
            self._reader.join(_FILE_WAIT_S)
        return self._newest

    def _begin(self) -> threading.Thread:
        reader = threading.Thread(target=self._look, daemon=True)
        reader.start()
        return reader

    def _look(self) -> None:
        try:
            self._newest = self._read()
        except (OSError, ValueError):
            self._newest = None


def _name_of(collector: Collector) -> str:
    """What a failure is counted under: the metric, or the class of a collector of several."""
    name = getattr(collector, "_name", "")
    return name if isinstance(name, str) and name else type(collector).__name__


def _check(family: Metric) -> None:
    """Raises TypeError or ValueError for a value that cannot be written on the page."""
    for sample in family.samples:
        float(sample.value)
