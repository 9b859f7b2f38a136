"""The leader's spans of jobs that belong to a trace: ``admit``, ``commit`` and ``order``; one per job, never per task.

Source: docs/design/interfaces.md#metrics.
"""

from __future__ import annotations

from iris_bus.tracing import Tracer
from iris_core.messages import Order
from iris_state.changes import JobAdmitted
from iris_state.inputs import Output


def committed(tracer: Tracer, output: Output, judged_s: float, took_s: float, now_ms: int) -> None:
    """A round is durable: it took ``judged_s`` seconds to judge and ``took_s`` to store."""
    if not tracer.records:
        return
    commit_ms = now_ms - took_s * 1000
    for change in output.changes:
        if type(change) is JobAdmitted and change.traceparent:
            about: dict[str, str | int] = {"job": change.name, "sequence": output.sequence}
            tracer.record("admit", change.traceparent, commit_ms - judged_s * 1000, commit_ms, about)
            tracer.record("commit", change.traceparent, commit_ms, now_ms, about)


def ordered(tracer: Tracer, order: Order, worker: str, began_ms: int, now_ms: int, error: str) -> None:
    """An order was answered, or failed with ``error``."""
    if not tracer.records:
        return
    for template in order.templates:
        tasks = sum(ref.job == template.job for refs in (order.run, order.prepare) for ref in refs)
        about: dict[str, str | int] = {"job": template.name, "worker": worker, "tasks": tasks}
        if error:
            about["error"] = error
        tracer.record("order", template.traceparent, began_ms, now_ms, about)
