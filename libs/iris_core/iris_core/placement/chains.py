"""Which tasks may wait behind one another on a worker, and how far ahead they are given to it.
Pure.

The tasks of a chain run one after the other in the place of one, without a round trip between two
of them.
Source: docs/design/calls.md#chains.
"""

from __future__ import annotations

from iris_core.spec.jobs import JobSpec

SHORT_MS = 200
"""Tasks that run longer on average do not wait behind others: a round trip is little beside
that.
"""
WORK_MS = 250
LONGEST = 32
"""A chain has at most so much expected work, in as many open attempts at most."""
SEEN = 4
"""Attempts of a job that must have ended before its tasks count as short."""
HAND_BACK_MS = 500
"""A worker hands back what waits behind an attempt that was begun so long ago."""
CHAIN_ENDED = "chain_ended"
"""Why tasks were not added to a chain: none of it is open any more. They are placed anew at
once.
"""


def is_chainable(spec: JobSpec) -> bool:
    """Whether tasks of a job may wait behind one another: calls of a map that hold nothing but CPU
    and memory.
    """
    if spec.calls is None or (spec.environment is not None and spec.environment.image):
        return False
    return not (
        spec.is_gang or spec.ports or spec.probe or spec.resources.device or spec.max_parallel
    )
