"""Public events of commits that may not have been published yet, kept until their publication is
confirmed. Pure.

A follower publishes no events; when it takes over it publishes those after the last one published.
Some are kept longer, because the stream of events may lose its newest ones in a crash. See also:
`iris_bus.streams.window` keeps the encoded events of the leader. Source:
docs/design/reliability.md#promises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from iris_bus.contract import Publication
from iris_bus.streams.window import KEPT
from iris_state.effects.outbox import event_place, unheard
from iris_state.records.facts import PublicFact

_WHOLE = 1 << 62
"""An index after every event of a commit."""


class UnpublishedEvents:
    """The newest facts, oldest first.

    Args:
        sequence: every fact after this commit is kept.
        last_published: the last event known to be published.
    """

    def __init__(self, sequence: int = 0, last_published: str = "") -> None:
        self._last_published = event_place(last_published)
        self._since = min((sequence, _WHOLE), self._last_published)
        self._facts: deque[tuple[int, Sequence[PublicFact]]] = deque()
        self._count = 0

    def add(self, sequence: int, facts: Sequence[PublicFact]) -> None:
        """Keep the facts of one commit."""
        if facts:
            self._facts.append((sequence, facts))
            self._count += len(facts)
            self._let_go()

    def note_published(self, last_published: str) -> None:
        """Everything up to the event with this id is published."""
        self._last_published = max(self._last_published, event_place(last_published))
        self._let_go()

    def behind(self, last_published: str) -> list[Publication] | None:
        """Every event after the one with this id; None when some of them are no longer kept.

        An empty id means that the published events have expired.
        """
        place = event_place(last_published) if last_published else self._last_published
        if place < self._since:
            return None
        return [
            event for sequence, facts in self._facts for event in unheard(facts, sequence, place)
        ]

    def _let_go(self) -> None:
        while self._count > KEPT and self._facts[0][0] < self._last_published[0]:
            sequence, facts = self._facts.popleft()
            self._since = sequence, sum(fact.tasks for fact in facts) - 1
            self._count -= len(facts)
