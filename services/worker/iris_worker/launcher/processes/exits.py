"""Collects the ends of processes, and says what one, or the failure of a start, is as an exit."""

from __future__ import annotations

import os
import resource

from msgspec import structs

from iris_core.messages.state_worker import TaskUsage
from iris_worker.launcher.cgroups.files import GroupUsage
from iris_worker.launcher.records.records import Exit
from iris_worker.launcher.starts.spawn import NotBegun, NotRunnable

_BLOCK = 512


def to_exit(status: int, peak_rss_bytes: int, usage: resource.struct_rusage | None = None) -> Exit:
    """The exit for a wait status, and for what the process and the children that it waited for have
    used.
    """
    used = None
    if usage is not None:
        cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
        used = TaskUsage(cpu_ms, usage.ru_inblock * _BLOCK, usage.ru_oublock * _BLOCK)
    if os.WIFSIGNALED(status):
        return Exit(None, os.WTERMSIG(status), peak_rss_bytes, usage=used)
    return Exit(os.WEXITSTATUS(status), None, peak_rss_bytes, usage=used)


def to_refusal(error: Exception) -> Exit:
    """The exit for what kept a process from its program."""
    of_host = not isinstance(error, NotRunnable | NotBegun)
    return Exit(
        error.code if isinstance(error, NotRunnable) else None, error=str(error), of_host=of_host
    )


def with_usage(exit_: Exit, group: GroupUsage) -> Exit:
    """An exit with what all processes of its control group have used."""
    before = exit_.usage or TaskUsage()
    io = group.io or (before.read_bytes, before.written_bytes)
    used = TaskUsage(group.cpu_us // 1000, *io, group.limit_bytes)
    alone = (
        0 if group.limit_bytes else exit_.peak_rss_bytes
    )  # it includes libraries, which others are charged for
    return structs.replace(exit_, peak_rss_bytes=max(alone, group.peak_bytes), usage=used)


def since(exit_: Exit, before: TaskUsage) -> Exit:
    """An exit with what its process has used since it had used ``before``."""
    used = exit_.usage or TaskUsage()
    cpu_ms = max(0, used.cpu_ms - before.cpu_ms)
    io = (
        max(0, used.read_bytes - before.read_bytes),
        max(0, used.written_bytes - before.written_bytes),
    )
    return structs.replace(exit_, usage=TaskUsage(cpu_ms, *io))


def is_child(pid: int) -> bool:
    """Whether it is a child of this process that was not collected."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return False
    return True


def wait_any() -> tuple[int, int, resource.struct_rusage] | None:
    """One child that has ended, None when none has."""
    try:
        found = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return found if found[0] else None
