"""The notices of the attempts of this host: when they are due, the file that says why, and the
signal.

The launcher records each before it sends the signal, so a worker that is restarted repeats none.
    Out of scope: stops.
Source: docs/howto/checkpoints.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import GivenNotice
from iris_core.states import NoticeReason
from iris_worker.agent.agent import Agent
from iris_worker.agent.instructions import SetTimeout
from iris_worker.attempt.slots.workspaces import Workspace, write_given
from iris_worker.clock import HostClock
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import GiveNotice, NoticeRecord, Started

NOTICE_FILE = "notice"
"""In the directory of what an attempt is given."""
_GANG_STARTS_S = 600.0
"""How long the members of a gang may take to start: their time limit counts from when the last one
runs.
"""


@dataclass(slots=True)
class _Noticed:
    """An attempt that may be given notices. ``since_s``: from when its time limit counts; None
    until its process is known to run. ``due``: its notice.
    """

    started: Started
    slot: Workspace
    since_s: float | None = None
    reasons: set[NoticeReason] = field(default_factory=set)
    due: asyncio.TimerHandle | None = None


class Notices:
    """Gives the attempts of this host their notices.

    Args:
        flush: called at the end of a round.
    """

    def __init__(
        self, launcher: LauncherClient, agent: Agent, clock: HostClock, flush: Callable[[], None]
    ) -> None:
        self._launcher = launcher
        self._agent = agent
        self._clock = clock
        self._flush = flush
        self._attempts: dict[AttemptRef, _Noticed] = {}

    def launch(self, started: Started, slot: Workspace) -> None:
        """Its process is about to run: when it is stopped before that is known, its notice takes
        the signal's place.
        """
        if started.notice is not None:
            self._attempts[started.ref] = _Noticed(started, slot)

    def begin(
        self, started: Started, slot: Workspace, since_s: float, given: Sequence[GivenNotice] = ()
    ) -> None:
        """Its process runs since then; ``given``: notices that it was given before this worker
        process.
        """
        if started.notice is None:
            return
        if started.deadline_s and started.timeout_ms is not None:
            since_s = started.deadline_s - started.timeout_ms / 1000
        one = self._attempts.setdefault(started.ref, _Noticed(started, slot))
        one.since_s = since_s
        one.reasons.update(notice.reason for notice in given)
        self._await(one, started.timeout_ms)

    def change(self, wanted: SetTimeout) -> None:
        """An attempt has another time limit now, or none: the notice is due at another time, unless
        it was given.
        """
        if (one := self._attempts.get(wanted.ref)) is not None:
            self._await(one, wanted.timeout_ms)

    def _await(self, one: _Noticed, timeout_ms: int | None) -> None:
        if one.due is not None:
            one.due.cancel()
        if timeout_ms is not None and one.started.notice is not None and one.since_s is not None:
            ends_s = one.since_s + timeout_ms / 1000
            wait_s = max(0.0, ends_s - one.started.notice.before_s - self._clock.steady_s())
            one.due = asyncio.get_running_loop().call_later(
                wait_s, self._on_due, one.started.ref, ends_s
            )

    def end(self, ref: AttemptRef) -> None:
        """It has ended."""
        one = self._attempts.pop(ref, None)
        if one is not None and one.due is not None:
            one.due.cancel()

    def give(self, ref: AttemptRef, reason: NoticeReason, left_s: float | None = None) -> bool:
        """Give a notice, unless it was given before; False when the attempt has none.

        ``left_s``: until something further is done to it; None: it goes on.
        """
        one = self._attempts.get(ref)
        if one is None or one.started.notice is None:
            return False
        if one.since_s is None and left_s is None:  # it goes on, and is told once it runs
            return False
        if reason in one.reasons:
            return True
        one.reasons.add(reason)
        now_ms = self._clock.wall_ms()
        notice = GivenNotice(reason, now_ms, 0 if left_s is None else now_ms + round(left_s * 1000))
        with contextlib.suppress(OSError):  # the disk is full: the signal says enough
            write_given(one.slot, NOTICE_FILE, text_of(notice, one.started.notice.signal))
        self._launcher.send(GiveNotice(NoticeRecord(ref, notice)))
        self._agent.on_noticed(ref, notice)
        return True

    def _on_due(self, ref: AttemptRef, ends_s: float) -> None:
        self.give(ref, NoticeReason.TIMEOUT, max(0.0, ends_s - self._clock.steady_s()))
        self._flush()


def limit_s(started: Started) -> float | None:
    """How long an attempt may run before this worker ends it by itself; None: without end."""
    if started.timeout_ms is None:
        return None
    return started.timeout_ms / 1000 + (_GANG_STARTS_S if started.deadline_s else 0.0)


def text_of(notice: GivenNotice, signal: str) -> str:
    """The notice as its task reads it."""
    deadline = (
        datetime.fromtimestamp(notice.deadline_ms / 1000, UTC) if notice.deadline_ms else None
    )
    return (
        codec.to_json(
            {"reason": notice.reason.value, "deadline": deadline, "signal": signal}
        ).decode()
        + "\n"
    )
