"""Starts processes, stops each with all its descendants, and collects their exits.

An attempt has ended when its first process and all descendants are gone: when the first one ends, the rest of its group
and the descendants outside it are killed. SIGCHLD signals an end (`reap`), for adopted processes their pidfd. Out of
scope: what is recorded about it, and output, which the files of the slot hold.
Source: docs/design/reliability.md#security, docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from iris_core.messages import AttemptRef
from iris_worker.process import tree
from iris_worker.process.event_loop import DelayedCall, EventLoop
from iris_worker.process.limits import Limits, hold
from iris_worker.process.pidfd import exit_status
from iris_worker.process.records import Exit, Sandbox
from iris_worker.process.sandbox import Sandboxes

_LINGER_S = 0.02
_GIVE_UP_ROUNDS = 500
_SAMPLE_S = 5.0
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


@dataclass(slots=True, eq=False)
class Process:
    """One attempt's first process, in the directory of slot number ``slot``.

    Attributes:
        strays: processes of this attempt that left its group, and when each was started, in ticks since boot.
        terminated: it was sent TERM, and ``killer`` will send KILL; before that ``killer`` sends TERM.
        probe: the process group of a probe's command that runs beside it; 0 while none does.
        sampled: the most memory it was seen to hold.
    """

    ref: AttemptRef
    slot: int
    pid: int
    pidfd: int = -1
    exit: Exit | None = None
    strays: dict[int, int] = field(default_factory=dict)
    probe: int = 0
    sampled: int = 0
    rounds: int = 0
    terminated: bool = False
    killer: DelayedCall | None = None


class Runner:
    """All processes of one worker.

    Args:
        root: the worker's data directory.
        on_exit: called once for each attempt that has ended, with the exit of its first process.
        on_probe_exit: called for each probe's command that has ended.
    """

    def __init__(
        self,
        loop: EventLoop,
        root: str,
        on_exit: Callable[[AttemptRef, Exit], None],
        on_probe_exit: Callable[[AttemptRef, Exit], None],
    ) -> None:
        self._loop = loop
        self._attempts = f"{root}/attempts"
        self.sandboxes = Sandboxes(self._attempts)
        self._output = f"{root}/output"
        self._on_exit = on_exit
        self._on_probe_exit = on_probe_exit
        self._null = os.open(os.devnull, os.O_RDWR)
        self._children = tree.Children()
        self._by_slot: dict[int, Process] = {}
        self._by_pid: dict[int, Process] = {}
        self._own_peak = 0
        self._by_ref: dict[AttemptRef, Process] = {}
        self._probes: dict[int, Process] = {}
        self._lingering: list[Process] = []
        self._unowned: dict[int, set[AttemptRef]] = {}
        self._watching = False
        loop.watch_children(self.reap)
        loop.call_later(_SAMPLE_S, self._sample)

    @property
    def running(self) -> int:
        """Attempts that have not ended."""
        return len(self._by_ref)

    def start(
        self,
        ref: AttemptRef,
        slot: int,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: Limits,
        sandbox: Sandbox | None = None,
    ) -> int:
        """Start an attempt's process and return its id. Raises NotRunnable, OSError."""
        out = os.open(f"{self._output}/{slot}.out", _FLAGS)
        try:
            err = os.open(f"{self._output}/{slot}.err", _FLAGS)
            try:
                workdir, stdio = f"{self._attempts}/{slot}", (self._null, out, err)
                pid = self.sandboxes.spawn(slot, sandbox, command, env, workdir, stdio)
            finally:
                os.close(err)
        finally:
            os.close(out)
        self._add(Process(ref, slot, pid))
        hold(pid, limits)
        return pid

    def adopt(self, ref: AttemptRef, slot: int, pid: int, sandbox: Sandbox | None = None) -> bool:
        """Adopt a process of the previous launcher; False when it has already ended."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        process = Process(ref, slot, pid, pidfd)
        self._add(process)
        if sandbox is not None:
            self.sandboxes.adopt(slot, pid)
        self._loop.watch(pidfd, lambda: self._adopted_ended(process))
        return True

    def start_probe(
        self,
        ref: AttemptRef,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: Limits,
        stderr: int,
        sandbox: Sandbox | None = None,
    ) -> None:
        """Start a probe command in an attempt's directory; it and its group are killed when the attempt ends.

        Raises NotRunnable, OSError.
        """
        process = self._by_ref.get(ref)
        if process is None or process.exit is not None:
            raise ProcessLookupError("the process has ended")
        if process.probe:
            raise OSError("the last probe could not be killed")
        workdir, stdio = f"{self._attempts}/{process.slot}", (self._null, self._null, stderr)
        process.probe = pid = self.sandboxes.spawn(process.slot, sandbox, command, env, workdir, stdio, beside=True)
        self._probes[pid] = process
        hold(pid, limits)

    def kill_probe(self, ref: AttemptRef) -> None:
        process = self._by_ref.get(ref)
        if process is not None and process.probe:
            signal_group(process.probe, signal.SIGKILL)

    def kill_probes(self) -> None:
        """Kill the probes of a worker that is gone."""
        for pid in self._probes:
            signal_group(pid, signal.SIGKILL)

    def _probe_ended(self, pid: int, status: int) -> None:
        """The command has ended: kill the rest of its group."""
        process = self._probes.pop(pid)
        process.probe = 0
        signal_group(pid, signal.SIGKILL)
        self._on_probe_exit(process.ref, to_exit(status, 0))

    def _add(self, process: Process) -> None:
        self._by_pid[process.pid] = self._by_ref[process.ref] = self._by_slot[process.slot] = process

    def stop(self, ref: AttemptRef, grace_ms: int, settle_ms: int) -> None:
        """Send the whole group TERM after ``settle_ms``, and KILL ``grace_ms`` later unless it has ended."""
        process = self._by_ref.get(ref)
        if process is None or process.terminated:
            return
        if process.killer is not None:
            process.killer.cancel()
        if settle_ms > 0:
            process.killer = self._loop.call_later(settle_ms / 1000, self._terminate, process, grace_ms)
        else:
            self._terminate(process, grace_ms)

    def _terminate(self, process: Process, grace_ms: int) -> None:
        process.terminated = True
        signal_group(process.pid, signal.SIGTERM if grace_ms > 0 else signal.SIGKILL)
        process.killer = self._loop.call_later(grace_ms / 1000, self._kill, process)

    def kill_all(self) -> None:
        """Kill all attempts without a grace period."""
        for process in self._by_ref.values():
            signal_group(process.pid, signal.SIGKILL)

    def _sample(self) -> None:
        """Record the memory use of all attempts, at intervals."""
        for process in self._by_ref.values():
            process.sampled = max(process.sampled, tree.peak_rss_bytes(process.pid))
        self._loop.call_later(_SAMPLE_S, self._sample)

    def reap(self) -> None:
        """Collect the ends of children and kill the rest of their groups. Called on SIGCHLD."""
        ended = []
        while (found := wait_any()) is not None:
            pid, status, usage = found
            if pid in self._probes:
                self._probe_ended(pid, status)
                continue
            process = self._by_pid.get(pid)
            if process is None or process.pidfd >= 0:
                self.sandboxes.pids.discard(pid)
                self._unowned.pop(pid, None)
                continue
            process.exit = to_exit(status, self._peak(process, usage.ru_maxrss * 1024))
            ended.append(process)
        if ended:
            self._sweep(ended)
        if self._lingering:
            self._settle()

    def _peak(self, process: Process, reported: int) -> int:
        """The process' peak memory. The kernel includes what it shared with this process before its exec, so a lower
        value is unknown.
        """
        if reported > self._own_peak:  # it may have grown since that was read
            self._own_peak = tree.peak_rss_bytes(os.getpid())
        return reported if reported > self._own_peak else process.sampled

    def _adopted_ended(self, process: Process) -> None:
        self._loop.forget(process.pidfd)
        status = exit_status(process.pid, process.pidfd)
        os.close(process.pidfd)
        process.exit = Exit(known=False) if status is None else to_exit(status, process.sampled)
        self._sweep([process])
        self._settle()

    def _kill(self, process: Process) -> None:
        signal_group(process.pid, signal.SIGKILL)

    # ── descendants ─────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self, ended: list[Process]) -> None:
        """Kill what is left of attempts whose first process has ended; attempts without remaining processes have
        ended.
        """
        self._lingering += self._settled(ended)

    def _settle(self) -> None:
        """Check attempts with remaining processes again; what cannot be killed is given up after some time."""
        self._lingering = self._settled(self._lingering)
        if self._lingering and not self._watching:
            self._watching = True
            self._loop.call_later(_LINGER_S, self._watch)

    def _settled(self, ended: list[Process]) -> list[Process]:
        """Report the attempts that have ended, and return the others.

        Descendants outside the group are searched after the group is empty, because then it cannot create new ones.
        """
        empty = [process for process in ended if self._clear(process)]
        self._look_for_strays(ended)
        for process in empty:
            if not process.strays or process.rounds > _GIVE_UP_ROUNDS:
                self._over(process)
        return [process for process in ended if process.ref in self._by_ref]

    def _clear(self, process: Process) -> bool:
        """Kill the remaining processes; True when none is left, or only unreaped zombies of others."""
        process.rounds += 1
        group = signal_group(process.pid, signal.SIGKILL)
        if process.probe:
            group |= signal_group(process.probe, signal.SIGKILL)
        process.strays = {
            pid: ticks for pid, ticks in process.strays.items() if signal_process(pid, ticks, signal.SIGKILL)
        }
        if not group and not process.strays:
            return True
        if process.rounds > _GIVE_UP_ROUNDS or (process.rounds > 1 and is_bare(process)):
            process.strays.clear()
            return True
        return False

    def _watch(self) -> None:
        """Poll attempts with descendants outside the group, whose ends are not all signalled."""
        self._watching = False
        self.reap()

    def _look_for_strays(self, ended: list[Process]) -> None:
        """Find children of this process that it did not start: orphans of tasks, alive or zombies."""
        gone = {process.ref for process in ended}
        for process in ended:
            if init := self.sandboxes.left(process.slot):
                process.strays[init] = tree.started_ticks(init)
        for pid in self._children.pids() - self._by_pid.keys() - self._probes.keys() - self.sandboxes.pids:
            owner = self._owner(pid)
            if owner is None and self._nobodys(pid, gone):
                owner = ended[0]
            if owner is not None:
                owner.strays[pid] = tree.started_ticks(pid)

    def _owner(self, pid: int) -> Process | None:
        process = self._by_pid.get(tree.session_of(pid))
        if process is not None:
            return process
        slot = tree.slot_of(pid, self._attempts)
        return self._by_slot.get(slot) if slot is not None else None

    def _nobodys(self, pid: int, gone: set[AttemptRef]) -> bool:
        """Whether all processes that were alive when this unidentified process was first seen have ended."""
        suspects = self._unowned.setdefault(pid, set(self._by_ref))
        suspects &= self._by_ref.keys() - gone
        return not suspects

    def _over(self, process: Process) -> None:
        del self._by_pid[process.pid], self._by_ref[process.ref], self._by_slot[process.slot]
        if process.killer is not None:
            process.killer.cancel()
        assert process.exit is not None
        self._on_exit(process.ref, process.exit)


def is_bare(process: Process) -> bool:
    """Whether only zombies are left that other processes must reap."""
    groups = [group for group in (process.pid, process.probe) if group]
    return not any(map(tree.group_lives, groups)) and not any(map(tree.is_alive, process.strays))


def wait_any() -> tuple[int, int, resource.struct_rusage] | None:
    """One child that has ended, None when none has."""
    try:
        found = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return found if found[0] else None


def to_exit(status: int, peak_rss_bytes: int) -> Exit:
    """The exit for a wait status."""
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status), peak_rss_bytes)
    return Exit(os.WEXITSTATUS(status), None, peak_rss_bytes)


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when it is empty."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # it has a member that runs as another user
        return True
    return True


def signal_process(pid: int, ticks: int, number: int) -> bool:
    """Signal the process that was started at ``ticks``; False when it has ended, also when its id was reused."""
    with contextlib.suppress(ProcessLookupError):
        if tree.started_ticks(pid) == ticks:
            os.kill(pid, number)
            return True
    return False
