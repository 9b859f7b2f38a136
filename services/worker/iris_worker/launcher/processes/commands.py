"""Commands beside attempts, of probes and of people: each has a number, and ends with its attempt
and with its worker.

Out of scope: when an attempt has ended, for which what is left of its commands is killed (runner).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from functools import partial

from msgspec import structs

from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.processes.exits import to_exit, to_refusal
from iris_worker.launcher.processes.process import (
    GIVE_UP_ROUNDS,
    KnownProcesses,
    Process,
    SpawnedCommand,
)
from iris_worker.launcher.records.records import STOPS_OTHERS, CommandExited, SpawnCommand
from iris_worker.launcher.starts.spawn import NeedsShell, NotRunnable, as_script
from iris_worker.launcher.starts.spawner import Spawner
from iris_worker.launcher.starts.starts import Stopped

_KILLED = 128 + signal.SIGKILL
"""The exit code of a shell for what was killed."""


class SpawnedCommands:
    """Those of one launcher.

    Args:
        on_exit: told of the end of each. kill: kills an attempt.
    """

    def __init__(
        self,
        spawner: Spawner,
        processes: KnownProcesses,
        groups: Cgroups | None,
        on_exit: Callable[[CommandExited], object],
        kill: Callable[[Process], object],
    ) -> None:
        self._spawner = spawner
        self._processes = processes
        self._groups = groups
        self._on_exit = on_exit
        self._kill_attempt = kill
        self._dying: list[SpawnedCommand] = []

    def begin(self, request: SpawnCommand, stdio: list[int]) -> None:
        """Start a command in its attempt's directory; what fails is its exit. ``stdio`` is closed
        here.
        """
        try:
            if len(stdio) < (
                1 if request.tty else 3
            ):  # the kernel drops what this process has no room for
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self._start(request, stdio)
        except NeedsShell:
            self.begin(structs.replace(request, command=as_script(request.command)), stdio)
        except (NotRunnable, OSError) as error:
            _close(stdio)
            self._on_exit(CommandExited(request.number, to_refusal(error)))

    def _start(self, request: SpawnCommand, stdio: list[int]) -> None:
        process = self._processes.by_ref.get(request.ref)
        if process is None or process.exit is not None:
            raise ProcessLookupError("the task has ended")
        started = process.started
        env = request.env
        has_begun = partial(_close, stdio)
        if request.inherits:
            env = {**tree.environment(process.pid), "IRIS_WORKDIR": process.workdir, **env}
        if request.tty and started.sandbox is not None and started.sandbox.uid is not None:
            os.fchown(stdio[0], started.sandbox.uid, -1)
        child, group = self._spawner.start(
            started.slot,
            started.sandbox,
            process.workdir,
            request.command,
            env=env,
            stdio=stdio,
            limits=request.limits,
            cgroup=process.cgroup,
            on_begun=has_begun,
            tty=request.tty,
            client=started.container is not None,
            beside=True,
        )
        command = SpawnedCommand(request, process, child.pid, stdio, group=group)
        process.commands[child.pid] = self._processes.commands[child.pid] = command
        if child.report < 0:
            has_begun()

    def signal(self, number: int, signal_number: int) -> None:
        for pid, command in self._processes.commands.items():
            if command.request.number == number:
                self._spawner.signal(pid, signal_number)

    def kill_all(self) -> None:
        """Kill the commands of a worker that is gone."""
        for pid in self._processes.commands:
            self._spawner.signal(pid, signal.SIGKILL)

    def reaped(self, pid: int, status: int, error: Exception | None) -> bool:
        """A child has ended; False when it is no command. The rest of a command is killed, for
        which the end of its attempt waits. ``error``: why it has not become its program.
        """
        if (command := self._processes.commands.pop(pid, None)) is None:
            return False
        self._dying.append(command)
        request = command.request
        process = command.process
        if isinstance(error, NeedsShell):
            self.begin(structs.replace(request, command=as_script(request.command)), command.stdio)
            return True
        _close(command.stdio)
        exit_ = to_refusal(error) if error is not None else to_exit(status, 0)
        if process.exit is not None and exit_.signal == signal.SIGKILL:
            exit_ = structs.replace(exit_, error="its task has ended")
        self._on_exit(CommandExited(request.number, exit_))
        if isinstance(error, Stopped) and process.exit is None:
            process.error = NotRunnable(_KILLED, STOPS_OTHERS)
            self._kill_attempt(process)
        return True

    def kill(self, command: SpawnedCommand) -> bool:
        """Kill what is left of a command; False when that is nothing."""
        if command.group is not None and self._groups is not None:
            return self._groups.kill(command.group)
        return self._spawner.signal(command.pid, signal.SIGKILL)

    @property
    def are_dying(self) -> bool:
        """Whether something may be left of commands that have ended."""
        return bool(self._dying)

    def settle(self) -> None:
        """Kill what is left of commands that have ended."""
        self._dying = [command for command in self._dying if not self._is_gone(command)]

    def _is_gone(self, command: SpawnedCommand) -> bool:
        """Whether nothing is left of a command that has ended; then its control group is given
        back.
        """
        command.rounds += 1
        if self.kill(command) and (command.group is not None or command.rounds <= GIVE_UP_ROUNDS):
            return False
        command.process.commands.pop(command.pid, None)
        if command.group is not None and self._groups is not None:
            self._groups.give(command.group)
        return True


def _close(stdio: list[int]) -> None:
    while stdio:
        os.close(stdio.pop())
