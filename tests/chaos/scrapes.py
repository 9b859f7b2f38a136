"""Scrapes every process throughout the run: faults may leave a scrape unanswered, and none ends or
fails by one.
"""

from __future__ import annotations

import http.client
import re
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

_PAUSE_S = 0.5
_WAIT_S = 2.0
_AT_ONCE = 8
_FAILED = re.compile(r'^iris_collector_failures_total\{collector="([^"]*)"\} [1-9]', re.MULTILINE)


@dataclass
class Scrapes:
    """Asks all processes for their figures, until told to stop.

    Args:
        addresses: their ``/metrics``, by service.

    Attributes:
        answered: how many scrapes of each service.
    """

    addresses: Callable[[], Mapping[str, Sequence[str]]]
    answered: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    enough: threading.Event = field(default_factory=threading.Event)
    _failed: set[str] = field(default_factory=set)

    @property
    def wrong(self) -> list[str]:
        """What no fault may cause."""
        return sorted(self._failed)

    def run(self) -> None:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not self.enough.wait(_PAUSE_S):
                asked = [(name, url) for name, urls in self.addresses().items() for url in urls]
                for name, page in pool.map(lambda one: (one[0], self._scrape(*one)), asked):
                    self.answered[name] += page is not None
                    self.unanswered += page is None
                    for collector in _FAILED.findall(page or ""):
                        self._failed.add(f"wrong: {collector} of {name} failed when it was scraped")

    def _scrape(self, service: str, url: str) -> str | None:
        """What it answers; None when nobody does."""
        try:
            with urllib.request.urlopen(url, timeout=_WAIT_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            self._failed.add(f"wrong: a scrape of {service} was answered {error.code}")
        except (OSError, http.client.HTTPException):
            pass
        return None
