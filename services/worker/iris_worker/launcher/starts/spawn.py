"""Starts a command as a process: looked up as in a shell, in its own session, with no inherited
descriptors.

A process of a task's user or sandbox can be stopped by that task as soon as it is there. So it is
forked, takes its user itself, and reports on a pipe why it could not become its program; nobody
waits for it (`begin`). What no task can signal costs less: this process has its user for a moment,
and waits in vfork until it is its program (`spawn`, and `begin` where that is allowed).

The function of CPython that does both is that of `subprocess` and `multiprocessing`, whose `Popen`
would wait for the report. Every descriptor of Python is closed on exec; `close_inherited` sees to
those the worker was started with. Out of scope: where output goes, and what is done about a process
    once it runs.
Source: docs/design/isolation.md#starting-without-being-signalled.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import errno
import fcntl
import os
import signal
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from iris_worker.launcher.cgroups.limits import Limits, hold
from iris_worker.launcher.kernel import credentials

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Which starting a process restores."""
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_AS_SCRIPT = ("/bin/sh", "-c", 'exec "$0" "$@"')
_REPORT_BYTES = 4096
_CANDIDATES_IN_PATH = frozenset({errno.EACCES, errno.ENOENT, errno.ENOTDIR})
_USERS_FAULT = {
    errno.ENOENT: (
        NOT_FOUND,
        "no such file, or its interpreter is missing: a first line (#!) that ends in CR LF names one "
        "with a CR",
    ),
    errno.ENOTDIR: (NOT_FOUND, "command not found"),
    errno.EACCES: (NOT_EXECUTABLE, "permission denied"),
    errno.EISDIR: (NOT_EXECUTABLE, "is a directory"),
    errno.ELOOP: (NOT_EXECUTABLE, "too many symbolic links"),
    errno.ENAMETOOLONG: (NOT_EXECUTABLE, "name too long"),
    errno.E2BIG: (NOT_EXECUTABLE, "arguments and environment are too long"),
    errno.ENOEXEC: (NOT_EXECUTABLE, "not an executable file"),
    errno.ELIBBAD: (NOT_EXECUTABLE, "its interpreter is not an executable file"),
    errno.EAGAIN: (NOT_EXECUTABLE, "its user has too many processes"),
    errno.EINVAL: (NOT_EXECUTABLE, "not an executable file"),
    errno.ETXTBSY: (NOT_EXECUTABLE, "file is being written"),
}


class NotRunnable(Exception):
    """The command cannot be run, which is its owner's mistake; ``code`` is the exit code of a
    shell.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class NeedsShell(NotRunnable):
    """The file of the command has no ``#!`` line: shells run it as a script (`as_script`)."""


class NotBegun(OSError):
    """A process did not become its program, which may be a fault of the host, and of the program or
    its owner.
    """


