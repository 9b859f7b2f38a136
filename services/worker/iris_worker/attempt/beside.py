"""Commands beside attempts, of probes and of people, which the launcher runs; each has a number."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Sequence
from functools import partial

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.images.containers import Containers
from iris_worker.attempt.running import RunningAttempts
from iris_worker.launcher.cgroups.limits import Limits
from iris_worker.launcher.client import LauncherClient
from iris_worker.launcher.records.records import (
    CommandExited,
    Exit,
    SignalCommand,
    SpawnCommand,
    StoredProbe,
)


class CommandsBeside:
    """The commands beside the attempts of this host."""

    def __init__(
        self, launcher: LauncherClient, attempts: RunningAttempts, containers: Containers
    ) -> None:
        self._launcher = launcher
        self._attempts = attempts
        self._containers = containers
        self._null = os.open(os.devnull, os.O_RDWR)
        self._numbers = itertools.count(1)
        self._on_end: dict[int, Callable[[Exit], None]] = {}

    def start(
        self,
        ref: AttemptRef,
        command: tuple[str, ...],
        stdio: Sequence[int],
        on_end: Callable[[Exit], None],
        *,
        env: dict[str, str],
        limits: Limits = (),
        inherits: bool = False,
        tty: bool = False,
    ) -> int:
        """Start a command beside an attempt, with its own descriptors; returns its number. Raises
        OSError.

        ``inherits``: its environment is that of the attempt's process, and ``env`` on top.
        """
        attempt = self._attempts.living(ref)
        if attempt is None or attempt.starting is not None:
            raise ProcessLookupError("the task does not run here")
        if attempt.container is not None:
            command, env = self._containers.beside(
                attempt.container, command, env, attempt.slot, tty=tty
            )
            limits = ()
            inherits = False
        number = next(self._numbers)
        self._launcher.send_with(
            SpawnCommand(ref, number, command, env, limits=limits, inherits=inherits, tty=tty),
            stdio,
        )
        self._on_end[number] = on_end
        return number

    def signal(self, number: int, signal_number: int) -> None:
        """Signal the group of such a command; nothing when it has ended."""
        if number in self._on_end:
            self._launcher.send_now(SignalCommand(number, signal_number))

    def probe(
        self, ref: AttemptRef, stored: StoredProbe, stderr: int, on_end: Callable[[Exit], None]
    ) -> Callable[[], None]:
        """Start the command of an attempt's probe; returns what kills it. Raises OSError."""
        attempt = self._attempts.living(ref)
        if attempt is not None and attempt.probe in self._on_end:
            raise OSError("the last probe could not be killed")
        stdio = (self._null, self._null, stderr)
        number = self.start(
            ref, stored.probe.command, stdio, on_end, env=stored.env, limits=stored.limits
        )
        if attempt is not None:
            attempt.probe = number
        return partial(self.signal, number, signal.SIGKILL)

    def on_exited(self, exited: CommandExited) -> None:
        if (on_end := self._on_end.pop(exited.number, None)) is not None:
            on_end(exited.exit)

    def close(self) -> None:
        os.close(self._null)
