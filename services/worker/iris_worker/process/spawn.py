"""Starts a command as a process: looked up as in a shell, in its own session, with no inherited descriptors.

`os.posix_spawn` costs half of `subprocess` and a tenth of a fork of this process; it cannot change directory, so the
worker does that for it, which is safe because one thread starts all processes. Every descriptor of Python is closed
on exec; `close_inherited` sees to those the worker was started with.
Out of scope: where output goes, and what is done about a process once it runs.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from iris_worker.process.limits import Limits, hold

FileActions = list[tuple[Any, ...]]
"""As `os.posix_spawn` takes them."""

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_SHELL = "/bin/sh"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)
_USERS_FAULT = {
    errno.ENOENT: (NOT_FOUND, "command not found"),
    errno.ENOTDIR: (NOT_FOUND, "command not found"),
    errno.EACCES: (NOT_EXECUTABLE, "permission denied"),
    errno.EISDIR: (NOT_EXECUTABLE, "is a directory"),
    errno.ELOOP: (NOT_EXECUTABLE, "too many symbolic links"),
    errno.ENAMETOOLONG: (NOT_EXECUTABLE, "name too long"),
    errno.E2BIG: (NOT_EXECUTABLE, "arguments and environment are too long"),
    errno.ENOEXEC: (NOT_EXECUTABLE, "not an executable file"),
    errno.EINVAL: (NOT_EXECUTABLE, "not an executable file"),
    errno.ETXTBSY: (NOT_EXECUTABLE, "file is being written"),
}


class NotRunnable(Exception):
    """The command cannot be run, which is its owner's mistake; ``code`` is the exit code of a shell."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def spawn(
    command: tuple[str, ...],
    env: Mapping[str, str],
    workdir: str,
    stdio: Sequence[int],
    limits: Limits = (),
    *,
    tty: bool = False,
) -> int:
    """Start ``command`` as leader of a new session and return its process id.

    Args:
        limits: set as its user, a moment later: in a container not even root may limit others.
        stdio: descriptors that become its standard input, output and error; with ``tty`` one, of a terminal, which
            becomes all three, and the one that controls the session.

    Raises NotRunnable when no shell could run it either, OSError when the host cannot start processes now.
    """
    os.chdir(workdir)
    actions = _terminal(stdio[0]) if tty else [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(stdio)]
    program = find(command[0], env.get("PATH", _DEFAULT_PATH))
    try:
        pid = _start(program, command, env, actions)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _explain(error, command[0]) from error
        pid = _as_script(program, command, env, actions)
    except ValueError as error:  # a NUL in an argument, '=' in a variable's name
        raise NotRunnable(NOT_EXECUTABLE, f"{command[0][:200]}: {error}") from error
    hold(pid, limits)
    return pid


def _terminal(fd: int) -> FileActions:
    """Open a terminal once more: the first one that the leader of a session opens controls that session."""
    opened: FileActions = [(os.POSIX_SPAWN_OPEN, 0, f"/proc/self/fd/{fd}", os.O_RDWR, 0)]
    return [*opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]


def _as_script(program: str, command: tuple[str, ...], env: Mapping[str, str], actions: FileActions) -> int:
    """Run a file without a ``#!`` line as a shell script, as shells do."""
    try:
        return _start(_SHELL, (_SHELL, program, *command[1:]), env, actions)
    except OSError as error:
        raise _explain(error, command[0]) from error


def _start(program: str, command: tuple[str, ...], env: Mapping[str, str], actions: FileActions) -> int:
    return os.posix_spawn(
        program,
        command,
        env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_IGNORED_BY_PYTHON,
    )


def _explain(error: OSError, name: str) -> Exception:
    known = _USERS_FAULT.get(error.errno or 0)
    return NotRunnable(known[0], f"{name[:200]}: {known[1]}") if known else error


def find(name: str, path: str) -> str:
    """The program that a shell would run in the task's environment; relative to the present directory.

    Raises NotRunnable.
    """
    if "/" in name:
        return name
    found = _search(name, path)
    if found is None:
        raise NotRunnable(NOT_FOUND, f"{name[:200]}: command not found")
    return found


@lru_cache(maxsize=1024)
def _cached(name: str, path: str) -> str | None:
    """A cached search of absolute directories; only hits are cached, see `_search`."""
    for directory in path.split(":"):
        program = f"{directory or '.'}/{name}"
        if os.access(program, os.X_OK) and not os.path.isdir(program):
            return program
    return None


def _search(name: str, path: str) -> str | None:
    if not name or "\0" in name + path:
        return None
    found = _cached(name, path)
    if found is None or not found.startswith("/") or not os.access(found, os.X_OK):
        _cached.cache_clear()
        return _cached(name, path)
    return found


def close_inherited() -> None:
    """Set close-on-exec for all descriptors this process inherited beyond standard error."""
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
                os.set_inheritable(int(entry), False)
