"""The open chains of each job whose tasks may wait behind one another, and how long its attempts
run.

It decides nothing. See also: `hosts`, which counts what chains hold.
Source: docs/design/calls.md#chains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iris_core.messages.message import AttemptRef
from iris_core.messages.scheduler_state import Hold, Ran

_REMEMBERED = 128
"""Attempts after which what earlier ones took counts half."""


@dataclass(slots=True)
class OpenChain:
    """One chain on a worker.

    ``since_ms``: of each open attempt, when it was assigned; of one that runs, its start.
    ``stopping``: those that were ordered to stop.
    """

    worker: str
    since_ms: dict[AttemptRef, int] = field(default_factory=dict)
    stopping: set[AttemptRef] = field(default_factory=set)


class JobChains:
    """The open chains of one job, by the attempt that each began with."""

    def __init__(self) -> None:
        self.open: dict[AttemptRef, OpenChain] = {}
        self.seen = 0
        self._ms = 0

    @property
    def mean_ms(self) -> int:
        """How long its attempts run on average; 0 before any has ended."""
        return self._ms // max(1, self.seen)

    def learn(self, ran: Ran) -> None:
        """Attempts have ended."""
        self.seen, self._ms = self.seen + ran.attempts, self._ms + ran.ms
        if self.seen > _REMEMBERED:
            self._ms = self._ms * _REMEMBERED // 2 // self.seen
            self.seen = _REMEMBERED // 2

    def put(self, hold: Hold) -> None:
        """An attempt is open, or is stopping now."""
        chain = self.open.setdefault(hold.chain or hold.ref, OpenChain(hold.worker))
        chain.since_ms[hold.ref] = hold.since_ms
        if hold.stopping:
            chain.stopping.add(hold.ref)

    def pop(self, hold: Hold) -> None:
        """An attempt has ended."""
        name = hold.chain or hold.ref
        chain = self.open.get(name)
        if chain is None:
            return
        chain.since_ms.pop(hold.ref, None)
        chain.stopping.discard(hold.ref)
        if not chain.since_ms:
            del self.open[name]
