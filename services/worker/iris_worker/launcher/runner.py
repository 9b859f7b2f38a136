"""Starts processes, stops each with all its descendants, and collects their exits.

An attempt has ended when its first process and all descendants are gone: when the first one ends, its control group is
killed; without one, the rest of its process group, and the descendants outside it. SIGCHLD signals an end (`reap`), for
adopted processes their pidfd. Out of scope: what is recorded about it, and output, which the files of the slot hold.
Source: docs/design/reliability.md#security, docs/design/semantics.md#tasks-and-attempts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from msgspec import structs

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import LiveUsage, TaskUsage
from iris_core.spec.exit_rules import signal_number
from iris_core.units import show_bytes
from iris_worker.launcher import tree
from iris_worker.launcher.cgroup import Cgroups, Group
from iris_worker.launcher.cgroup_files import Cgroup, GroupUsage
from iris_worker.launcher.event_loop import DelayedCall, EventLoop
from iris_worker.launcher.exits import since, to_exit, to_refusal, wait_any, with_usage
from iris_worker.launcher.limits import Limits
from iris_worker.launcher.pidfd import exit_status
from iris_worker.launcher.records import STOPS_OTHERS, EmptySlot, Exit, Sandbox, Started, StartProcess, StartTemplate
from iris_worker.launcher.sandbox import Leftovers, Sandboxes, user_of
from iris_worker.launcher.signals import signal_group, signal_process
from iris_worker.launcher.spares import Spares
from iris_worker.launcher.spawn import Child, NeedsShell, NotRunnable, begin
from iris_worker.launcher.starts import Starts, Stopped
from iris_worker.launcher.terminal import keep_shown, open_terminal

_LINGER_S = 0.02
_LEAVE_S = 0.01
"""How long this process stays in the control group of an attempt that it has started, which may end before."""
_GIVE_UP_ROUNDS = 500
_SAMPLE_S = 5.0
_MEASURED = 256
_MOST_MEMORY = 0.5
"""A process is reused only if it holds at most this part of its memory limit between two calls."""
_KILLED = 128 + signal.SIGKILL
"""The exit code of a shell for what was killed."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


@dataclass(slots=True, eq=False)
class Process:
    """One attempt's first process.

    Attributes:
        workdir: the attempt's directory.
        strays: processes of this attempt that left its group, and when each was started, in ticks since boot.
        terminated: it was sent ``stop_signal``, and ``killer`` will send KILL; before that ``killer`` sends the signal.
        error: why it has not become its program, or why it was ended.
        commands: what runs beside it, probes and what people execute, by process group, until all of that is gone.
        group: its control group; None without.
        sampled: the most memory it was seen to hold. cloned: from a template, so it shares memory with that.
        before: what it had used when this attempt began, of a process that has made calls of others; None: of another.
        begun: it has its call, as far as that is known; else nothing of the attempt has run.
        client: of a container runtime, as are the commands beside it.
        terminal: the end that is not its own of the terminal that it reads and writes; -1: it has none. seen: whether a
            worker has that too.
    """

    ref: AttemptRef
    slot: int
    workdir: str
    pid: int
    pidfd: int = -1
    exit: Exit | None = None
    error: Exception | None = None
    strays: dict[int, int] = field(default_factory=dict)
    commands: dict[int, _CommandGroup] = field(default_factory=dict)
    group: Group | None = None
    sampled: int = 0
    cloned: bool = False
    before: TaskUsage | None = None
    begun: bool = True
    client: bool = False
    rounds: int = 0
    terminated: bool = False
    stop_signal: int = int(signal.SIGTERM)
    notice_signal: int = 0
    killer: DelayedCall | None = None
    terminal: int = -1
    seen: bool = False

    @property
    def cgroup(self) -> Cgroup | None:
        return self.group.limits if self.group is not None else None


@dataclass(slots=True, eq=False)
class _CommandGroup:
    """A process group beside an attempt, of which the first process is ``pid``.

    Attributes:
        rounds: how often the rest of it was killed since its first process has ended.
    """

    number: int
    process: Process
    pid: int
    group: Group | None = None
    rounds: int = 0


