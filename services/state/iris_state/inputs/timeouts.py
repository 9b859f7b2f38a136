"""Expires the limits that a job's owner set. The coordinator handles timeouts of placed work.

Source: docs/design/semantics.md#jobs.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.states import JOB_TERMINAL
from iris_state.decide import coordinator, endings, gates
from iris_state.records.changes import JobClosed
from iris_state.records.claims import Step
from iris_state.records.ledger import Ledger


def on_limit(ledger: Ledger, kind: str, number: int, index: int, now_ms: int) -> Iterator[Step]:
    """A limit set by a job's owner has passed: a running task's timeout, a pending job's scheduling
    timeout, a time before which nothing is placed, or the time for which an open job waits for its
    client.
    """
    job = ledger.jobs.get(number)
    if job is None or job.state in JOB_TERMINAL:
        return
    if kind == "timeout":
        yield from endings.on_limit(job, index)
        return
    if kind == "idle":
        if job.open and job.spec.calls is not None:
            yield JobClosed(
                number, f"closed: no request of its client for {job.spec.calls.idle_s:g} s"
            )
        return
    if kind == "gate":
        yield from gates.judge(ledger, number, index, now_ms)
        return
    since = "becoming eligible" if job.gates else "submission"
    note = f"not placed within {job.spec.scheduling_timeout_s:g} s of {since}"
    yield from coordinator.expire(job, note, index if job.opens_by_task else None)
