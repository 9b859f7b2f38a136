"""Starts the processes of attempts, stops each with all its descendants, and collects their exits.

An attempt has ended when its first process and all descendants are gone: when the first one ends,
its control group is killed; without one, the rest of its process group, and the descendants outside
it. SIGCHLD signals an end (`reap`), for adopted processes their pidfd. Out of scope: what is
    recorded about it, and output, which the files of the slot hold.
Source: docs/design/reliability.md#security, docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskUsage
from iris_core.spec.exit_rules import signal_number
from iris_core.units import show_bytes
from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.cgroups.files import Cgroup
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import DelayedCall, EventLoop
from iris_worker.launcher.kernel.pidfd import exit_status
from iris_worker.launcher.kernel.signals import signal_group, signal_process
from iris_worker.launcher.kernel.terminal import keep_shown, open_terminal
from iris_worker.launcher.processes.commands import SpawnedCommands
from iris_worker.launcher.processes.exits import is_child, since, to_exit, to_refusal, wait_any
from iris_worker.launcher.processes.process import KnownProcesses, Process
from iris_worker.launcher.processes.spares import Spares
from iris_worker.launcher.processes.strays import Strays
from iris_worker.launcher.processes.usage import UsageMeter, of_group, of_sample
from iris_worker.launcher.records.records import CommandExited, Exit, Sandbox, Started, StartProcess
from iris_worker.launcher.starts.sandbox import user_of
from iris_worker.launcher.starts.spawn import Child, NeedsShell
from iris_worker.launcher.starts.spawner import Spawner

RESULT_BYTES = (1 << 16) + 64
"""More than a call sends of its result in one message."""
_LINGER_S = 0.02
_GRACE_LOOK_S = 0.1
"""How often it is looked whether groups that may go on until the end of their grace period have
ended.
"""
_MOST_MEMORY = 0.5
"""A process is reused only if it holds at most this part of its memory limit between two calls."""


class Observer(Protocol):
    """Who starts attempts, and commands beside them."""

    def on_begun(self, ref: AttemptRef) -> None:
        """The attempt's first process is its program now; not called when `Runner.start` has said
        so.
        """

    def on_script(self, ref: AttemptRef) -> None:
        """The attempt has not begun: its file is to be started as a script."""

    def on_exit(self, ref: AttemptRef, exit_: Exit) -> None:
        """The attempt has ended; the exit is that of its first process."""

    def on_command_exit(self, exited: CommandExited) -> None: ...


class Runner:
    """All processes of one worker.

    Args:
        groups: control groups; None where there are none.
        observer: is told what becomes of them.

    Attributes:
        commands: beside attempts. usage: of attempts. spares: processes that have no attempt.
        on_unbegun: told of a process that has ended and is not known to have begun the call of its
            attempt; returns whether it is to be made by another one.
        on_other_child: told of each child that has ended and is no attempt's, its wait status, and
            why it could not become its program.
        on_full: told of a slot whose sandbox is ended, as attempts have left too much there and
            none runs.
    """

    def __init__(
        self, loop: EventLoop, spawner: Spawner, groups: Cgroups | None, observer: Observer
    ) -> None:
        self.on_unbegun: Callable[[Process], bool] = lambda process: False
        self.on_other_child: Callable[[int, int, Exception | None], object] = (
            lambda pid, status, error: None
        )
        self.on_full: Callable[[int], object] = lambda slot: None
        self._loop = loop
        self._spawner = spawner
        self._sandboxes = spawner.sandboxes
        self._groups = groups
        self._observer = observer
        self._known = KnownProcesses()
        self.commands = SpawnedCommands(
            spawner, self._known, groups, observer.on_command_exit, kill=self._kill
        )
        self.usage = UsageMeter(loop, self._known, groups, self._kill)
        self._strays = Strays(
            spawner.attempts, self._known, self._sandboxes, lambda pid: pid in self.spares
        )
        self.spares = Spares(loop, groups, self._strays.left_in, self._leave)
        self._lingering: list[Process] = []
        self._watching = False
        self._looking: DelayedCall | None = None
        loop.watch_children(self.reap)

    @property
    def running(self) -> int:
        """Attempts that have not ended."""
        return len(self._known.by_ref)

    def cloned_from(self) -> set[str]:
        """The keys of the templates of which an attempt was cloned that has not ended."""
        return {process.template for process in self._known.by_ref.values()}

    def runs_clone_of(self, template: str) -> bool:
        """Whether an attempt that was cloned from the template of this key has not ended."""
        return any(process.template == template for process in self._known.by_ref.values())

    def start(self, request: StartProcess) -> tuple[Child, Cgroup | None]:
        """Start an attempt's process and return it, and its control group. Raises NotRunnable,
        OSError.
        """
        if (
            request.cgroup is not None
        ):  # a group that is given back between starts ordered together is used next
            self.reap()
        started = request.record
        workdir = self._spawner.workdir_of(started.below)
        user = user_of(started.sandbox)
        with contextlib.ExitStack() as held_open:
            if started.terminal:
                terminal, *stdio = held_open.enter_context(
                    open_terminal(user.uid if user is not None else -1)
                )
            else:
                terminal = -1
                stdio = [*held_open.enter_context(self._spawner.output_of(started.below))]
            child, group = self._spawner.start(
                started.slot,
                started.sandbox,
                workdir,
                request.command,
                env=request.env,
                stdio=stdio,
                limits=request.limits,
                cgroup=request.cgroup,
                on_begun=partial(self._observer.on_begun, started.ref),
                tty=started.terminal,
                client=started.container is not None,
                beside=self.is_used(started.slot),
            )
            terminal = os.dup(terminal) if started.terminal else -1
        process = Process(started, workdir, child.pid, group=group, terminal=terminal)
        self._known.add(process)
        return child, process.cgroup

    def adopt(self, started: Started) -> bool:
        """Adopt a process of the previous launcher; False when it has already ended."""
        try:
            pidfd = os.pidfd_open(started.pid)
        except OSError:
            return False
        process = Process(started, self._spawner.workdir_of(started.below), started.pid, pidfd)
        if self._groups is not None and started.cgroup is not None:
            process.group = self._groups.adopt(started.cgroup)
        self._known.add(process)
        if started.sandbox is not None:
            self._sandboxes.adopt(started.slot, started.pid)
        self._loop.watch(pidfd, lambda: self._adopted_ended(process))
        return True

    def terminal(self, ref: AttemptRef) -> int:
        """The other end of the terminal of an attempt; -1 when it has none, or an earlier launcher
        had that.
        """
        process = self._known.by_ref.get(ref)
        if process is None:
            return -1
        process.seen = True
        return process.terminal

    # ── clones, and processes that make several calls ─────────────────────────────────────────────

    def is_used(self, slot: int) -> bool:
        """Whether attempts run in a slot. What starts there too is of the same job."""
        return slot in self._known.by_slot

    def is_clean(self, slot: int, sandbox: Sandbox | None, below: str) -> bool:
        """Whether the sandbox of a slot is there, and no attempt of another job has left anything
        in it.
        """
        if self.is_used(slot):
            return True
        try:
            return self._sandboxes.is_clean(slot, sandbox, self._spawner.workdir_of(below))
        except OSError:
            return False

    def is_free_child(self, pid: int) -> bool:
        """Whether it is a child of this process that is not known as anything."""
        return not self._strays.is_known(pid) and is_child(pid)

    def group_of(self, pid: int, limits: Cgroup | None) -> Group | None:
        """Put a clone into a control group. Raises OSError."""
        return (
            self._groups.place(pid, limits)
            if limits is not None and self._groups is not None
            else None
        )

    def adopt_clone(
        self, started: Started, pid: int, group: Group | None, template: str
    ) -> Process:
        """A clone, which was told to go, is the process of an attempt."""
        clone = Process(started, self._spawner.workdir_of(started.below), pid, group=group)
        clone.cloned = True
        clone.template = template
        self._sandboxes.use(started.slot)
        self._known.add(clone)
        return clone

    def finish_call(
        self,
        process: Process,
        storage: tree.UsedStorage,
        code: int,
        result: bytes,
        *,
        restores: bool = False,
    ) -> str:
        """A process has made the call of its attempt, and waits for another: the attempt has ended,
        with this exit code and result. ``storage``: what the process has used of it.
        ``restores``: it gives back what memory the call has left. Returns why the attempt has not
        ended, when something of it is left; then its end is that of the process.
        """
        if process.exit is not None or process.killer is not None:
            return "it was ended"
        if process.commands:
            return "a command ran beside it"
        group = process.group
        cpu_ms = tree.cpu_ms(process.pid) if group is None else 0  # a group counts that itself
        used = TaskUsage(cpu_ms, *storage.read())
        exit_ = Exit(code, usage=used, result=result)
        exit_ = since(exit_, process.before or TaskUsage())
        if group is None or self._groups is None:
            if self._strays.left_by(process):
                return "it left processes"
        else:
            if self._groups.holds_others(group, process.pid):
                return "it left processes"
            usage = self._groups.usage(group, peaks=process.before is None)
            limit = group.limits.memory_limit_bytes if group.limits is not None else 0
            is_asked = limit > 0 and not restores
            held = self._groups.held_bytes(group, limit * _MOST_MEMORY) if is_asked else 0
            if usage.limit_bytes or held > limit * _MOST_MEMORY:
                return f"it held {show_bytes(held)} of its {show_bytes(limit)} of memory"
            exit_ = of_group(process, exit_, usage)
            self._groups.renew(group, usage)
        process.before = used
        if self._is_last([process], process.slot):
            self._sandboxes.left(process.slot, empty=True)
        self._known.remove(process)
        self.spares.add(process.pid, process.slot, group)
        self._observer.on_exit(process.ref, exit_)
        return ""

    def begin_call(self, started: Started, last: Process) -> Process:
        """A process that has finished the call of its ``last`` attempt makes that of another."""
        self.spares.take(last.pid)
        process = self.adopt_clone(started, last.pid, last.group, last.template)
        process.before = last.before
        process.begun = False
        return process

    # ── stopping ──────────────────────────────────────────────────────────────────────────────────

    def _signal(self, process: Process, number: int) -> None:
        """Signal all of the group of a process."""
        if (
            not self._spawner.signal(process.pid, number)
            and process.cloned
            and process.exit is None
        ):
            os.kill(process.pid, number)  # it has not made its session yet

    def _kill(self, process: Process) -> None:
        process.in_grace = False
        if process.group is None or self._groups is None:
            self._signal(process, signal.SIGKILL)
        else:
            self._groups.kill(process.group)

    def give_notice(self, ref: AttemptRef) -> None:
        """Send the whole group the signal of a notice."""
        process = self._known.by_ref.get(ref)
        if (
            process is not None
            and (notice := process.started.notice)
            and (number := signal_number(notice.signal))
        ):
            self._signal(process, number)

    def stop(
        self, ref: AttemptRef, grace_ms: int, settle_ms: int, *, noticed: bool = False
    ) -> None:
        """Send the whole group its stop signal after ``settle_ms``, and KILL ``grace_ms`` later
        unless it has ended.

        ``noticed``: without that signal.
        """
        process = self._known.by_ref.get(ref)
        if process is None:
            return
        if process.terminated:
            if not grace_ms and not settle_ms:
                self._kill(process)
            return
        if process.killer is not None:
            process.killer.cancel()
        number = 0 if noticed else process.started.stop_signal
        if settle_ms > 0:
            process.killer = self._loop.call_later(
                settle_ms / 1000, self._terminate, process, grace_ms, number
            )
        else:
            self._terminate(process, grace_ms, number)

    def _terminate(self, process: Process, grace_ms: int, number: int) -> None:
        process.terminated = True
        process.in_grace = grace_ms > 0
        if number := number if grace_ms > 0 else signal.SIGKILL:
            self._signal(process, number)
        process.killer = self._loop.call_later(grace_ms / 1000, self._kill, process)

    def kill_all(self) -> None:
        """Kill all attempts without a grace period."""
        for process in self._known.by_ref.values():
            process.terminated = True
            self._kill(process)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────

    def reap(self) -> None:
        """Collect the ends of children and kill the rest of their groups, after the grace period
        of those that are stopped. Called on SIGCHLD.
        """
        ended = []
        while (found := wait_any()) is not None:
            pid, status, used = found
            error = self._spawner.starts.settle(pid)
            if self.commands.reaped(pid, status, error):
                continue
            process = self._known.by_pid.get(pid)
            if process is None or process.pidfd >= 0:
                self.spares.reaped(pid)
                self.on_other_child(pid, status, error)
                self._sandboxes.pids.discard(pid)
                self._strays.reaped(pid)
                continue
            process.error = error or process.error
            process.exit = self.usage.exit_of(process, status, used)
            ended.append(process)
        if ended:
            self._sweep(ended)
        if self._lingering or self.commands.are_dying:
            self._settle()

    def _adopted_ended(self, process: Process) -> None:
        self._loop.forget(process.pidfd)
        status = exit_status(process.pid, process.pidfd)
        os.close(process.pidfd)
        process.exit = Exit(known=False) if status is None else to_exit(status, process.sampled)
        self._sweep([process])
        self._settle()

    def _sweep(self, ended: list[Process]) -> None:
        """Kill what is left of attempts whose first process has ended; attempts without remaining
        processes have ended.
        """
        self._lingering += self._settled(ended)

    def _settle(self) -> None:
        """Check attempts with remaining processes again; what cannot be killed is given up after
        some time.
        """
        self.commands.settle()
        self._lingering = self._settled(self._lingering)
        hurries = self.commands.are_dying or any(not one.in_grace for one in self._lingering)
        if hurries and not self._watching:
            self._watching = True
            self._loop.call_later(_LINGER_S, self._watch)
        elif self._lingering and self._looking is None:
            self._looking = self._loop.call_later(_GRACE_LOOK_S, self._look)

    def _settled(self, ended: list[Process]) -> list[Process]:
        """Report the attempts that have ended, and return the others.

        Descendants outside the group are searched after the group is empty, because then it cannot
        create new ones. A sandbox is empty with the control group, unless a command that has ended
        left something in its own. What is left of one in its grace period goes on.
        """
        going_on = [process for process in ended if process.in_grace and self._has_members(process)]
        ended = [process for process in ended if process not in going_on]
        empty = [process for process in ended if self._clear(process)]
        for process in ended:
            if (process.group is not None and process not in empty) or not self._is_last(
                ended, process.slot
            ):
                continue
            known = process.group is not None and not process.commands and not process.is_given_up
            if init := self._sandboxes.left(process.slot, empty=known):
                process.strays[init] = tree.started_ticks(init)
        if ungrouped := [process for process in ended if process.group is None]:
            self._strays.look_for(ungrouped)
        for process in empty:
            if not process.strays or process.is_given_up:
                self._over(process)
        left = [process for process in ended if self._known.by_ref.get(process.ref) is process]
        return going_on + left

    def _has_members(self, process: Process) -> bool:
        """Whether others than its first process, which has ended, are left of its group."""
        if process.group is not None and self._groups is not None:
            return self._groups.has_members(process.group)
        return signal_group(process.pid, 0)

    def _is_last(self, ended: list[Process], slot: int) -> bool:
        """Whether nothing runs in a slot besides attempts that have ended."""
        return all(process in ended for process in self._known.by_slot[slot])

    def _clear(self, process: Process) -> bool:
        """Kill the remaining processes; True when none is left, or only unreaped zombies of
        others.
        """
        process.rounds += 1
        if process.group is not None and self._groups is not None:
            left = self._groups.kill(process.group)
        else:
            left = signal_group(process.pid, signal.SIGKILL)
        for command in process.commands.values():
            left |= self.commands.kill(command)
        process.strays = {
            pid: ticks
            for pid, ticks in process.strays.items()
            if signal_process(pid, ticks, signal.SIGKILL)
        }
        if not left and not process.strays:
            return True
        if process.is_given_up or (
            process.group is None and process.rounds > 1 and is_bare(process)
        ):
            process.strays.clear()
            return True
        return False

    def _watch(self) -> None:
        """Poll attempts with descendants outside the group, whose ends are not all signalled."""
        self._watching = False
        self.reap()

    def _look(self) -> None:
        """Whether the last process of a group that is stopped has ended, where nobody is told."""
        self._looking = None
        self.reap()

    def _over(self, process: Process) -> None:
        self._known.remove(process)
        if process.killer is not None:
            process.killer.cancel()
        if process.terminal >= 0:
            self._close_terminal(process)
        assert process.exit is not None
        if process.group is not None and self._groups is not None:
            process.group.spoilt |= process.is_given_up
            process.exit = of_group(process, process.exit, self._groups.end(process.group))
            if self._leave(process.slot, process.group):
                process.exit = structs.replace(process.exit, full=True)
        if process.over_bytes:
            process.exit = of_sample(process, process.exit)
        if process.link is not None:
            process.exit = structs.replace(process.exit, result=sent_by(process.link))
        if isinstance(process.error, NeedsShell) and not process.terminated:
            self._observer.on_script(process.ref)
        elif process.begun or not self.on_unbegun(process):
            self._observer.on_exit(
                process.ref,
                to_refusal(process.error) if process.error is not None else process.exit,
            )

    def _leave(self, slot: int, group: Group) -> bool:
        """What has ended in a slot has left this; returns whether no further attempt may have
        that.
        """
        full = self._sandboxes.add_left(slot, group.left_bytes)
        if full and not self.is_used(slot):
            self.on_full(slot)
            self._sandboxes.end(slot)
        return full

    def _close_terminal(self, process: Process) -> None:
        """What was shown and no worker could see is output of the attempt."""
        if not process.seen:
            with (
                contextlib.suppress(OSError),
                self._spawner.output_of(process.started.below) as (_, out, _),
            ):
                keep_shown(process.terminal, out)
        os.close(process.terminal)


def sent_by(link: socket.socket) -> bytes:
    """The result that a call has sent, whose process has ended; empty: it has sent none."""
    with link, contextlib.suppress(OSError):
        return link.recv(RESULT_BYTES, socket.MSG_DONTWAIT)
    return b""


def is_bare(process: Process) -> bool:
    """Whether only zombies are left that other processes must reap."""
    groups = (process.pid, *process.commands)
    return not any(map(tree.group_lives, groups)) and not any(map(tree.is_alive, process.strays))
