"""Validates what a job says of its stops: signals, notice and time limit. Pure.

Source: docs/design/semantics.md#tasks-and-attempts, docs/howto/checkpoints.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris_core.errors import Mistake
from iris_core.moments import show_duration
from iris_core.spec import exit_rules
from iris_core.spec.jobs import JobSpec

_NOT_HANDLED = ("KILL", "STOP", "CONT")


def mistakes(spec: JobSpec) -> Iterator[Mistake]:
    """All mistakes of what a job says of its stops."""
    if spec.stop is not None:
        yield from _signal("/stop/signal", spec.stop.signal, "for example SIGINT")
    if spec.notice is not None:
        yield from _signal("/notice/signal", spec.notice.signal, "for example SIGUSR1")
        yield from _before(spec, spec.notice.before_s)
    if spec.on_timeout != "kill" and spec.timeout_s is None:
        message = "on_timeout is what becomes of a task at its time limit, and this job has none"
        yield Mistake(
            pointer="/on_timeout", code="unexpected", message=message, hint="specify timeout_s too"
        )


def _signal(pointer: str, name: str, hint: str) -> Iterator[Mistake]:
    try:
        exit_rules.signal_number(name)
    except ValueError as error:
        yield Mistake(pointer=pointer, code="bad_signal", message=str(error), hint=hint)
    else:
        if name.removeprefix("SIG") in _NOT_HANDLED:
            yield Mistake(
                pointer=pointer, code="bad_signal", message=f"no task can act on {name}", hint=hint
            )


def _before(spec: JobSpec, before_s: float) -> Iterator[Mistake]:
    if spec.timeout_s is not None and before_s > spec.timeout_s:
        before = show_duration(before_s)
        timeout = show_duration(spec.timeout_s)
        message = (
            f"a notice {before} before the time limit does not fit into a timeout of {timeout}"
        )
        hint = (
            f"a later notice, for example {show_duration(spec.timeout_s / 2)}, or a longer timeout"
        )
        yield Mistake(pointer="/notice/before_s", code="out_of_range", message=message, hint=hint)
