"""What clients do when this process ends: they submit the calls that they were given, and report
those that they could not.

It starts no thread, because an interpreter that ends may refuse to (Python 3.12.1 does). Out of
scope: what is submitted (`executor`, `items`). Source:
docs/design/calls.md#when-the-client-ends.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

WITHIN_S = 60.0
"""All clients together have so long."""
EXIT_CODE = 1
"""Of a process that ends with calls that were not submitted."""

Finish = Callable[[float], Iterable[str]]
"""Submits what is left until then, on the monotonic clock in seconds; one sentence for each loss."""
_FINISH: list[Finish] = []


def before_the_end(finish: Finish) -> None:
    """Call this when the process ends, while pools of the standard library still take work."""
    _FINISH.append(finish)


def _finish_all() -> None:
    until_s = time.monotonic() + WITHIN_S
    losses: list[str] = []
    for finish in _FINISH:
        try:
            losses += finish(until_s)
        except BaseException as error:  # noqa: BLE001 - the others have calls to submit, too
            losses.append(f"calls may be lost: {type(error).__name__}: {error}")
    if not losses:
        return
    with suppress(OSError, ValueError, AttributeError):  # closed, or None
        for loss in losses:
            sys.stderr.write(f"iris: {loss}\n")
    atexit.register(_fail_the_process)


def _fail_the_process() -> None:
    """End this process with `EXIT_CODE`.

    Registered last, it is called first; nothing but ``os._exit`` changes the exit code from here,
    so whatever else is registered is called before it.
    """
    atexit.unregister(_fail_the_process)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(EXIT_CODE)


# Pools of the standard library end so, too; `atexit` comes after that.
getattr(threading, "_register_atexit", atexit.register)(_finish_all)
