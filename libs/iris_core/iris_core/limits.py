"""Size limits of messages, in bytes. Every sender keeps to them; no bus accepts more.

Source: docs/adr/0015-commits-in-parts.md, with the sum for each kind of message.
"""

from __future__ import annotations

MESSAGE_BYTES = 4 << 20
"""No message is larger, and no server may take less."""
SPEC_BYTES = 1 << 20
"""A job's specification, as msgpack and as JSON: it stands whole in orders, deltas, commits and answers."""
CHUNK_BYTES = 1 << 20
"""What can be divided is divided into messages of about this."""
DELTA_BYTES = 2 << 20
"""A delta of more is not sent; the scheduler is told to ask for everything, which comes in chunks."""
ROUND_BYTES = 1 << 20
"""Of inputs judged in one round, unless one alone is larger."""
WORKER_BYTES = 64 << 10
"""What a host says of itself when it registers, without its attempts."""
ATTEMPTS = 5000
"""On one host at a time, those whose end is not acknowledged included: a heartbeat tells every stage of each."""
SENTENCE = 1000
"""Characters of a reason or an error that a person or a host gives."""
TAIL = 4096
"""Characters kept of what an attempt printed last."""
PLACED_AT_ONCE = 40_000
"""Tasks placed, and attempts stopped or places nominated, by one plan, unless one job alone has more."""
REASONS_BYTES = 512 << 10
"""Of reasons in one plan; the others wait for the next."""
MISTAKES = 100
"""Named in one refusal."""
SHOWN = 100
"""Names listed in one reason."""


def clipped(text: str, length: int = SENTENCE) -> str:
    """At most ``length`` characters of it."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
