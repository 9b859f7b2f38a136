"""The killer: one fault after the other, chosen by chance, against the processes of a cluster."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.cluster import Cluster

_SHORTEST_S, _LONGEST_S = 1.0, 4.0


@dataclass
class Killer:
    """Strikes until it is told to stop; whatever it froze goes on again by then.

    Attributes:
        probe: returns when the cluster accepts work; timed after each fault.
    """

    cluster: Cluster
    dice: random.Random
    probe: Callable[[], None]
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.enough.wait(self.dice.uniform(_SHORTEST_S, _LONGEST_S)):
            with contextlib.suppress(LookupError, ProcessLookupError, FileNotFoundError):
                began = time.monotonic()
                self._strike()
                self.probe()
                self.recoveries.append(time.monotonic() - began)

    def _strike(self) -> None:
        service = self.dice.choice(("state", "state", "state", "scheduler", "gateway", "worker", "nats"))
        pids = self.cluster.pids(service)
        if not pids:
            raise LookupError(service)
        pid = self.dice.choice(pids)
        if self.dice.random() < 0.6:
            os.kill(pid, signal.SIGKILL)
            self.faults[f"kill -9 {service}"] += 1
            return
        seconds = self.dice.choice((0.2, 1.0, 3.0))
        os.kill(pid, signal.SIGSTOP)
        self.faults[f"stop {service}"] += 1
        thread = threading.Timer(seconds, _go_on, (pid,))
        thread.start()


def _go_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
