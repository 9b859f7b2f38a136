"""Decides whether a failed request may be retried, on another route or connection.

Source: docs/design/serving.md#proxy-rules.
"""

from __future__ import annotations

from enum import Enum

_SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_MOST = 2
_SHARE = 0.1
_AT_ONCE = 10.0


class Failure(Enum):
    """How an attempt failed without an answer."""

    NOT_CONNECTED = "refused or timed out"
    REUSED_CLOSED = "a reused connection was closed before the first byte of the answer"
    BROKEN = "anything else"


class RetryBudget:
    """A budget of retries: a tenth of all requests, with a burst of ten."""

    def __init__(self) -> None:
        self._left = _AT_ONCE

    def request(self) -> None:
        """Count a request."""
        self._left = min(self._left + _SHARE, _AT_ONCE)

    def take(self) -> bool:
        """Take one retry from the budget; False when it is used up."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


def may_retry(failure: Failure, method: str, *, retries: int, has_body: bool, body_read: bool, fresh: bool) -> bool:
    """Whether a failed request may be retried.

    Args:
        retries: retries so far. fresh: whether the failed attempt was a retry on a new connection.
        has_body, body_read: whether it has a body, and whether any of it was read from the client.
    """
    if retries >= _MOST:
        return False
    if failure is Failure.NOT_CONNECTED:
        return not body_read
    return failure is Failure.REUSED_CLOSED and method in _SAFE and not has_body and not fresh
