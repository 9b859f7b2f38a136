"""The journal position of the newest write that this gateway has seen answered.

A read is answered by a replica at that position at least, so that callers read their own writes.
Callers that use several gateways carry the position themselves, in `HEADER`.
"""

from __future__ import annotations

HEADER = "iris-position"
SCOPE = "iris.position"
"""Where an endpoint leaves the position of its answer for the response header."""
NOTE_HEADER = "iris-note"
NOTE_SCOPE = "iris.note"
"""Where an endpoint leaves the note of its answer for the response header: what its caller should
know beside it.
"""


class Position:
    """A position that only grows."""

    def __init__(self) -> None:
        self.newest = 0

    def note(self, position: int) -> None:
        """Record that a write is stored up to this position."""
        self.newest = max(self.newest, position)


def position_from(text: str) -> int:
    """The position in a request's header; 0 when it is absent or malformed."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
