"""What happened to tasks, and what they held, in each of the last sixty minutes: for charts. Pure.

Counted where a task's state is set, and sampled before the first change of a minute, so every
replica that applies the same commits has the same minutes, and a snapshot holds them. Out of scope:
    counters for Prometheus (`metrics`).
"""

from __future__ import annotations

from iris_core.spec.resources import NOTHING
from iris_core.states import TERMINAL, TaskState
from iris_state.records.entities import HeldAmount, Minute
from iris_state.records.hosts import Worker
from iris_state.records.ledger import Ledger

KEPT = 60
_MS = 60_000


def count(minutes: list[Minute], state: TaskState, lasted_ms: int | None, at_ms: int) -> None:
    """A task moved to ``state``; ``lasted_ms`` is how long a placed one had waited.

    A time before the newest minute counts in that one, so minutes stay in order when a clock steps
    back.
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


def sample(ledger: Ledger, at_ms: int) -> None:
    """A minute has ended before the change at this time: keep what was held at its end, where that
    is another amount.

    Nothing changed between then and ``at_ms``, so an amount is that of all minutes until the next
    sample.
    """
    totals = ledger.totals
    ended = totals.minute_ends_ms // _MS - 1
    begun = at_ms // _MS
    totals.minute_ends_ms = (begun + 1) * _MS
    if ended < 0:
        return
    _keep(totals.held, _held_by_all(ledger, ended), begun - KEPT)
    for worker in ledger.workers.values():
        _keep(
            worker.held,
            HeldAmount(ended, ledger.presence[worker.id].committed, worker.total),
            begun - KEPT,
        )


def _keep(held: list[HeldAmount], newest: HeldAmount, oldest: int) -> None:
    """Append a sample that differs from the one before, and drop those that tell nothing since
    minute ``oldest``.
    """
    last = held[-1] if held else HeldAmount(0, NOTHING, newest.capacity)
    if (newest.committed, newest.capacity) != (last.committed, last.capacity):
        held.append(newest)
    while len(held) > 1 and held[1].number <= oldest:
        del held[0]


def held_in_last_hour(ledger: Ledger, worker: Worker | None) -> list[HeldAmount]:
    """The samples of one host or of all, and as the last one what is held now."""
    minute = ledger.totals.minute_ends_ms // _MS - 1
    if worker is None:
        return [*ledger.totals.held, _held_by_all(ledger, minute)]
    return [
        *worker.held,
        HeldAmount(minute, ledger.presence[worker.id].committed, worker.total),
    ]


def _held_by_all(ledger: Ledger, minute: int) -> HeldAmount:
    """What attempts on healthy hosts hold now, and the capacity of these hosts."""
    sums = ledger.host_sums
    return HeldAmount(minute, sums.committed, sums.capacity)
