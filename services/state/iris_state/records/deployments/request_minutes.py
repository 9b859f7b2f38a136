"""Requests to deployments in each of the last sixty minutes, as proxies have reported them: for
charts. Pure.

Kept in memory and not recorded: every replica hears the same reports. Out of scope: the present
    rate (`load`).
"""

from __future__ import annotations

from collections import deque

import msgspec

from iris_core.messages.proxy_state import DeploymentRequests
from iris_core.spec.serving import LATENCY_MS

KEPT = 60
_MS = 60_000


class RequestMinute(msgspec.Struct):
    """One minute, by its number since the epoch; ``latency``: see `DeploymentRequests`."""

    number: int
    arrived: int = 0
    answered: int = 0
    failed: int = 0
    latency: list[int] = msgspec.field(default_factory=lambda: [0] * (len(LATENCY_MS) + 1))


class RequestMinutes:
    """The minutes of each deployment, by its number, oldest first."""

    def __init__(self) -> None:
        self._minutes: dict[int, deque[RequestMinute]] = {}

    def note(self, deployment: int, requests: DeploymentRequests, now_ms: int) -> None:
        """Count a report; a time before the newest minute counts in that one."""
        minutes = self._minutes.setdefault(deployment, deque(maxlen=KEPT))
        if not minutes or minutes[-1].number < now_ms // _MS:
            minutes.append(RequestMinute(now_ms // _MS))
        minute = minutes[-1]
        minute.arrived += requests.arrived
        minute.answered += requests.answered
        minute.failed += requests.failed
        for at, count in enumerate(requests.latency[: len(minute.latency)]):
            minute.latency[at] += count

    def of(self, deployment: int, now_ms: int) -> list[RequestMinute]:
        """The minutes of the last hour in which there were requests or answers."""
        return [
            one for one in self._minutes.get(deployment, ()) if one.number > now_ms // _MS - KEPT
        ]

    def forget(self, deployment: int) -> None:
        self._minutes.pop(deployment, None)
