"""Claims: reports about a task, by a message or the clock. A claim decides nothing; `conclude`
judges it.

A generator of steps is resumed only after its last step has been applied, so the second placement
of a plan sees the capacity that the first one took.
"""

from __future__ import annotations

import msgspec

from iris_core.messages.state_worker import Ended
from iris_core.states import Cause, Initiator, KernelStatus
from iris_core.tables.task import TaskRule
from iris_state.records.changes import Change

CURRENT = -1
"""In place of an attempt number: the task's current attempt, if any."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A claimed event, as a row of the task table.

    Attributes:
        attempt: the attempt of the claim, or `CURRENT`; a claim about a superseded attempt can only
            close it.
        status: for assign, build and run: the kernel status the attempt is in now. detail: what is
            done in it. waits: as in `Stage`.
        worker: for assign: the worker. chain: as of `changes.Assigned`.
        ended: how the attempt's process ended, when its end is known.
        sudden: its worker, or the worker's process, died alone and without notice.
    """

    rule: TaskRule
    job: int
    index: int
    attempt: int = CURRENT
    cause: Cause = Cause.EXITED
    initiator: Initiator = Initiator.SYSTEM
    status: KernelStatus | None = None
    worker: str = ""
    ended: Ended | None = None
    note: str = ""
    sudden: bool = False
    detail: str = ""
    chain: tuple[int, int] | None = None
    waits: bool = False


Step = Change | Claim
"""What a function that reads a message yields, one after the other."""
