"""Looks at the workers all the time, to see how many of them became LOST and how many came back."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from iris import Client
from iris.client.problems import ClientError

_LOOK_S = 0.4


@dataclass
class Watch:
    """Counts until it is told to stop; what happens while nobody answers is not seen, so it counts too few."""

    client: Client
    changes: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    enough: threading.Event = field(default_factory=threading.Event)
    _states: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        while not self.enough.wait(_LOOK_S):
            try:
                for worker in self.client.workers():
                    self._note(worker.id, worker.state)
            except ClientError:
                continue

    def _note(self, worker: str, state: str) -> None:
        before = self._states.get(worker, state)
        self._states[worker] = state
        if state == "lost":
            self.lost.add(worker)
        if before != state and "lost" in (before, state):
            self.changes["became LOST" if state == "lost" else "came back"] += 1
