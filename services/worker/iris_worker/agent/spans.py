"""The spans of attempts of traced jobs: ``start`` from order to process, ``run`` below it from
process to end. Pure.

A span ends when the stage that ends it is committed. The span ``run`` of an attempt that a later
worker adopts is below what its order is below, because the span ``start`` ended with the worker
before.
Source: docs/operating.md#traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Order, Stage
from iris_core.states import KernelStatus


class Span(NamedTuple):
    """One finished span. Times in ms since the epoch."""

    name: str
    traceparent: str
    began_ms: int
    ended_ms: int
    attributes: dict[str, str | int]


@dataclass(slots=True)
class _Open:
    traceparent: str
    task: str
    since_ms: int
    name: str = "start"


class AttemptSpans:
    """The attempts of traced jobs, from their order until their end is committed.

    Args:
        worker: an attribute of every span. record: takes a finished span, and returns the context
            of what is below it.
    """

    def __init__(self, worker: str, record: Callable[[Span], str]) -> None:
        self._worker = worker
        self._record = record
        self._open: dict[AttemptRef, _Open] = {}

    def ordered(self, order: Order, now_ms: int) -> None:
        """Start the spans of an accepted order."""
        traced = {template.job: template for template in order.templates if template.traceparent}
        if not traced:
            return
        for ref in (*order.run, *order.prepare):
            template = traced.get(ref.job)
            if template is not None:
                self._open.setdefault(
                    ref, _Open(template.traceparent, f"{template.name}/{ref.index}", now_ms)
                )

    def adopted(self, ref: AttemptRef, traceparent: str, task: str, at_ms: int) -> None:
        """Start the span ``run`` of an attempt that a worker before has started."""
        if traceparent:
            self._open[ref] = _Open(traceparent, task, at_ms, "run")

    def committed(self, stages: Iterable[Stage]) -> None:
        """Record the spans that end with these committed stages."""
        if not self._open:
            return
        for stage in stages:
            known = self._open.get(stage.ref)
            if known is None:
                continue
            if stage.ended is not None:
                del self._open[stage.ref]
                self._record(self._span(known, stage))
            elif stage.status is KernelStatus.RUNNING and known.name == "start":
                known.traceparent = self._record(self._span(known, stage))
                known.name = "run"
                known.since_ms = stage.at_ms

    def _span(self, known: _Open, stage: Stage) -> Span:
        attributes: dict[str, str | int] = {
            "task": known.task,
            "attempt": stage.ref.attempt,
            "worker": self._worker,
        }
        if stage.ended is not None:
            attributes["cause"] = stage.ended.cause.value
            if stage.ended.exit_code is not None:
                attributes["exit_code"] = stage.ended.exit_code
        return Span(
            known.name, known.traceparent, known.since_ms, stage.at_ms, attributes=attributes
        )
