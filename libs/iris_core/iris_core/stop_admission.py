"""Validates what a job says of its stops: signals, notice, grace period, time limit and protection. Pure.

Source: docs/design/semantics.md#tasks-and-attempts, docs/howto/checkpoints.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from iris_core import exit_rules
from iris_core.errors import Mistake
from iris_core.spec import JobSpec

MAX_GRACE_S = 3600
"""A cancelled or preempted task holds its resources for so long at most."""
MAX_PROTECT_S = 7 * 86_400
"""Lower bands keep higher ones waiting for so long at most."""
_NOT_HANDLED = ("KILL", "STOP", "CONT")


def mistakes(spec: JobSpec) -> Iterator[Mistake]:
    """All mistakes of what a job says of its stops."""
    if spec.stop is not None:
        yield from _signal("/stop/signal", spec.stop.signal, "SIGINT")
        if spec.stop.grace_s is not None:
            yield from _time("/stop/grace_s", spec.stop.grace_s, MAX_GRACE_S)
    if spec.notice is not None:
        yield from _signal("/notice/signal", spec.notice.signal, "SIGUSR1")
        yield from _before(spec, spec.notice.before_s)
    if spec.on_timeout != "kill" and spec.timeout_s is None:
        message = "on_timeout is what becomes of a task at its time limit, and this job has none"
        yield Mistake(pointer="/on_timeout", code="unexpected", message=message, hint="specify timeout_s too")
    if spec.protect_s is not None:
        yield from _time("/protect_s", spec.protect_s, MAX_PROTECT_S)


def _signal(pointer: str, name: str, hint: str) -> Iterator[Mistake]:
    try:
        exit_rules.signal_number(name)
    except ValueError as error:
        yield Mistake(pointer=pointer, code="bad_signal", message=str(error), hint=hint)
    else:
        if name.removeprefix("SIG") in _NOT_HANDLED:
            yield Mistake(pointer=pointer, code="bad_signal", message=f"no task can act on {name}", hint=hint)


def _before(spec: JobSpec, before_s: float) -> Iterator[Mistake]:
    if spec.timeout_s is None:
        yield from _time("/notice/before_s", before_s, math.inf)
    elif not 0 < before_s <= spec.timeout_s:
        message = f"a notice {before_s:g} s before the time limit does not fit into a timeout of {spec.timeout_s:g} s"
        yield Mistake(pointer="/notice/before_s", code="out_of_range", message=message, hint=f"{spec.timeout_s / 2:g}")


def _time(pointer: str, seconds: float, most: float) -> Iterator[Mistake]:
    if not (math.isfinite(seconds) and 0 < seconds <= most):
        limit = f" and at most {most:g}" if math.isfinite(most) else ""
        message = f"{seconds} is not a time of more than 0{limit} seconds"
        yield Mistake(pointer=pointer, code="out_of_range", message=message, hint="60")
