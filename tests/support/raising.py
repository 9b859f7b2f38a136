"""An input that raises while it is judged, after a given number of its changes were applied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iris_state.machine.machine import Machine
from iris_state.records.changes import Change


class Planted(Exception):
    """What no code of ours raises."""


@contextmanager
def raising(machine: Machine, after: int, error: type[Exception] = Planted) -> Iterator[None]:
    """While this lasts, the change behind the first ``after`` raises when it stands; -1: before
    anything does.
    """
    apply, count = machine.round.apply, 0

    def applied(change: Change) -> None:
        nonlocal count
        if after >= 0:
            apply(change)
        count += 1
        if count > after:
            raise error("planted")

    machine.round.apply = applied  # type: ignore[method-assign]
    try:
        yield
    finally:
        del machine.round.apply
