"""Tracks which events of an outbox are waiting, sent, or stored, so that each is published once.
Pure.

Events are sent as a chain of stream sequences. After an error the id of the stream's last event
tells what is stored; `go_on` queues everything after it again. Events stored a moment ago are kept,
because a stream that persists lazily may lose them in a crash. Out of scope: sending and waiting.
    Source: docs/design/nats.md#features-used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from iris_bus.contract import Fenced, Publication, Unavailable

KEPT = 20_000
"""The newest stored events are kept, because a stream that persists lazily may forget so many in a
crash.
"""


class Window:
    """The events of one writer, in order: kept, sent, waiting.

    Args:
        size: how many may be sent and unconfirmed; the server drops messages it cannot queue.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.confirmed = 0
        self.last_published = ""
        self._origin = (0, "")
        self._waiting: deque[Publication] = deque()
        self._sent: deque[Publication] = deque()
        self._kept: deque[Publication] = deque(maxlen=KEPT)

    @property
    def backlog(self) -> int:
        """Events that are not known to be stored."""
        return len(self._waiting) + len(self._sent)

    @property
    def in_flight(self) -> int:
        """Events sent and not answered."""
        return len(self._sent)

    def start(self, sequence: int, last_published: str) -> None:
        """Forget all events and continue after the stream's last event."""
        self._waiting.clear()
        self._sent.clear()
        self._kept.clear()
        self._origin = (sequence, last_published)
        self.confirmed = sequence
        self.last_published = last_published

    def add(self, events: Sequence[Publication]) -> None:
        self._waiting.extend(events)

    def next(self, limit: int) -> tuple[int, Sequence[Publication]]:
        """Up to ``limit`` events to send now and the sequence they follow; none when the window is
        full.
        """
        count = min(limit, len(self._waiting), self.size - len(self._sent))
        after = self.confirmed + len(self._sent)
        chunk = [self._waiting.popleft() for _ in range(count)]
        self._sent.extend(chunk)
        return after, chunk

    def confirm(self, sequence: int) -> None:
        """Mark the events up to ``sequence`` as stored, as the chain proves."""
        done = [self._sent.popleft() for _ in range(sequence - self.confirmed)]
        if done:
            self.confirmed = sequence
            self.last_published = done[-1].message_id
            self._kept.extend(done)

    def go_on(self, sequence: int, last: str) -> None:
        """The stream ends at ``sequence`` with the event ``last``: what follows it is queued again.

        Raises Fenced when another writer published unknown events, Unavailable when the stream lost
        more events than are kept.
        """
        known = [*self._kept, *self._sent, *self._waiting]
        behind = self._behind(known, sequence, last)
        self._kept = deque(islice(known, behind), maxlen=KEPT)
        self._sent.clear()
        self._waiting = deque(islice(known, behind, None))
        self.confirmed = sequence
        self.last_published = last

    def _behind(self, known: Sequence[Publication], sequence: int, last: str) -> int:
        """How many of ``known`` are stored when the stream ends at this event. Raises Fenced,
        Unavailable.
        """
        for at in range(len(known) - 1, -1, -1):
            if known[at].message_id == last:
                return at + 1
        if (sequence, last) == (self.confirmed, self.last_published):
            return len(self._kept)
        if (sequence, last) == self._origin and self.confirmed - sequence == len(self._kept):
            return 0
        if sequence < self.confirmed:
            raise Unavailable(
                f"the events fell back from {self.confirmed} to {sequence}: more than can be published again"
            )
        raise Fenced(f"the last event published is {last!r}, by another writer")
