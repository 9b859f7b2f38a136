"""Starts processes of attempts, of templates and of commands: each in a control group, in its
slot's sandbox.

Out of scope: how a process becomes its program (spawn), and what is done about it once it runs
    (runner).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.cgroups.limits import Limits
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.kernel.signals import signal_group
from iris_worker.launcher.records.records import Sandbox
from iris_worker.launcher.starts.sandbox import Leftovers, Sandboxes, user_of
from iris_worker.launcher.starts.spawn import Child, begin
from iris_worker.launcher.starts.starts import Starts

_LEAVE_S = 0.01
"""How long this process stays in the control group of an attempt that it has started, which may end
before.
"""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class Spawner:
    """Starts all processes of one worker.

    Args:
        root: the worker's data directory. groups: control groups; None where there are none.

    Attributes:
        attempts: the directory of the slots' directories.
        sandboxes: of the slots. starts: processes that have not become their programs yet.
    """

    def __init__(self, loop: EventLoop, root: str, groups: Cgroups | None) -> None:
        self.attempts = f"{root}/attempts"
        self.sandboxes = Sandboxes(
            self.attempts, groups.go_home if groups is not None else lambda: None
        )
        self.starts = Starts(loop)
        self._loop = loop
        self._output = f"{root}/output"
        self._groups = groups
        self._leaving = False
        self._entered_s = 0.0
        self._null = os.open(os.devnull, os.O_RDWR)

    def workdir_of(self, below: str) -> str:
        return f"{self.attempts}/{below}"

    @contextlib.contextmanager
    def output_of(self, below: str) -> Iterator[tuple[int, int, int]]:
        """The standard descriptors of an attempt's process."""
        out = os.open(f"{self._output}/{below}.out", _FLAGS)
        try:
            err = os.open(f"{self._output}/{below}.err", _FLAGS)
            try:
                yield self._null, out, err
            finally:
                os.close(err)
        finally:
            os.close(out)

    def start(
        self,
        slot: int,
        sandbox: Sandbox | None,
        workdir: str,
        command: tuple[str, ...],
        env: Mapping[str, str],
        stdio: Sequence[int],
        limits: Limits,
        cgroup: Cgroup | None,
        on_begun: Callable[[], object],
        *,
        tty: bool = False,
        client: bool = False,
        beside: bool = False,
    ) -> tuple[Child, Group | None]:
        """Start a process; returns it, and its control group.

        Args:
            stdio: as in `begin`. cgroup: the limits of its control group; None: it has none.
            on_begun: called when it has become its program, unless it had when this returns.
            client: of a container runtime. beside: a task runs in the slot.

        Raises NotRunnable, OSError.
        """
        sandboxes = self.sandboxes
        user = user_of(sandbox)

        def spawn() -> tuple[Child, Group | None]:
            held = sandboxes.prepare(slot, sandbox, workdir, beside=beside)
            waits = not (limits or tty) and sandboxes.may_wait(held, sandbox, beside=beside)
            work = partial(
                begin, command, env, workdir, stdio, limits, tty=tty, user=user, waits=waits
            )
            return self._in_group(cgroup, lambda: sandboxes.start(held, work, client=client))

        try:
            child, group = spawn()
        except Leftovers:
            child, group = spawn()
        if child.report >= 0:
            self.starts.add(child, command[0], on_begun)
        return child, group

    def _in_group(
        self, limits: Cgroup | None, start: Callable[[], Child]
    ) -> tuple[Child, Group | None]:
        """Start a process in a control group, which is given back when that fails."""
        groups = self._groups
        if groups is None:
            return start(), None
        if limits is None:
            groups.go_home()
            return start(), None
        group = groups.take(limits)
        try:
            child = start()
        except BaseException:
            groups.give(group)
            raise
        self._entered_s = time.monotonic()
        if not self._leaving:
            self._leaving = True
            self._loop.call_later(_LEAVE_S, self._leave)
        return child, group

    def _leave(self) -> None:
        assert self._groups is not None
        if (wait_s := self._entered_s + _LEAVE_S - time.monotonic()) > 0:
            self._loop.call_later(wait_s, self._leave)
            return
        self._leaving = False
        self._groups.leave()

    def signal(self, pid: int, number: int) -> bool:
        """Signal the group of a process, or the process itself, which may not lead it yet; False
        when it is empty.
        """
        if pid in self.starts:
            os.kill(pid, number)
        return signal_group(pid, number) or pid in self.starts

    def close(self) -> None:
        """Nothing runs: remove what was made for attempts."""
        self.sandboxes.close()
        if self._groups is not None:
            self._groups.close()
