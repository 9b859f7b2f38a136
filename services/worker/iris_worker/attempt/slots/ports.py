"""Ports of attempts, and ports that ended attempts had lately. Pure; times are monotonic.

A connection to an attempt that has ended may still be in flight, or in a client's pool: its port is
not reused for a while. Out of scope: what else of this host has a port. Source:
    docs/design/serving.md#probes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

from iris_core.messages.message import AttemptRef

REST_S = 60.0
"""Seconds after an attempt's end until its ports are reused freely."""


class PortUse:
    """The ports of this host's attempts."""

    def __init__(self) -> None:
        self._held: dict[AttemptRef, tuple[int, ...]] = {}
        self._in_use: set[int] = set()
        self._freed: OrderedDict[int, float] = OrderedDict()

    def hold(self, ref: AttemptRef, ports: Iterable[int]) -> None:
        """Reserve ports for an attempt until it has ended."""
        self._held[ref] = held = tuple(ports)
        self._in_use.update(held)

    def free(self, ref: AttemptRef, now_s: float) -> None:
        """An attempt has ended: its ports are avoided for `REST_S`. Expired entries are removed,
        oldest first.
        """
        for port in self._held.pop(ref, ()):
            self._in_use.discard(port)
            self._freed[port] = now_s
            self._freed.move_to_end(port)
        while self._freed and now_s - next(iter(self._freed.values())) >= REST_S:
            self._freed.popitem(last=False)

    def rest_s(self, port: int, now_s: float) -> float:
        """Seconds until a port should be reused: 0 for now, infinite while an attempt has it."""
        if port in self._in_use:
            return math.inf
        return max(0.0, self._freed.get(port, -math.inf) + REST_S - now_s)
