"""Limits the requests or bytes of each user: a token bucket per user.

Pure: the time is an argument. Source: docs/design/reliability.md#security.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from iris_gateway.http.problem import ProblemResponse

MAX_USERS = 10_000


@dataclass(slots=True)
class RateLimiter:
    """Token buckets by user; the least recently used are dropped first.

    Args:
        per_s: requests or bytes a second, 0: unlimited. burst: how many at once after a pause.
            unit: what is counted.
    """

    per_s: float = 0.0
    burst: float = 0.0
    unit: str = "requests"
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def admit(self, user: str, now_s: float) -> None:
        """Count one request. Raises ProblemResponse too_many_requests with the time until the next
        may be sent.
        """
        if not self.per_s:
            return
        left = self._left(user, now_s)
        if left < 1:
            wait_s = max(1, round((1 - left) / self.per_s))
            detail = f"{user} may send {self.per_s:,.10g} {self.unit} a second"
            raise ProblemResponse("too_many_requests", detail, headers={"retry-after": str(wait_s)})
        self._buckets[user] = (left - 1, now_s)

    def spend(self, user: str, amount: int, now_s: float) -> None:
        """Subtract bytes that have already arrived; the bucket may become negative."""
        if self.per_s:
            self._buckets[user] = (self._left(user, now_s) - amount, now_s)

    def _left(self, user: str, now_s: float) -> float:
        left, at_s = self._buckets.pop(user, (self.burst, now_s))
        left = min(self.burst, left + (now_s - at_s) * self.per_s)
        self._buckets[user] = (left, now_s)
        if len(self._buckets) > MAX_USERS:
            self._buckets.popitem(last=False)
        return left
