"""The attempts that wait on this host for others of their job to end, and then run in their place.
Pure.

Out of scope: what an attempt needs before it runs (agent). Source:
    docs/design/calls.md#chains.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Chain
from iris_core.placement.chains import HAND_BACK_MS


@dataclass(slots=True, eq=False)
class _LocalChain:
    """``before``: what runs, or was ordered and has not arrived. ``since_ms``: when the last of it
    was begun.
    """

    since_ms: int
    before: set[AttemptRef] = field(default_factory=set)
    waiting: deque[AttemptRef] = field(default_factory=deque)


class WaitingChains:
    """All chains of this host in which something waits.

    Args:
        is_done: whether an attempt was here, and nothing of it runs any more.

    Attributes:
        next: what may begin now, because what it waited for has ended.
    """

    def __init__(self, is_done: Callable[[AttemptRef], bool]) -> None:
        self._is_done = is_done
        self._of: dict[AttemptRef, _LocalChain] = {}
        self.next: deque[AttemptRef] = deque()

    def add(self, ordered: Chain, fresh: list[AttemptRef], now_ms: int) -> None:
        """Attempts that are new here wait behind others; the first of them may begin at once where
        none runs.
        """
        if not fresh:
            return
        known = (self._of[ref] for ref in (*ordered.ahead, *ordered.members) if ref in self._of)
        chain = next(known, None) or _LocalChain(now_ms)
        before = {
            ref for ref in ordered.ahead if ref not in chain.waiting and not self._is_done(ref)
        }
        chain.before |= before
        chain.waiting += fresh
        self._of |= dict.fromkeys((*before, *fresh), chain)
        self._begin_next(chain, now_ms)

    def left(self, ref: AttemptRef, now_ms: int) -> bool:
        """Nothing of an attempt runs any more; whether another one may begin in its place."""
        chain = self._of.pop(ref, None)
        if chain is None:
            return False
        if ref not in chain.before:
            chain.waiting.remove(ref)
            return False
        chain.before.remove(ref)
        return self._begin_next(chain, now_ms)

    def _begin_next(self, chain: _LocalChain, now_ms: int) -> bool:
        if chain.before or not chain.waiting:
            return False
        ref = chain.waiting.popleft()
        chain.before.add(ref)
        chain.since_ms = now_ms
        self.next.append(ref)
        return True

    def late(self, now_ms: int) -> Iterator[AttemptRef]:
        """What waits behind an attempt that was begun long ago, the last of each chain first."""
        for chain in {id(chain): chain for chain in self._of.values()}.values():
            if chain.waiting and now_ms - chain.since_ms >= HAND_BACK_MS:
                yield from reversed(tuple(chain.waiting))
