"""What attempts use: sampled and measured while they run, and at their ends."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping

from msgspec import structs

from iris_core.messages.state_worker import LiveUsage, TaskUsage
from iris_worker.launcher.cgroups.cgroup import Cgroups
from iris_worker.launcher.cgroups.files import GroupUsage
from iris_worker.launcher.cgroups.group import Group
from iris_worker.launcher.kernel import tree
from iris_worker.launcher.kernel.event_loop import EventLoop
from iris_worker.launcher.processes.exits import since, to_exit, with_usage
from iris_worker.launcher.processes.process import KnownProcesses, Process
from iris_worker.launcher.records.records import Exit

_SAMPLE_S = 5.0
_LIMIT_S = 1.0
_MEASURED = 256


class UsageMeter:
    """That of the attempts of one launcher. ``kill``: ends an attempt."""

    def __init__(
        self,
        loop: EventLoop,
        processes: KnownProcesses,
        groups: Cgroups | None,
        kill: Callable[[Process], object],
    ) -> None:
        self._kill = kill
        self._loop = loop
        self._processes = processes
        self._groups = groups
        self._measured = 0
        self._own_peak = 0
        loop.call_later(_SAMPLE_S, self._sample)
        loop.call_later(_LIMIT_S, self._hold)

    def _sample(self) -> None:
        """Record the memory use of attempts without control groups, at intervals."""
        for process in self._processes.by_ref.values():
            if process.group is None:
                process.sampled = max(process.sampled, tree.peak_rss_bytes(process.pid))
        self._loop.call_later(_SAMPLE_S, self._sample)

    def _hold(self) -> None:
        """Kill the attempts that hold more memory than they may where no control group limits
        that.
        """
        self._loop.call_later(_LIMIT_S, self._hold)
        limited = [
            process
            for process in self._processes.by_ref.values()
            if process.started.sampled_limit_bytes and process.exit is None
        ]
        resident = tree.resident() if limited else {}
        for process in limited:
            held = held_bytes(process, resident)
            process.sampled = max(process.sampled, held)
            if held > process.started.sampled_limit_bytes:
                process.over_bytes = held
                self._kill(process)

    def measure(self) -> tuple[LiveUsage, ...]:
        """What running attempts with control groups use; of very many some, in turns, so that
        nothing waits for it.
        """
        known = self._processes.by_ref.values()
        running = [(one, one.group) for one in known if one.group is not None and one.exit is None]
        begin = self._measured % max(1, len(running))
        turn = (running[begin:] + running[:begin])[:_MEASURED]
        self._measured = begin + len(turn)
        return tuple(self._live(process, group) for process, group in turn)

    def _live(self, process: Process, group: Group) -> LiveUsage:
        assert self._groups is not None
        used = self._groups.usage(group, now=True)
        usage = TaskUsage(used.cpu_us // 1000, *(used.io or (0, 0)))
        return LiveUsage(
            process.ref, usage, used.rss_bytes, 0 if process.before is not None else used.peak_bytes
        )

    def exit_of(self, process: Process, status: int, used: resource.struct_rusage) -> Exit:
        """The exit of a process that has used this."""
        exit_ = to_exit(status, self._peak(process, used.ru_maxrss * 1024), used)
        return exit_ if process.before is None else since(exit_, process.before)

    def _peak(self, process: Process, reported: int) -> int:
        """The process' peak memory. The kernel includes what it shared with this process before its
        exec, so a lower value is unknown.
        """
        if process.cloned:  # it includes what it shared with its template
            return 0
        if reported > self._own_peak:  # it may have grown since that was read
            self._own_peak = tree.peak_rss_bytes(os.getpid())
        return reported if reported > self._own_peak else process.sampled


def held_bytes(process: Process, resident: Mapping[int, tuple[int, int]]) -> int:
    """What all processes of an attempt hold; ``resident``: as of `tree.resident`.

    What they share is counted once, which takes longer to find out, so only of those that would
    be over their limit otherwise.
    """
    members = [
        (pid, rss)
        for pid, (session, rss) in resident.items()
        if session == process.pid or pid in process.strays
    ]
    most = sum(rss for _, rss in members)
    if most <= process.started.sampled_limit_bytes:
        return most
    return sum(tree.proportional_bytes(pid) for pid, _ in members)


def of_sample(process: Process, exit_: Exit) -> Exit:
    """An exit of an attempt that was killed for what a sample found."""
    usage = exit_.usage or TaskUsage()
    return structs.replace(
        exit_,
        peak_rss_bytes=max(exit_.peak_rss_bytes, process.over_bytes),
        usage=structs.replace(usage, memory_limit_bytes=process.started.sampled_limit_bytes),
        sampled=True,
    )


def of_group(process: Process, exit_: Exit, used: GroupUsage) -> Exit:
    """An exit with what the control group has counted; its peak may be of an earlier call."""
    exit_ = with_usage(exit_, used)
    has_peak = process.before is None or used.limit_bytes
    return exit_ if has_peak else structs.replace(exit_, peak_rss_bytes=0)
