"""Counts the work of a function, which does not depend on the speed of a machine, and how it
grows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def work_of(run: Callable[[], object]) -> int:
    """How many lines of Python it executes, each turn of a loop anew, and how many functions it
    calls.
    """
    count = 0

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return on_line

    def on_call(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "c_call"

    tracing, profiling = sys.gettrace(), sys.getprofile()
    sys.settrace(on_line)
    sys.setprofile(on_call)
    try:
        run()
    finally:
        sys.setprofile(profiling)
        sys.settrace(tracing)
    return count


def calls_of(run: Callable[[], object], *functions: Callable[..., object]) -> int:
    """How often it calls any of some functions."""
    codes, count = {function.__code__ for function in functions}, 0  # type: ignore[attr-defined]

    def on_call(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code in codes

    profiling = sys.getprofile()
    sys.setprofile(on_call)
    try:
        run()
    finally:
        sys.setprofile(profiling)
    return count


def exponent(small: int, large: int, factor: int = 10) -> float:
    """With which power of the size work grows that is so much for ``factor`` times the size."""
    return math.log(large / small, factor)
