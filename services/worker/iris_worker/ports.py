"""Ports of attempts, and ports that ended attempts had lately. Pure; times are monotonic.

A connection to an attempt that has ended may still be in flight, or in a client's pool: its port is not reused for a
while. Out of scope: what else of this host has a port. Source: docs/design/serving.md#probes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

from iris_core.messages import AttemptRef

REST_S = 60.0
"""From the end of an attempt until its ports are as good as any other."""


class PortUse:
    """The ports of this host as attempts use them."""

    def __init__(self) -> None:
        self._held: dict[AttemptRef, tuple[int, ...]] = {}
        self._in_use: set[int] = set()
        self._freed: OrderedDict[int, float] = OrderedDict()

    def hold(self, ref: AttemptRef, ports: Iterable[int]) -> None:
        """These are an attempt's until it is over."""
        self._held[ref] = held = tuple(ports)
        self._in_use.update(held)

    def free(self, ref: AttemptRef, now_s: float) -> None:
        """The attempt is over, and its ports rest. Those that have rested are forgotten, the longest first."""
        for port in self._held.pop(ref, ()):
            self._in_use.discard(port)
            self._freed[port] = now_s
            self._freed.move_to_end(port)
        while self._freed and now_s - next(iter(self._freed.values())) >= REST_S:
            self._freed.popitem(last=False)

    def rest_s(self, port: int, now_s: float) -> float:
        """How long a port should still rest: 0 when it need not, infinite while an attempt has it."""
        if port in self._in_use:
            return math.inf
        return max(0.0, self._freed.get(port, -math.inf) + REST_S - now_s)