class User(NamedTuple):
    """Whose process it is to be."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


class Child(NamedTuple):
    """A process that was started.

    ``report``: a descriptor that ends when it has become its program, or says why it cannot
    (`failure`); -1: it has. ``of_host``: the program is looked up as for any task of this host.
    """

    pid: int
    report: int = -1
    of_host: bool = False


def spawn(
    command: tuple[str, ...], env: Mapping[str, str], workdir: str, stdio: Sequence[int]
) -> int:
    """Start ``command`` as leader of a new session and return its process id. No task may be able
    to signal it.

    Raises NotRunnable when no shell could run it either, OSError when the host cannot start
    processes now.
    """
    try:
        return begin(command, env, workdir, stdio, waits=True).pid
    except NeedsShell:
        return begin(as_script(command), env, workdir, stdio, waits=True).pid


def begin(
    command: tuple[str, ...],
    env: Mapping[str, str],
    workdir: str,
    stdio: Sequence[int],
    limits: Limits = (),
    *,
    tty: bool = False,
    user: User | None = None,
    waits: bool = False,
) -> Child:
    """Start ``command`` as leader of a new session.

    Args:
        limits: set by itself, as its user: in a container not even root may limit others.
        stdio: descriptors that become its standard input, output and error; with ``tty`` one, of a
            terminal, which becomes all three, and the one that controls the session.
        waits: return when it has become its program. No task may be able to signal it before, nor
            this process, which has its user meanwhile.

    Raises NeedsShell, NotRunnable, OSError, as far as that is known.
    """
    read_end, write_end = pipe = os.pipe2(os.O_CLOEXEC)
    try:
        with _as(user) if waits and user is not None else contextlib.nullcontext():
            child_user = None if waits else user
            steps = _last_steps(limits, tty)
            pid = _fork(
                command,
                env,
                workdir,
                tuple(stdio) * 3 if tty else stdio,
                report=pipe,
                last_steps=steps,
                user=child_user,
                vfork=waits,
            )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    path = env.get("PATH", _DEFAULT_PATH)
    of_host = "/" not in command[0] and path == os.environ.get("PATH", _DEFAULT_PATH)
    if not waits:
        return Child(pid, read_end, of_host)
    data = os.read(read_end, _REPORT_BYTES)
    os.close(read_end)
    if data:
        os.waitpid(pid, 0)
        raise failure(data, command[0], of_host=of_host)
    return Child(pid)


def _fork(
    command: tuple[str, ...],
    env: Mapping[str, str],
    workdir: str,
    stdio: Sequence[int],
    report: tuple[int, int],
    last_steps: Callable[[], None] | None,
    user: User | None,
    vfork: bool,
) -> int:
    """Raises NotRunnable, OSError."""
    programs = [
        os.fsencode(path) for path in candidates(command[0], env.get("PATH", _DEFAULT_PATH))
    ]
    uid, gid, groups = (
        (user.uid, user.gid, list(user.groups)) if user is not None else (None, None, None)
    )
    masked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        arguments: tuple[Any, ...] = (
            *([os.fsencode(word) for word in command], programs, False, (), os.fsencode(workdir)),
            [os.fsencode(pair) for pair in _pairs(env)],
            *(stdio[0], -1, -1, stdio[1], -1, stdio[2], *report),
            *(True, True, -1),  # with the default action of signals, in a session of its own
            *(gid, groups, uid, -1, last_steps, vfork),
        )
        return _posixsubprocess.fork_exec(*arguments)
    except ValueError as error:  # a NUL in an argument, '=' in a variable's name
        raise NotRunnable(NOT_EXECUTABLE, f"{command[0][:200]}: {error}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


@contextlib.contextmanager
def _as(user: User) -> Iterator[None]:
    """Have a user for one vfork; exec drops the way back. Only this thread has it. Who cannot come
    back ends.
    """
    groups = tuple(os.getgroups())
    try:
        if user.groups != groups:
            credentials.set_further_groups(user.groups)
        credentials.set_groups(user.gid, user.gid, 0)
        credentials.set_users(user.uid, user.uid, 0)
        yield
    finally:
        must(lambda: _be_root(groups, changed=user.groups != groups))


def _be_root(groups: tuple[int, ...], *, changed: bool) -> None:
    credentials.set_users(0, 0, 0)
    credentials.set_groups(0, 0, 0)
    if changed:
        credentials.set_further_groups(groups)


def must(undo: Callable[[], None]) -> None:
    """Return, or end: nothing may go on where a task is."""
    try:
        undo()
    except OSError as error:
        raise SystemExit(f"iris launcher: cannot return from a sandbox: {error}") from error


def _pairs(env: Mapping[str, str]) -> list[str]:
    if any("=" in name or not name for name in env):
        raise ValueError("illegal environment variable name")
    return [f"{name}={value}" for name, value in env.items()]


def _last_steps(limits: Limits, tty: bool) -> Callable[[], None] | None:
    """What a process does before it becomes its program, and C does not do for it; it costs a start
    much.
    """
    if not limits and not tty:
        return None

    def last_steps() -> None:
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        hold(limits)

    return last_steps


def as_script(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command that has a shell run a file without a ``#!`` line, as shells do."""
    return (*_AS_SCRIPT, *command)


def failure(report: bytes, name: str, *, of_host: bool = False) -> Exception:
    """Why a process could not become its program: NeedsShell, NotRunnable, or OSError.

    ``of_host``: the program is this host's. The kernel says EIO of a file that is cut off too.
    """
    _, number, words = report.split(b":", 2)
    error = OSError(int(number, 16), os.strerror(int(number, 16)))
    if words or not error.errno:  # it has not come to the program
        return error if error.errno else OSError(words.decode(errors="replace"))
    if error.errno == errno.ENOEXEC:
        return NeedsShell(NOT_EXECUTABLE, f"{name[:200]}: not an executable file")
    if "/" not in name and error.errno in _CANDIDATES_IN_PATH:
        return not_found(name)
    known = _USERS_FAULT.get(error.errno)
    if known:
        return NotRunnable(known[0], f"{name[:200]}: {known[1]}")
    return (
        OSError(*error.args, name)
        if of_host and error.errno == errno.EIO
        else NotBegun(*error.args)
    )


def not_found(name: str) -> NotRunnable:
    return NotRunnable(NOT_FOUND, f"{name[:200]}: command not found")


def candidates(name: str, path: str) -> tuple[str, ...]:
    """The programs that a shell would try, in order, in the task's environment; relative to the
    task's directory.

    Raises NotRunnable.
    """
    if not name or "\0" in name + path:
        raise not_found(name)
    return (
        (name,)
        if "/" in name
        else tuple(f"{directory or '.'}/{name}" for directory in path.split(":"))
    )


def handle_ignored() -> None:
    """Handle, by doing nothing, the signals that whoever started this process has it ignore, as
    shells do in the
    background: what is started from here would ignore them too, while a handler ends with exec.
    """
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN and number not in _IGNORED_BY_PYTHON:
            signal.signal(number, lambda *_: None)


def close_inherited() -> None:
    """Set close-on-exec for all descriptors this process inherited beyond standard error."""
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2:
            with contextlib.suppress(
                OSError
            ):  # the descriptor of the listing itself is closed by now
                os.set_inheritable(int(entry), False)
