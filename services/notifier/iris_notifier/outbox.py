"""The messages to targets: which wait, and which are kept for the log.

Of one word a target gets a few messages one by one, then a summary of the rest. Whatever a target
is not sent is said: a message is delivered, told of in a summary, or given up.
Source: docs/design/notifications.md#storms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from iris_core import codec
from iris_core.views.notify import JobMessage, JobSummary
from iris_notifier.messages import SUMMARY, type_of
from iris_notifier.records import DeliveryRecord, TargetRecord
from iris_notifier.store import RecordStore

ONE_BY_ONE = 5
"""Messages of one word to a target in one window, before the summary."""
EXAMPLES = 20
"""Names of jobs in a summary."""
MAX_PENDING = 500
"""Messages that may wait for one target; more are summed up."""
KEPT = 1000
"""Messages of a user's targets that are kept when they have ended."""
KEPT_MS = 7 * 86_400_000


@dataclass(slots=True)
class _Window:
    """Since ``began_ms`` so many messages were made; ``summary``: the key of what sums up the
    rest.
    """

    began_ms: int
    made: int = 0
    summary: str = ""


class MessageOutbox:
    """The deliveries of a store.

    Args:
        storm_ms: the length of a window.
    """

    def __init__(self, store: RecordStore, storm_ms: int) -> None:
        self._store = store
        self._storm_ms = storm_ms
        self._windows: dict[tuple[str, str], _Window] = {}
        self._pending: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._ended: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for one in sorted(store.all(DeliveryRecord), key=lambda one: (one.created_ms, one.key)):
            if one.status == "pending":
                self._pending[one.target_key][one.key] = None
            else:
                self._ended[one.owner][one.key] = None

    def pending(self, target: str) -> Iterator[DeliveryRecord]:
        """Those that wait for a target, oldest first."""
        found = (
            self._store.find(key, DeliveryRecord) for key in list(self._pending.get(target, ()))
        )
        return (one for one in found if one is not None)

    def count(self, target: str = "") -> int:
        """How many wait, for one target or for all."""
        if target:
            return len(self._pending.get(target, ()))
        return sum(map(len, self._pending.values()))

    def waiting(self) -> list[str]:
        """The targets for which something waits."""
        return [target for target, keys in self._pending.items() if keys]

    def add_message(
        self, target: TargetRecord, word: str, delivery_id: str, data: JobMessage, now_ms: int
    ) -> None:
        """Make a message, unless it was made before; or add its job to a summary."""
        made = DeliveryRecord(
            id=delivery_id,
            type=type_of(word),
            owner=target.user,
            target=target.name,
            user=data.user,
            job=data.job,
            job_id=data.job_id,
            on=word,
            data=codec.to_json(data),
            created_ms=now_ms,
        )
        if self._store.find(made.key, DeliveryRecord) is not None:
            return
        window = self._window(target.key, word, now_ms)
        if window.made < ONE_BY_ONE and self.count(target.key) < MAX_PENDING:
            window.made += 1
            self.add(made)
        else:
            self._sum_up(window, made, now_ms)

    def add(self, delivery: DeliveryRecord) -> None:
        """Add a message that waits."""
        self._store.save(delivery)
        self._pending[delivery.target_key][delivery.key] = None

    def end(self, delivery: DeliveryRecord, now_ms: int) -> None:
        """Note that a message was delivered or given up, and forget the oldest ones that ended."""
        delivery.ended_ms = now_ms
        self._store.save(delivery)
        self._pending[delivery.target_key].pop(delivery.key, None)
        kept = self._ended[delivery.owner]
        kept[delivery.key] = None
        while kept:
            oldest = self._store.find(next(iter(kept)), DeliveryRecord)
            if oldest is not None:
                if len(kept) <= KEPT and now_ms - oldest.ended_ms < KEPT_MS:
                    return
                self._store.remove(oldest)
            del kept[next(iter(kept))]

    def forget(self, target: str) -> None:
        """Delete what waits for a target that was removed; another one of its name begins anew."""
        for one in self.pending(target):
            self._store.remove(one)
        self._pending.pop(target, None)
        for key in [key for key in self._windows if key[0] == target]:
            del self._windows[key]

    def _window(self, target: str, word: str, now_ms: int) -> _Window:
        known = self._windows.get((target, word))
        if known is None or not known.began_ms <= now_ms < known.began_ms + self._storm_ms:
            known = self._windows[target, word] = _Window(now_ms)
        return known

    def _sum_up(self, window: _Window, made: DeliveryRecord, now_ms: int) -> None:
        known = self._store.find(window.summary, DeliveryRecord) if window.summary else None
        if known is None or known.status != "pending" or known.due_ms <= now_ms:
            known = self._last_summary(made) if self.count(made.target_key) >= MAX_PENDING else None
        if known is None:
            known = DeliveryRecord(
                id=f"{made.id}.rest",
                type=SUMMARY,
                owner=made.owner,
                target=made.target,
                user=made.user,
                on=made.on,
                jobs=0,
                created_ms=now_ms,
                due_ms=window.began_ms + self._storm_ms,
            )
            window.summary = known.key
            self.add(known)
        if made.job_id == known.job_id:
            return  # this event was counted before a restart
        known.job_id = made.job_id
        known.jobs += 1
        if len(known.examples) < EXAMPLES:
            known.examples = (*known.examples, made.job)
        summary = JobSummary(jobs=known.jobs, on=known.on, examples=list(known.examples))
        known.data = codec.to_json(summary)
        self._store.save(known)

    def _last_summary(self, made: DeliveryRecord) -> DeliveryRecord | None:
        """One of the same word that still waits, where too many messages wait."""
        found = [
            one
            for one in self.pending(made.target_key)
            if one.type == SUMMARY and one.on == made.on and not one.tries
        ]
        return found[-1] if found else None
