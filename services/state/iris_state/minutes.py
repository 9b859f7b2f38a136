"""What happened to tasks in each of the last sixty minutes: for charts of throughput and queue wait. Pure.

Counted where a task's state is set, so every replica that applies the same commits has the same minutes, and a snapshot
holds them. Out of scope: counters for Prometheus (`metrics`).
"""

from __future__ import annotations

from iris_core.states import TERMINAL, TaskState
from iris_state.records import Minute

KEPT = 60
_MS = 60_000


def count(minutes: list[Minute], state: TaskState, lasted_ms: int | None, at_ms: int) -> None:
    """A task moved to ``state``; ``lasted_ms`` is how long a placed one had waited.

    A time before the newest minute counts in that one, so minutes stay in order when a clock steps back.
    """
    if state is not TaskState.ASSIGNED and state not in TERMINAL:
        return
    number = at_ms // _MS
    if not minutes or minutes[-1].number < number:
        minutes.append(Minute(number))
        del minutes[:-KEPT]
    minute = minutes[-1]
    if state is TaskState.ASSIGNED:
        minute.placed += 1
        minute.waited_ms += lasted_ms or 0
        minute.longest_ms = max(minute.longest_ms, lasted_ms or 0)
    elif state is TaskState.SUCCEEDED:
        minute.succeeded += 1
    else:
        minute.others += 1
