"""Size limits of messages, in bytes, which every sender keeps to and the bus enforces; lower limits
of settings.

Source: docs/adr/0015-commits-in-parts.md, with the sum for each kind of message.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

PositiveFloat = Annotated[float, msgspec.Meta(gt=0)]
NonNegativeFloat = Annotated[float, msgspec.Meta(ge=0)]
PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
MESSAGE_BYTES = 4 << 20
"""Largest message of Iris; a NATS server must accept messages of this size."""
SPEC_BYTES = 1 << 20
"""A job's specification, as msgpack and as JSON: orders, deltas, commits and answers hold it
whole.
"""
CHUNK_BYTES = 1 << 20
"""Divisible content is sent in messages of about this size."""
DELTA_BYTES = 2 << 20
"""A larger delta is not sent; the scheduler is notified to request a full snapshot, which comes in
chunks.
"""
ROUND_BYTES = 1 << 20
"""Inputs judged in one round, unless a single input is larger."""
WORKER_BYTES = 64 << 10
"""A host's registration, without its attempts."""
ATTEMPTS = 5000
"""On one host at a time, including ended attempts that are not acknowledged: a heartbeat lists each
of them.
"""
SENTENCE = 1000
"""Characters of a reason or an error given by a person or a host."""
TAIL = 4096
"""Characters kept of the last output of an attempt."""
PLACED_AT_ONCE = 40_000
"""Tasks placed, and attempts stopped or places nominated, by one plan, unless a single job has
more.
"""
REASONS_BYTES = 512 << 10
"""Reasons in one plan; the rest are in the next."""
MISTAKES = 100
"""Mistakes listed in one refusal."""
SHOWN = 100
"""Names listed in one reason."""
HEAD_BYTES = 64 << 10
"""Request line and fields of an HTTP request, at the gateway and, as a default, at the proxy."""
HEAD_LINE_BYTES = 16 << 10
"""The target of an HTTP request, and each of its fields."""
HEAD_FIELDS = 200
"""Fields of an HTTP request."""
LOGIN_LINK_MINUTES = 5
"""How long a link that signs a browser in may be used."""

TURNS = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The characters that change the direction of the text after them, as a set of a regular
expression.
"""


def clipped(text: str, length: int = SENTENCE) -> str:
    """At most the first ``length`` characters of a text."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
