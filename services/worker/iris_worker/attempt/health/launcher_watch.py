"""Watches the worker's launcher: a silent one is a fault of this host, is helped, and is replaced
at last.
"""

from __future__ import annotations

import logging
import signal

from iris_worker.attempt.running import RunningAttempts
from iris_worker.clock import HostClock
from iris_worker.launcher import rescue
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import (
    STOPS_OTHERS,
    Exit,
    Pinged,
    PingLauncher,
    StopProcess,
    StoreTrouble,
)
from iris_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

_REPLACED_AFTER = 5
"""After so many times the silence that is a fault of the host, a launcher is replaced."""


class LauncherWatch:
    """Asks the launcher whether it serves requests."""

    def __init__(
        self,
        settings: WorkerSettings,
        launcher: LauncherClient,
        attempts: RunningAttempts,
        clock: HostClock,
    ) -> None:
        self._root = settings.root
        self._silent_after_s = settings.pause_s
        self._launcher = launcher
        self._attempts = attempts
        self._clock = clock
        self._pinged_s: float | None = None
        self._silent_s = 0.0
        self._trouble = ""

    def ask(self) -> str:
        """Ping the launcher; returns for how long it has been silent, in words, or its trouble;
        empty: neither.
        """
        now_s = self._clock.steady_s()
        if self._pinged_s is None:
            self._pinged_s = now_s
            self._launcher.send_now(PingLauncher())
        silent_s = now_s - self._pinged_s
        silence = (
            f"the launcher has not answered for {silent_s:.0f} s"
            if silent_s > self._silent_after_s
            else ""
        )
        return silence or self._trouble

    def on_trouble(self, trouble: StoreTrouble) -> None:
        self._trouble = trouble.text

    def on_pinged(self, pinged: Pinged) -> None:
        self._pinged_s = None
        self._silent_s = 0.0

    def help(self, interval_s: float) -> None:
        """Help a launcher that does not answer. To be called at intervals: a pause of this process
        is no silence of it.

        The attempt for which a stopped process was being started ends as its owner's failure. A
        launcher that nothing helps is ended, and with it this process; the next one adopts the
        attempts.
        """
        if self._pinged_s is not None:
            self._silent_s += interval_s
        if self._silent_s < self._silent_after_s:
            return
        if self._silent_s >= _REPLACED_AFTER * self._silent_after_s:
            log.error("the launcher has not answered for %.0f s and is replaced", self._silent_s)
            rescue.end(self._root)
            return
        directories = rescue.resume(self._root)
        for attempt in [
            one for one in self._attempts.all_living() if one.slot.below in directories
        ]:
            log.error(
                "a task stops what is started beside it, and is ended",
                extra={"attempt": str(attempt.ref)},
            )
            attempt.blamed = Exit(128 + signal.SIGKILL, error=STOPS_OTHERS)
            self._launcher.send_now(StopProcess(attempt.ref, 0, 0))
