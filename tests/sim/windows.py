"""Judges building windows: no user begins to prepare more tasks on a host than its window, and all
together no more than `WINDOWS` windows, so what one user prepares keeps no other from starting.

A task that has waited behind another attempt, or for what that builds, was placed without a place
in the window and may prepare beyond it: it does not count.
Source: docs/adr/0147-a-full-building-window-keeps-a-share-for-each-user.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from iris_core.placement.window import WINDOWS
from iris_state.records.entities import AttemptKey
from iris_state.records.ledger import Ledger


class Windows:
    """Watches the commits of one run. A commit that is not looked at is told by `miss`."""

    def __init__(self) -> None:
        self._waited: set[AttemptKey] = set()
        self._has_missed = False

    def miss(self) -> None:
        """What is new by the next look may have waited."""
        self._has_missed = True

    def look(self, ledger: Ledger, window: int) -> Iterator[str]:
        """What is wrong after a commit."""
        waited: set[AttemptKey] = set()
        for host, presence in ledger.presence.items():
            waited |= {
                key
                for key, attempt in presence.open.items()
                if key in self._waited or self._has_missed or not attempt.is_building
            }
            by_user = Counter(
                ledger.jobs[key[0]].user for key in presence.open if key not in waited
            )
            for user, count in by_user.items():
                if count > window:
                    yield f"{user} prepares {count} on {host}, whose window is {window}"
            if by_user.total() > WINDOWS * window:
                yield f"{host} prepares {by_user.total()}, and its window is {window}"
        self._waited, self._has_missed = waited, False
