"""The room for what begins on this host while something runs here that perhaps does not count any
more. Pure.

Nothing that ran on a worker counts once it was LOST; when it comes back, others are placed there
before that has ended. Out of scope: what begins, and how (agent). Source:
    docs/design/isolation.md#a-host-that-comes-back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.resources import NOTHING, Amount
from iris_core.states import KernelStatus
from iris_worker.agent.local_attempt import LocalAttempt

LACKING = "waits for room beside attempts that ran here before the worker registered"
LONGEST_MS = 30_000
"""So long what begins waits for what was dropped, and for its settle time."""


class HostRoom:
    """What of this host is free; it is known only while there is a doubt.

    Args:
        attempts: of this host. begin_next: where what has waited is put when there is room for it.

    Attributes:
        total: what the host has.
        doubted: what ran here when this worker registered, until it has ended or the answer says
            that it counts.
    """

    def __init__(
        self, attempts: Mapping[AttemptRef, LocalAttempt], begin_next: deque[AttemptRef]
    ) -> None:
        self.total = NOTHING
        self.doubted: set[AttemptRef] = set()
        self._attempts = attempts
        self._next = begin_next
        self._waiting: dict[AttemptRef, Amount] = {}
        self._held: dict[AttemptRef, Amount] = {}
        self._free = NOTHING
        self._until_ms = 0

    def doubt(self) -> None:
        """The worker registers: until the answer nobody here knows which of its attempts count."""
        begin = self._waiting.keys() | self._next
        self._held = {
            ref: self._of(held.template)
            for ref, held in self._attempts.items()
            if _runs(held) and ref not in begin
        }
        self._free = self.total - sum(self._held.values(), NOTHING)
        self.doubted = set(self._held)
        self._until_ms = 0

    def _of(self, template: TaskTemplate | None) -> Amount:
        """What an attempt holds; one that an earlier worker process has started may hold
        everything.
        """
        return template.resources.amount if template is not None else self.total

    def believe(self, dropped: Container[AttemptRef], now_ms: int) -> None:
        """The registration is answered: what was not dropped counts, and what was is waited for,
        but not for ever.
        """
        self.doubted = {ref for ref in self.doubted if ref in dropped}
        settle_ms = max(
            (held.settle_ms for ref, held in self._attempts.items() if ref in self.doubted),
            default=0,
        )
        self._until_ms = self._until_ms or now_ms + settle_ms + LONGEST_MS
        for ref in self._held.keys() - self.doubted:
            if (held := self._attempts.get(ref)) is not None and held.template is None:
                self._free += self._held.pop(ref)  # it counts in the ledger
        self._grant()

    def take(self, ref: AttemptRef, template: TaskTemplate) -> bool:
        """Whether there is room for an attempt that is to begin, which has it then; otherwise it
        waits.
        """
        if ref not in self._held:
            self._waiting[ref] = template.resources.amount
            if len(self._waiting) > 1 or not self._waiting[ref].fits(self._free):
                return False
            self._give(ref)
        return True

    def left(self, ref: AttemptRef) -> None:
        """Nothing of an attempt runs any more."""
        self.doubted.discard(ref)
        self._waiting.pop(ref, None)
        self._free += self._held.pop(ref, NOTHING)
        self._grant()

    def pass_time(self, now_ms: int) -> None:
        """What was dropped long ago and has not ended is not waited for any more."""
        if self._until_ms and self._until_ms <= now_ms:
            self.doubted.clear()
            self._grant()

    def _grant(self) -> None:
        """What waits begins in its order: what has room, and everything when there is no doubt any
        more.
        """
        if not self.doubted:
            self._until_ms = 0
        for ref, amount in list(self._waiting.items()):
            if self.doubted and not amount.fits(self._free):
                break
            self._give(ref)
            self._next.append(ref)

    def _give(self, ref: AttemptRef) -> None:
        self._held[ref] = amount = self._waiting.pop(ref)
        self._free -= amount


def _runs(held: LocalAttempt) -> bool:
    return not (held.is_over or held.freed or held.stage.status is KernelStatus.SCHEDULED)
