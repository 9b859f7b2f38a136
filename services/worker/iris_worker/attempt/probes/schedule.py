"""Schedules the probes of routes and counts the results of each. Pure; times are monotonic.

A worker counts, the state service judges: thresholds decide here only whether the next heartbeat is
    sent early. Out of
scope: how a probe is made (check), and waiting for it (prober).
Source: docs/design/serving.md#probes, docs/design/semantics.md#deployments-and-routes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import ProbeResult
from iris_core.spec.jobs import Probe

AT_ONCE = 32
"""Probes in progress on one worker at a time, half of them of one user's attempts; others that are
due wait, the longest overdue first.
"""
START_INTERVAL_S = 1.0
"""Between probes until the first one passes, unless the probe's own interval is shorter."""
SHORTEST_S = 0.1
"""Between the starts of two probes of one route, whatever its interval."""
STALL_S = 3.0
"""Delay in seconds beyond its timeout that marks a probe as invalid: this process was suspended."""
DETAIL = 200
DETAILS = 400_000
"""Characters of the detail of one failure, and of all details in one heartbeat."""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The result of one probe: why it failed, and why the ready path did. Empty: it passed."""

    failure: str = ""
    not_ready: str = ""


@dataclass(slots=True, eq=False)
class _Probed:
    """One running attempt whose job has a probe.

    Attributes:
        asked_s: when the present or last probe began. heard_s: time of the last result, or of the
            process' start.
        adopted: it was started by an earlier worker process, whose results are unknown.
        user: who has submitted its job.
        healthy: the last verdict of the thresholds; None before the first.
    """

    probe: Probe
    address: str
    due_s: float
    heard_s: float
    ready: bool
    adopted: bool
    user: str
    asked_s: float = 0.0
    under_way: bool = False
    passed: bool = False
    passes: int = 0
    failures: int = 0
    healthy: bool | None = None
    detail: str = ""

    def take(self, outcome: ProbeOutcome, now_s: float) -> bool:
        """Count a result; returns whether it changes which requests the route may get."""
        before = (self.healthy, self.ready)
        self.heard_s = now_s
        self.ready = not outcome.not_ready
        if outcome.failure:
            self.passes, self.failures = 0, self.failures + 1
        else:
            self.passes = self.passes + 1
            self.failures = 0
            self.passed = True
        if self.passes >= self.probe.passes:
            self.healthy = True
        elif self.failures >= self.probe.failures:
            self.healthy = False
        self.detail = _one_line(outcome.failure or outcome.not_ready) or self.detail
        return before != (self.healthy, self.ready)

    def next_s(self) -> float:
        """When the next probe is due."""
        interval_s = (
            self.probe.interval_s if self.passed else min(START_INTERVAL_S, self.probe.interval_s)
        )
        return self.asked_s + max(SHORTEST_S, interval_s)

    def result(self, ref: AttemptRef, now_s: float, detail: int) -> ProbeResult:
        """The result as heartbeats hold it, with at most so many characters of the last failure."""
        age_ms = max(0, round((now_s - self.heard_s) * 1000))
        return ProbeResult(
            ref,
            self.address,
            self.passes,
            self.failures,
            ready=self.ready,
            age_ms=age_ms,
            detail=self.detail[:detail],
        )

    @property
    def is_known(self) -> bool:
        """Whether a result is known; an adopted route without one keeps its previous state."""
        return not self.adopted or bool(self.passes or self.failures)


class ProbeSchedule:
    """The probes of all attempts that run on this host."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._of_user = max(1, at_once // 2)
        self._probed: dict[AttemptRef, _Probed] = {}

    def begin(
        self,
        ref: AttemptRef,
        probe: Probe,
        address: str,
        began_s: float,
        adopted: bool = False,
        user: str = "",
    ) -> None:
        """An attempt's process runs since ``began_s`` and serves at ``address``; its job is of
        ``user``.
        """
        due_s = began_s + max(0.0, probe.initial_delay_s)
        self._probed[ref] = _Probed(
            probe, address, due_s, began_s, ready=not probe.ready_path, adopted=adopted, user=user
        )

    def end(self, ref: AttemptRef) -> None:
        """Its process has ended."""
        self._probed.pop(ref, None)

    def take_due(self, now_s: float) -> list[AttemptRef]:
        """Attempts to probe now, the longest overdue first; each counts as in progress until its
        outcome is recorded.
        """
        due = [ref for ref, one in self._probed.items() if not one.under_way and one.due_s <= now_s]
        of_user = self._under_way()
        taken: list[AttemptRef] = []
        for ref in sorted(due, key=lambda ref: self._probed[ref].due_s):
            one = self._probed[ref]
            if of_user.total() >= self._at_once:
                break
            if of_user[one.user] < self._of_user:
                of_user[one.user] += 1
                one.under_way = True
                one.asked_s = now_s
                taken.append(ref)
        return taken

    def _under_way(self) -> Counter[str]:
        """How many probes of each user are in progress."""
        return Counter(one.user for one in self._probed.values() if one.under_way)

    def wait_s(self, now_s: float) -> float | None:
        """How long no probe is due, after `take_due`; None: not before an attempt begins or an
        outcome is recorded.
        """
        of_user = self._under_way()
        if of_user.total() >= self._at_once:
            return None
        may_s = (
            one.due_s
            for one in self._probed.values()
            if not one.under_way and of_user[one.user] < self._of_user
        )
        first_s = min(may_s, default=None)
        return None if first_s is None else max(0.0, first_s - now_s)

    def on_outcome(self, ref: AttemptRef, outcome: ProbeOutcome, now_s: float) -> bool:
        """A probe is over; whether the state service should hear of it before the next heartbeat is
        due.
        """
        one = self._probed.get(ref)
        if one is None:
            return False
        one.under_way = False
        counts = now_s - one.asked_s <= one.probe.timeout_s + STALL_S
        is_news = counts and one.take(outcome, now_s)
        one.due_s = one.next_s()
        return is_news

    def results(self, now_s: float) -> tuple[ProbeResult, ...]:
        """The newest result of each attempt, for a heartbeat."""
        known = {ref: one for ref, one in self._probed.items() if one.is_known}
        detail = DETAILS // max(1, len(known))
        return tuple(one.result(ref, now_s, detail) for ref, one in known.items())


def _one_line(text: str) -> str:
    """What a terminal shows in one line."""
    return "".join(c if c.isprintable() else " " for c in text)[:DETAIL].strip()