class Observer(Protocol):
    """Who starts attempts, and commands beside them, which have numbers."""

    def on_begun(self, ref: AttemptRef) -> None:
        """The attempt's first process is its program now; not called when `Runner.start` has said so."""

    def on_script(self, ref: AttemptRef) -> None:
        """The attempt has not begun: its file is to be started as a script."""

    def on_never_begun(self, ref: AttemptRef) -> None:
        """The process that was to make the call of the attempt has ended before: it is to be started again."""

    def on_exit(self, ref: AttemptRef, exit_: Exit) -> None:
        """The attempt has ended; the exit is that of its first process."""

    def on_command_begun(self, number: int) -> None: ...

    def on_command_script(self, number: int) -> None: ...

    def on_command_exit(self, number: int, exit_: Exit) -> None: ...


class Runner:
    """All processes of one worker.

    Args:
        root: the worker's data directory. groups: control groups; None where there are none.
        observer: is told what becomes of them.

    Attributes:
        spares: processes that have no attempt.
        on_last_words: told of a process that has ended and is not known to have begun, before that is judged.
        on_other_child: told of each child that has ended and is no attempt's, its wait status, and why it could not
            become its program.
    """

    def __init__(
        self,
        loop: EventLoop,
        root: str,
        groups: Cgroups | None,
        observer: Observer,
    ) -> None:
        self.spares = Spares(loop, groups, self._strays_in)
        self.on_last_words: Callable[[Process], object] = lambda process: None
        self.on_other_child: Callable[[int, int, Exception | None], object] = lambda pid, status, error: None
        self._loop = loop
        self._attempts = f"{root}/attempts"
        self.sandboxes = Sandboxes(self._attempts, groups.go_home if groups is not None else lambda: None)
        self._output = f"{root}/output"
        self._groups = groups
        self._leaving, self._entered_s = False, 0.0
        self._measured = 0
        self._dying: list[_CommandGroup] = []
        self._starts = Starts(loop)
        self._observer = observer
        self._null = os.open(os.devnull, os.O_RDWR)
        self._children = tree.Children(os.getpid())
        self._by_slot: dict[int, Process] = {}
        self._by_pid: dict[int, Process] = {}
        self._own_peak = 0
        self._by_ref: dict[AttemptRef, Process] = {}
        self._commands: dict[int, _CommandGroup] = {}
        self._lingering: list[Process] = []
        self._unowned: dict[int, set[AttemptRef]] = {}
        self._watching = False
        loop.watch_children(self.reap)
        loop.call_later(_SAMPLE_S, self._sample)

    @property
    def running(self) -> int:
        """Attempts that have not ended."""
        return len(self._by_ref)

    def start(self, request: StartProcess) -> tuple[Child, Cgroup | None]:
        """Start an attempt's process and return it, and its control group. Raises NotRunnable, OSError."""
        if request.cgroup is not None:  # a group that is given back between starts ordered together is used next
            self.reap()
        ref, slot, sandbox = request.record.ref, request.record.slot, request.record.sandbox
        workdir, user = f"{self._attempts}/{request.record.below}", user_of(sandbox)
        is_client, tty = request.record.container is not None, request.record.terminal

        def start() -> Child:
            waits = not (request.limits or tty) and self.sandboxes.is_alone(held, sandbox)
            words, env, limits = request.command, request.env, request.limits
            work = partial(begin, words, env, workdir, stdio, limits, tty=tty, user=user, waits=waits)
            return self.sandboxes.start(held, work, client=is_client)

        with contextlib.ExitStack() as held_open:
            if tty:
                terminal, *stdio = held_open.enter_context(open_terminal(user.uid if user is not None else -1))
            else:
                terminal, stdio = -1, [*held_open.enter_context(self.output_of(request.record.below))]
            held = self.sandboxes.prepare(slot, sandbox, workdir)
            try:
                child, group = self._in_group(request.cgroup, start)
            except Leftovers:
                held = self.sandboxes.prepare(slot, sandbox, workdir)
                child, group = self._in_group(request.cgroup, start)
            terminal = os.dup(terminal) if tty else -1
        process = Process(ref, slot, workdir, child.pid, group=group, terminal=terminal)
        self._add(process, request.record)
        if child.report >= 0:
            self._starts.add(child, request.command[0], partial(self._observer.on_begun, ref))
        return child, group.limits if group is not None else None

    def _in_group(self, limits: Cgroup | None, start: Callable[[], Child]) -> tuple[Child, Group | None]:
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

    # ── templates and their clones ──────────────────────────────────────────────────────────────────────────────

    def start_template(
        self, request: StartTemplate, command: tuple[str, ...], env: Mapping[str, str], stdin: int
    ) -> tuple[int, Group | None]:
        """Start a template as an attempt's process is; returns it, and its group. Raises NotRunnable, OSError."""
        workdir, user = f"{self._attempts}/{request.directory}", user_of(request.sandbox)
        held = self.sandboxes.prepare(request.slot, request.sandbox, workdir)
        with self.output_of(request.directory) as (_, out, err):
            work = partial(begin, command, env, workdir, (stdin, out, err), request.limits, user=user)
            child, group = self._in_group(request.cgroup, lambda: self.sandboxes.start(held, work))
        self._starts.add(child, command[0], lambda: None)
        return child.pid, group

    def workdir_of(self, below: str) -> str:
        return f"{self._attempts}/{below}"

    def is_clean(self, slot: int, sandbox: Sandbox | None, below: str) -> bool:
        """Whether the sandbox of a slot is there, and no attempt has left anything in it."""
        try:
            return self.sandboxes.is_clean(slot, sandbox, self.workdir_of(below))
        except OSError:
            return False

    def is_free_child(self, pid: int) -> bool:
        """Whether it is a child of this process that is not known as anything."""
        known = pid in self._by_pid or pid in self._commands or pid in self.spares or pid in self.sandboxes.pids
        return not known and tree.parent(pid) == os.getpid()

    def adopt_clone(self, request: StartProcess, pid: int) -> Process:
        """A clone is the process of an attempt from now on. Raises OSError."""
        group, record = self.group_of(pid, request.cgroup), request.record
        clone = Process(record.ref, record.slot, self.workdir_of(record.below), pid, group=group, cloned=True)
        self._add(clone, record)
        return clone

    def finish_call(self, process: Process, code: int) -> str:
        """A process has made the call of its attempt, and waits for another: the attempt has ended, with this exit
        code. Returns why it has not, when something of it is left; then its end is that of the process.
        """
        if process.exit is not None or process.killer is not None:
            return "it was ended"
        if process.commands:
            return "a command ran beside it"
        exit_ = Exit(code, usage=tree.used(process.pid))
        used, group = exit_.usage, process.group
        exit_ = since(exit_, process.before or TaskUsage())
        if group is None or self._groups is None:
            if self._has_left(process):
                return "it left processes"
        else:
            if self._groups.holds_others(group, process.pid):
                return "it left processes"
            usage = self._groups.usage(group, now=True)
            limit = group.limits.memory_limit_bytes if group.limits is not None else 0
            if usage.limit_bytes or 0 < limit * _MOST_MEMORY < usage.rss_bytes:
                return f"it held {show_bytes(usage.rss_bytes)} of its {show_bytes(limit)} of memory"
            exit_ = self._of_group(process, exit_, usage)
        process.before = used
        self.sandboxes.left(process.slot, empty=True)
        del self._by_pid[process.pid], self._by_ref[process.ref], self._by_slot[process.slot]
        self.spares.add(process.pid, process.slot, group)
        self._observer.on_exit(process.ref, exit_)
        return ""

    def begin_call(self, request: StartProcess, last: Process) -> Process:
        """A process that has finished the call of its ``last`` attempt makes that of another."""
        if last.group is not None and self._groups is not None:
            self._groups.renew(last.group)
        self.spares.take(last.pid)
        record = request.record
        process = Process(
            *(record.ref, record.slot, self.workdir_of(record.below), last.pid),
            group=last.group,
            cloned=True,
            before=last.before,
            begun=False,
        )
        self._add(process, request.record)
        return process

    def _has_left(self, process: Process) -> bool:
        """Whether descendants of a process may live, as far as the kernel tells without control groups."""
        return (
            bool(tree.children(process.pid))
            or self.sandboxes.holds_orphans(process.slot)
            or any(self._owner(pid) in (process, None) for pid in self._unknown_children())
        )

    def group_of(self, pid: int, limits: Cgroup | None) -> Group | None:
        """Put a clone into a control group. Raises OSError."""
        if limits is None or self._groups is None:
            return None
        return self._groups.place(pid, limits)

    def terminal(self, ref: AttemptRef) -> int:
        """The other end of the terminal of an attempt; -1 when it has none, or an earlier launcher had that."""
        process = self._by_ref.get(ref)
        if process is None:
            return -1
        process.seen = True
        return process.terminal

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

    def adopt(self, started: Started) -> bool:
        """Adopt a process of the previous launcher; False when it has already ended."""
        try:
            pidfd = os.pidfd_open(started.pid)
        except OSError:
            return False
        process = Process(started.ref, started.slot, f"{self._attempts}/{started.below}", started.pid, pidfd)
        if self._groups is not None and started.cgroup is not None:
            process.group = self._groups.adopt(started.cgroup)
        self._add(process, started)
        if started.sandbox is not None:
            self.sandboxes.adopt(started.slot, started.pid)
        self._loop.watch(pidfd, lambda: self._adopted_ended(process))
        return True

    def start_command(
        self,
        ref: AttemptRef,
        number: int,
        command: tuple[str, ...],
        env: Mapping[str, str],
        limits: Limits,
        stdio: Sequence[int],
        *,
        sandbox: Sandbox | None = None,
        inherits: bool = False,
        tty: bool = False,
    ) -> bool:
        """Start a command in an attempt's directory; it and its group are killed when the attempt ends.

        Returns whether it is its program already.

        Args:
            number: names it in `signal_command` and at its end.
            env: its environment; with ``inherits`` on top of that of the attempt's process.
            stdio: its standard input, output and error, or with ``tty`` its terminal.

        Raises NotRunnable, OSError.
        """
        process = self._by_ref.get(ref)
        if process is None or process.exit is not None:
            raise ProcessLookupError("the task has ended")
        workdir = process.workdir
        if inherits:
            env = {**tree.environment(process.pid), "IRIS_WORKDIR": workdir, **env}
        if tty and sandbox is not None and sandbox.uid is not None:
            os.fchown(stdio[0], sandbox.uid, -1)
        held, user = self.sandboxes.prepare(process.slot, sandbox, workdir, beside=True), user_of(sandbox)
        waits = held is None and user is None and not (limits or tty)
        work = partial(begin, command, env, workdir, stdio, limits, tty=tty, user=user, waits=waits)
        child, group = self._in_group(
            process.group.limits if process.group is not None else None,
            lambda: self.sandboxes.start(held, work, client=process.client),
        )
        process.commands[child.pid] = self._commands[child.pid] = _CommandGroup(number, process, child.pid, group)
        if child.report >= 0:
            self._starts.add(child, command[0], partial(self._observer.on_command_begun, number))
        return child.report < 0

    def close(self) -> None:
        """Nothing runs: remove what was made for attempts."""
        self.sandboxes.close()
        if self._groups is not None:
            self._groups.close()

    def signal_command(self, number: int, signal_number: int) -> None:
        for pid, command in self._commands.items():
            if command.number == number:
                self._signal(pid, signal_number)

    def kill_commands(self) -> None:
        """Kill the commands of a worker that is gone."""
        for pid in self._commands:
            self._signal(pid, signal.SIGKILL)

    def _signal(self, pid: int, number: int) -> bool:
        """Signal the group of a process, or the process itself, which may not lead it yet; False when it is empty."""
        if pid in self._starts:
            os.kill(pid, number)
        if signal_group(pid, number) or pid in self._starts:
            return True
        process = self._by_pid.get(pid)
        if process is None or not process.cloned or process.exit is not None:
            return False
        os.kill(pid, number)  # it has not made its session yet
        return True

    def _command_ended(self, pid: int, status: int) -> None:
        """The first process of a command has ended: kill the rest, for which the end of the attempt waits."""
        command, error = self._commands.pop(pid), self._starts.settle(pid)
        self._dying.append(command)
        if isinstance(error, NeedsShell):
            self._observer.on_command_script(command.number)
            return
        exit_ = to_refusal(error) if error is not None else to_exit(status, 0)
        if command.process.exit is not None and exit_.signal == signal.SIGKILL:
            exit_ = structs.replace(exit_, error="its task has ended")
        self._observer.on_command_exit(command.number, exit_)
        if isinstance(error, Stopped) and command.process.exit is None:
            command.process.error = NotRunnable(_KILLED, STOPS_OTHERS)
            self._kill(command.process)

    def _add(self, process: Process, started: Started) -> None:
        process.stop_signal, process.client = started.stop_signal, started.container is not None
        process.notice_signal = signal_number(started.notice.signal) if started.notice is not None else 0
        self._by_pid[process.pid] = self._by_ref[process.ref] = self._by_slot[process.slot] = process

    def give_notice(self, ref: AttemptRef) -> None:
        """Send the whole group the signal of a notice."""
        process = self._by_ref.get(ref)
        if process is not None and process.notice_signal:
            self._signal(process.pid, process.notice_signal)

    def stop(self, ref: AttemptRef, grace_ms: int, settle_ms: int, *, noticed: bool = False) -> None:
        """Send the whole group its stop signal after ``settle_ms``, and KILL ``grace_ms`` later unless it has ended.

        ``noticed``: without that signal.
        """
        process = self._by_ref.get(ref)
        if process is None or process.terminated:
            return
        process.stop_signal = 0 if noticed else process.stop_signal
        if process.killer is not None:
            process.killer.cancel()
        if settle_ms > 0:
            process.killer = self._loop.call_later(settle_ms / 1000, self._terminate, process, grace_ms)
        else:
            self._terminate(process, grace_ms)

    def _terminate(self, process: Process, grace_ms: int) -> None:
        process.terminated = True
        if number := process.stop_signal if grace_ms > 0 else signal.SIGKILL:
            self._signal(process.pid, number)
        process.killer = self._loop.call_later(grace_ms / 1000, self._kill, process)

    def kill_all(self) -> None:
        """Kill all attempts without a grace period."""
        for process in self._by_ref.values():
            process.terminated = True
            self._kill(process)

    def _sample(self) -> None:
        """Record the memory use of all attempts, at intervals."""
        for process in self._by_ref.values():
            if process.group is not None:
                continue
            process.sampled = max(process.sampled, tree.peak_rss_bytes(process.pid))
        self._loop.call_later(_SAMPLE_S, self._sample)

    def measure(self) -> tuple[LiveUsage, ...]:
        """What running attempts with control groups use; of very many some, in turns, so that nothing waits for it."""
        running = [process for process in self._by_ref.values() if process.group is not None and process.exit is None]
        begin = self._measured % max(1, len(running))
        turn = (running[begin:] + running[:begin])[:_MEASURED]
        self._measured = begin + len(turn)
        return tuple(self._live(process, process.group) for process in turn if process.group is not None)

    def _live(self, process: Process, group: Group) -> LiveUsage:
        assert self._groups is not None
        used = self._groups.usage(group, now=True)
        usage = TaskUsage(used.cpu_us // 1000, *(used.io or (0, 0)))
        return LiveUsage(process.ref, usage, used.rss_bytes, 0 if process.before is not None else used.peak_bytes)

    def _of_group(self, process: Process, exit_: Exit, usage: GroupUsage) -> Exit:
        """An exit with what the control group has counted; its peak may be of an earlier call."""
        exit_ = with_usage(exit_, usage)
        has_peak = process.before is None or usage.limit_bytes
        return exit_ if has_peak else structs.replace(exit_, peak_rss_bytes=0)

    def reap(self) -> None:
        """Collect the ends of children and kill the rest of their groups. Called on SIGCHLD."""
        ended = []
        while (found := wait_any()) is not None:
            pid, status, usage = found
            if pid in self._commands:
                self._command_ended(pid, status)
                continue
            process = self._by_pid.get(pid)
            if process is None or process.pidfd >= 0:
                self.spares.reaped(pid)
                self.on_other_child(pid, status, self._starts.settle(pid))
                self.sandboxes.pids.discard(pid)
                self._unowned.pop(pid, None)
                continue
            process.error = self._starts.settle(pid) or process.error
            if not process.begun:
                self.on_last_words(process)
            process.exit = to_exit(status, self._peak(process, usage.ru_maxrss * 1024), usage)
            if process.before is not None:
                process.exit = since(process.exit, process.before)
            ended.append(process)
        if ended:
            self._sweep(ended)
        if self._lingering or self._dying:
            self._settle()

    def _peak(self, process: Process, reported: int) -> int:
        """The process' peak memory. The kernel includes what it shared with this process before its exec, so a lower
        value is unknown.
        """
        if process.cloned:  # it includes what it shared with its template
            return 0
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
        if process.group is None or self._groups is None:
            self._signal(process.pid, signal.SIGKILL)
        else:
            self._groups.kill(process.group)

    # ── descendants ─────────────────────────────────────────────────────────────────────────────────────────────

    def _sweep(self, ended: list[Process]) -> None:
        """Kill what is left of attempts whose first process has ended; attempts without remaining processes have
        ended.
        """
        self._lingering += self._settled(ended)

    def _settle(self) -> None:
        """Check attempts with remaining processes again; what cannot be killed is given up after some time."""
        self._dying = [command for command in self._dying if not self._is_gone(command)]
        self._lingering = self._settled(self._lingering)
        if (self._lingering or self._dying) and not self._watching:
            self._watching = True
            self._loop.call_later(_LINGER_S, self._watch)

    def _settled(self, ended: list[Process]) -> list[Process]:
        """Report the attempts that have ended, and return the others.

        Descendants outside the group are searched after the group is empty, because then it cannot create new ones. A
        sandbox is empty with the control group, unless a command that has ended left something in its own.
        """
        empty = [process for process in ended if self._clear(process)]
        for process in ended:
            if process.group is not None and process not in empty:
                continue
            known = process.group is not None and not process.commands and process.rounds <= _GIVE_UP_ROUNDS
            if init := self.sandboxes.left(process.slot, empty=known):
                process.strays[init] = tree.started_ticks(init)
        if ungrouped := [process for process in ended if process.group is None]:
            self._look_for_strays(ungrouped)
        for process in empty:
            if not process.strays or process.rounds > _GIVE_UP_ROUNDS:
                self._over(process)
        return [process for process in ended if self._by_ref.get(process.ref) is process]

    def _clear(self, process: Process) -> bool:
        """Kill the remaining processes; True when none is left, or only unreaped zombies of others."""
        process.rounds += 1
        if process.group is not None and self._groups is not None:
            left = self._groups.kill(process.group)
        else:
            left = signal_group(process.pid, signal.SIGKILL)
        for command in process.commands.values():
            left |= self._kill_command(command)
        process.strays = {
            pid: ticks for pid, ticks in process.strays.items() if signal_process(pid, ticks, signal.SIGKILL)
        }
        if not left and not process.strays:
            return True
        if process.rounds > _GIVE_UP_ROUNDS or (process.group is None and process.rounds > 1 and is_bare(process)):
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
        for pid in self._unknown_children():
            owner = self._owner(pid)
            if owner is None and self._nobodys(pid, gone):
                owner = ended[0]
            if owner is not None:
                owner.strays[pid] = tree.started_ticks(pid)

    def _unknown_children(self) -> list[int]:
        """Children of this process that it did not start, but not clones that were not told to go."""
        known = self._by_pid.keys() | self._commands.keys() | self.sandboxes.pids
        found = (pid for pid in self._children.pids() - known if pid not in self.spares)
        return [pid for pid in found if tree.session_of(pid) not in self.spares]

    def _strays_in(self, request: EmptySlot) -> list[int]:
        """What spare processes have left in a slot that has no attempt, as far as it has a sandbox or a user."""
        found = [self.sandboxes.left(request.slot, empty=False)]
        if request.uid is not None:
            found += [pid for pid in self._unknown_children() if tree.user_of(pid) == request.uid]
        return list(filter(None, found))

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
        if process.terminal >= 0:
            self._close_terminal(process)
        assert process.exit is not None
        if process.group is not None and self._groups is not None:
            process.group.spoilt |= process.rounds > _GIVE_UP_ROUNDS
            process.exit = self._of_group(process, process.exit, self._groups.end(process.group))
        if isinstance(process.error, NeedsShell) and not process.terminated:
            self._observer.on_script(process.ref)
        elif not process.begun and not process.terminated:
            self._observer.on_never_begun(process.ref)
        elif process.error is not None:
            self._observer.on_exit(process.ref, to_refusal(process.error))
        else:
            self._observer.on_exit(process.ref, process.exit)

    def _close_terminal(self, process: Process) -> None:
        """What was shown and no worker could see is output of the attempt."""
        if not process.seen:
            below = process.workdir.removeprefix(f"{self._attempts}/")
            with contextlib.suppress(OSError), self.output_of(below) as (_, out, _):
                keep_shown(process.terminal, out)
        os.close(process.terminal)

    def _kill_command(self, command: _CommandGroup) -> bool:
        """Kill what is left of a command; False when that is nothing."""
        if command.group is not None and self._groups is not None:
            return self._groups.kill(command.group)
        return self._signal(command.pid, signal.SIGKILL)

    def _is_gone(self, command: _CommandGroup) -> bool:
        """Whether nothing is left of a command that has ended; then its control group is given back."""
        command.rounds += 1
        if self._kill_command(command) and (command.group is not None or command.rounds <= _GIVE_UP_ROUNDS):
            return False
        command.process.commands.pop(command.pid, None)
        if command.group is not None and self._groups is not None:
            self._groups.give(command.group)
        return True


def is_bare(process: Process) -> bool:
    """Whether only zombies are left that other processes must reap."""
    groups = (process.pid, *process.commands)
    return not any(map(tree.group_lives, groups)) and not any(map(tree.is_alive, process.strays))
