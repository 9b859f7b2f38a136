"""How far the journal had come with the newest write this gateway has seen answered.

A read is answered by a replica that is at least as far, so whoever writes and then reads sees what they wrote. Callers
that use several gateways carry the position themselves, in `HEADER`.
"""

from __future__ import annotations

HEADER = "iris-position"
SCOPE = "iris.position"
"""Where an endpoint leaves the position of its answer for the front to send along."""


class Position:
    """Only grows."""

    def __init__(self) -> None:
        self.newest = 0

    def note(self, position: int) -> None:
        """A write stands in the journal up to there."""
        self.newest = max(self.newest, position)


def position_from(text: str) -> int:
    """What a caller sent in the header; 0 for what is no position."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
