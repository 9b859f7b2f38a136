"""Backoff of a deployment after routes failed to start, and when it stops creating routes.

Pure; the jitter is derived from the deployment's number, so every replica of this service computes
the same time.
Source: docs/design/serving.md#update, "Pacing".
"""

from __future__ import annotations

import zlib

import msgspec

FIRST_MS = 10_000
LONGEST_MS = 300_000
SPREAD = 0.2
"""A pause is longer or shorter by up to this part, so that deployments that failed together do not
try together.
"""
WINDOW_MS = 1_800_000
STARTS = 6
"""So many failed starts within the window, and the deployment stops trying until it is changed or
resumed.
"""


class Pacing(msgspec.Struct, frozen=True, array_like=True):
    """Failed starts of a deployment; stored.

    Attributes:
        failures: in a row. times: of the last few, ms. retry_ms: no route is created before this
            time.
        stopped: it creates no more routes.
    """

    failures: int = 0
    times: tuple[int, ...] = ()
    retry_ms: int = 0
    stopped: bool = False


RESTED = Pacing()
"""Nothing has failed, or what had is forgotten: the deployment was changed or resumed, or a route
became available.
"""


def failed(pacing: Pacing, number: int, now_ms: int, *, for_ever: bool = False) -> Pacing:
    """The pacing after one more route of deployment ``number`` failed to start. ``for_ever``: it
    never stops.
    """
    failures = pacing.failures + 1
    times = (*(at for at in pacing.times if now_ms - at <= WINDOW_MS), now_ms)[-STARTS:]
    pause_ms = min(FIRST_MS << min(failures - 1, 16), LONGEST_MS)
    retry_ms = now_ms + int(pause_ms * (1 + SPREAD * _spread(number, failures)))
    return Pacing(failures, times, retry_ms, not for_ever and len(times) >= STARTS)


def _spread(number: int, failures: int) -> float:
    """Jitter from -1 to 1, deterministic for a deployment and count."""
    return zlib.crc32(f"{number}/{failures}".encode()) / 0x7FFFFFFF - 1


def may_create(pacing: Pacing, now_ms: int) -> bool:
    return not pacing.stopped and now_ms >= pacing.retry_ms
