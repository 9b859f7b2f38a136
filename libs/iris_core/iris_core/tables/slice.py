"""Status table of slices: request, boot, checks, draining and deletion of what a provider makes.

A failure is judged against a limit of 0, so its cell is the row's ``give_up``. EXPIRED of READY is
not the time in that status but the time without work.
Sources: docs/design/fleet.md#statuses-of-a-slice.
"""

from __future__ import annotations

from typing import TypeAlias

from iris_core.guard import guard
from iris_core.lifecycle import FAILS, SUCCEEDS, Rule, To
from iris_core.states import SchedulingResult, SliceStatus

S = SliceStatus
SliceRule: TypeAlias = Rule[SliceStatus, SliceStatus]

TERMINAL = frozenset({S.DELETED, S.FAILED})
COMING = frozenset({S.REQUESTED, S.CREATING})
"""Its hosts are expected."""
LIVE = COMING | {S.READY}
"""The statuses that count as capacity; the others are on their way out."""
OPEN = LIVE | {S.DRAINING, S.DELETING}
"""The provider may have it."""

REQUEST = SliceRule(
    name="RequestSlice",
    sources=frozenset({S.REQUESTED}),
    success=To(S.CREATING),
    give_up=To(S.FAILED),
    expired=To(S.FAILED),
)
BOOT = SliceRule(
    name="BootSlice",
    sources=frozenset({S.CREATING}),
    success=To(S.READY),
    give_up=To(S.DELETING),
    expired=To(S.DELETING),
)
CHECK = SliceRule(
    name="CheckSlice",
    sources=frozenset({S.READY}),
    outcomes=FAILS,
    give_up=To(S.DELETING),
    expired=To(S.DRAINING),
)
DRAIN = SliceRule(
    name="DrainSlice",
    sources=frozenset({S.DRAINING}),
    success=To(S.DELETING),
    give_up=To(S.READY),
    expired=To(S.DELETING),
)
DELETE = SliceRule(
    name="DeleteSlice",
    sources=frozenset({S.DELETING}),
    success=To(S.DELETED),
)
"""A failed call, and a deletion that takes too long, keep the status and are recorded."""
HANDLERS: tuple[SliceRule, ...] = (REQUEST, BOOT, CHECK, DRAIN, DELETE)
"""The rows of the design, in its order."""

GIVE_BACK = SliceRule(
    name="GiveBackSlice",
    sources=frozenset({S.READY}),
    outcomes=SUCCEEDS,
    success=To(S.DRAINING),
)
"""An operator, a smaller ``max``, the removal of its pool or a notice of the provider ends it."""
WITHDRAW = SliceRule(
    name="WithdrawSlice", sources=COMING, outcomes=SUCCEEDS, success=To(S.DELETING)
)
"""The same of a slice without hosts: there is nothing to drain."""
LOSE = SliceRule(
    name="LoseSlice",
    sources=frozenset({S.DRAINING}),
    outcomes=SUCCEEDS,
    success=To(S.DELETING),
)
"""It is gone, or a host of it is, while it drains."""

TABLE: tuple[SliceRule, ...] = (*HANDLERS, GIVE_BACK, WITHDRAW, LOSE)

RESULT_WORDS = {SchedulingResult.GIVE_UP: "FAILURE"}
"""The name of a result in a slice's history."""

WAYS_OUT: dict[SliceStatus, SliceRule] = {
    S.REQUESTED: REQUEST,
    S.CREATING: BOOT,
    S.READY: CHECK,
    S.DRAINING: DRAIN,
    S.DELETING: DELETE,
}

guard(
    "slice",
    SliceStatus,
    TERMINAL,
    TABLE,
    ways_out=WAYS_OUT,
    clocked=frozenset({S.REQUESTED, S.CREATING, S.READY, S.DRAINING, S.DELETING}),
)
