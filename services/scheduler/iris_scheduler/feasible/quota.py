"""Running quotas: within a band, tasks that would take their user over a quota are placed after all
others.

A quota never blocks a task; it only lowers its order. Source: docs/design/semantics.md#order.
"""

from __future__ import annotations

from collections.abc import Mapping

from iris_core.quota import RUNNING_LIMITS, Quota, UserLimit
from iris_scheduler.mirror.capacity import Need
from iris_scheduler.mirror.usage import NOTHING, Held, Usage, share_of, with_tasks


class Allowances:
    """What each user may still hold in one cycle before other users go first; placements count at
    once. The quota of the user ``""`` is that of users without one.
    """

    def __init__(self, quotas: Mapping[str, Quota], usage: Usage) -> None:
        limits = {
            user: tuple([getattr(quota, limit.name) for limit, _ in RUNNING_LIMITS])
            for user, quota in quotas.items()
        }
        self._limits = {user: most if any(most) else None for user, most in limits.items()}
        self._default = self._limits.get("")
        self._quotas = quotas
        self._usage = usage
        self._spent: dict[str, Held] = {}

    def within(self, user: str, need: Need, count: int) -> int:
        """How many of ``count`` such tasks keep the user within every limit."""
        limits = self._of(user)
        if limits is None:
            return count
        for limit, running, share in zip(limits, self.running(user), share_of(need), strict=True):
            if limit and share:
                count = min(count, max(0, limit - running) // share)
        return count

    def spend(self, user: str, need: Need, count: int) -> None:
        """Count placed tasks of the user."""
        if self._of(user) is not None:
            self._spent[user] = with_tasks(self.running(user), need, count)

    def _of(self, user: str) -> tuple[int, ...] | None:
        """The limits of a user, else those of users without a quota; None: unlimited."""
        return self._limits.get(user, self._default)

    def running(self, user: str) -> Held:
        """What the user's open attempts hold, including this cycle's placements."""
        return self._spent.get(user) or self._usage.of(user)

    def limit_reached(self, user: str, need: Need) -> tuple[UserLimit, int, int, str] | None:
        """The first limit that one more such task would exceed, the amount in use, the limit, and
        in words where that comes from. None when it would not.
        """
        mosts = self._of(user) or NOTHING
        for (limit, _), most, running, share in zip(
            RUNNING_LIMITS, mosts, self.running(user), share_of(need), strict=True
        ):
            if most and share and running + share > most:
                quota = self._quotas.get(user) or self._quotas[""]
                return limit, running, most, quota.source_words(limit.name)
        return None
