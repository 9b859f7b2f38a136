"""Detects tasks that crash their workers, from what happened to the workers that started them.
Pure.

An attempt is suspect when its worker, or only the process of it, died alone and without a notice
soon after the attempt had started: what is new on a worker is blamed. The others on it are
bystanders, and are not charged; of several suspects none is. A suspect's next attempt is alone on
its worker until it has run longer than the window, which clears the task: so a second death shows
which one it was. With suspects on several workers the task gets no retry, whatever its budget.
Spot capacity is taken with a notice, later, or by whole slices. Source:
    docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

from collections.abc import Collection

from iris_state.policy import Policy
from iris_state.records.entities import Attempt, AttemptKey, Key, Task
from iris_state.records.ledger import Ledger

NOT_CHARGED = "; not charged, as another attempt was new on it"
"""Ends the error of a bystander's attempt."""


def is_suspect(ledger: Ledger, attempt: Attempt, policy: Policy) -> bool:
    """Whether an attempt whose worker died suddenly had started shortly before the worker's last
    message.

    A worker that its task kills may die before it reports the start, or anything after the
    assignment: it was alive then if it sent a message within one heartbeat interval before.
        Otherwise it may have been dead already.
    """
    if attempt.waits_in_chain:
        return False  # one before it in its chain was told to run
    started_ms = attempt.started_ms or attempt.building_ms or attempt.assigned_ms
    lived_ms = ledger.presence[attempt.worker].heartbeat_ms - started_ms
    return -policy.heartbeat_interval_ms <= lived_ms <= policy.poison_window_ms


def bystanders(
    ledger: Ledger, policy: Policy, keys: Collection[AttemptKey]
) -> frozenset[AttemptKey]:
    """Those of the attempts that ended with one death that are not charged for it: others are
    suspect, or as much.

    A route has one attempt in any case: its deployment replaces it.
    """
    attempts = ((key, ledger.attempt(key)) for key in keys)
    new = [
        key
        for key, attempt in attempts
        if attempt is not None and is_suspect(ledger, attempt, policy)
    ]
    if not new or len(keys) == 1:
        return frozenset()
    innocent = frozenset(keys) - (frozenset(new) if len(new) == 1 else frozenset())
    return frozenset(key for key in innocent if ledger.jobs[key[0]].spec.probe is None)


def survivors(ledger: Ledger, policy: Policy, now_ms: int) -> list[Key]:
    """Tasks that are alone on their workers and have run there for longer than the window."""
    return [
        key[:2]
        for key, attempt in ledger.alone.items()
        if now_ms >= (_clear_ms(attempt, policy) or now_ms + 1)
    ]


def next_survivor(ledger: Ledger, policy: Policy) -> int | None:
    """When the first of them has, if nothing else happens, ms."""
    return min(
        (due for attempt in ledger.alone.values() if (due := _clear_ms(attempt, policy))),
        default=None,
    )


def _clear_ms(attempt: Attempt, policy: Policy) -> int:
    """When an attempt has survived, ms; 0: it has not started."""
    return attempt.started_ms and attempt.started_ms + policy.poison_window_ms + 1


def verdict(task: Task, policy: Policy) -> str:
    """Why a task whose current attempt is suspect too gets no retry; empty when it may have one."""
    workers = {task.attempts[-1].worker: None}
    for attempt in reversed(task.attempts[:-1]):
        if attempt.suspect:
            workers[attempt.worker] = None
        elif attempt.started_ms and attempt.ended_ms - attempt.started_ms > policy.poison_window_ms:
            break
    if not 0 < policy.poison_workers <= len(workers):
        return ""
    names = ", ".join(reversed(workers))
    return f"{len(workers)} workers died within {policy.poison_window_s:g} s of starting it ({names}): no retry"
