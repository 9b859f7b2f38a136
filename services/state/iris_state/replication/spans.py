"""The leader's spans of jobs that belong to a trace: ``admit``, ``commit`` and ``order``; one per
job, never per task.

Source: docs/operating.md#traces.
"""

from __future__ import annotations

from msgspec.structs import replace

from iris_core.messages.state_worker import Order, TaskTemplate
from iris_service.tracing import BegunSpan, Tracer
from iris_state.effects.kinds import Output
from iris_state.records.changes import JobAdmitted


def committed(
    tracer: Tracer, output: Output, judged_s: float, took_s: float, stored_ms: int
) -> None:
    """A round is durable since ``stored_ms``: it took ``judged_s`` seconds to judge and ``took_s``
    to store.
    """
    if not tracer.records:
        return
    commit_ms = stored_ms - took_s * 1000
    for change in output.changes:
        if type(change) is JobAdmitted and change.traceparent:
            about: dict[str, str | int] = {"job": change.name, "sequence": output.sequence}
            tracer.record(
                "admit", change.traceparent, commit_ms - judged_s * 1000, commit_ms, about
            )
            tracer.record("commit", change.traceparent, commit_ms, stored_ms, about)


class OrderSpans:
    """The spans ``order`` of one order, from when it is sent until it is answered.

    Attributes:
        order: it, with their contexts in its templates: what a worker does for it is below them.
    """

    def __init__(self, tracer: Tracer, order: Order, began_ms: int) -> None:
        self.order = order
        self._begun: list[tuple[TaskTemplate, BegunSpan]] = []
        if tracer.records and order.templates:
            self._begun = [
                (one, tracer.begin("order", one.traceparent, began_ms)) for one in order.templates
            ]
            below = tuple(replace(one, traceparent=begun.traceparent) for one, begun in self._begun)
            self.order = replace(order, templates=below)

    def answered(self, worker: str, now_ms: int, error: str) -> None:
        """The order was answered, or failed with ``error``."""
        for template, begun in self._begun:
            tasks = sum(
                ref.job == template.job
                for refs in (self.order.run, self.order.prepare)
                for ref in refs
            )
            about: dict[str, str | int] = {"job": template.name, "worker": worker, "tasks": tasks}
            begun.end(now_ms, about | ({"error": error} if error else {}))
