"""Detects tasks that crash their workers, from what happened to the workers that started them. Pure.

An attempt is suspect when its worker, or only the process of it, died alone and without a notice soon after the attempt
had started. With suspects on several workers the task gets no retry, whatever its budget; an attempt that runs longer
than the window clears the task. Spot capacity is taken with a notice, later, or by whole slices.
"""

from __future__ import annotations

from iris_state.ledger import Ledger
from iris_state.policy import Policy
from iris_state.records import Attempt, Task


def is_suspect(ledger: Ledger, attempt: Attempt, policy: Policy) -> bool:
    """Whether an attempt whose worker died suddenly had started shortly before the worker's last message.

    A worker that its task kills may die before it reports the start, or anything after the assignment: it was alive
    then if it sent a message within one heartbeat interval before. Otherwise it may have been dead already.
    """
    started_ms = attempt.started_ms or attempt.building_ms or attempt.assigned_ms
    lived_ms = ledger.presence[attempt.worker].heartbeat_ms - started_ms
    return -policy.heartbeat_interval_ms <= lived_ms <= policy.poison_window_ms


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
