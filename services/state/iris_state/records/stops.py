"""Records of attempts that are told to stop before their task leaves them, and of the notices they
were given.

Source: docs/adr/0085-the-end-of-a-noticed-attempt-is-judged-when-it-is-known.md.
"""

from __future__ import annotations

import msgspec

from iris_core.messages.state_worker import GivenNotice
from iris_core.states import Cause

UNCONFIRMED_MS = 120_000
"""How long after its grace period the end of an attempt is waited for, before its task leaves
it.
"""


class Ending(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An attempt was told to stop; its task stays in its state until the end is known.

    ``note``: one sentence for a person.
    """

    cause: Cause
    since_ms: int
    note: str = ""


class StopOrdered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=28):
    """A running attempt is told to stop; what becomes of its task is judged when its end is
    known.
    """

    job: int
    index: int
    attempt: int
    cause: Cause
    note: str = ""


class Noticed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=29):
    """An attempt was given a notice."""

    job: int
    index: int
    attempt: int
    notice: GivenNotice
