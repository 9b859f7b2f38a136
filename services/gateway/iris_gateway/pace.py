"""How often one user may ask: a bucket of requests that fills again, per user.

Pure: the time is an argument. Not in this room: what a request costs besides. Source: reliability.md section 5.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from iris_gateway.problem import Problem

MAX_USERS = 10_000


@dataclass(slots=True)
class Pace:
    """Buckets by user; the longest unheard of are forgotten first.

    Args:
        per_s: requests a second, 0 for any number. burst: how many at once after a pause.
    """

    per_s: float = 0.0
    burst: float = 0.0
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def admit(self, user: str, now_s: float) -> None:
        """Count one request. Raises Problem too_many_requests, saying when the next one may come."""
        if not self.per_s:
            return
        left, at_s = self._buckets.pop(user, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        self._buckets[user] = (left - 1 if left >= 1 else left, now_s)
        if len(self._buckets) > MAX_USERS:
            self._buckets.popitem(last=False)
        if left < 1:
            wait_s = max(1, round((1 - left) / self.per_s))
            detail = f"{user} may send {self.per_s:g} requests a second"
            raise Problem("too_many_requests", detail, headers={"retry-after": str(wait_s)})
