"""Processes of Python modules without the time of their imports: forked from a process that has
imported them.

`run` and `start` do what ``python -m MODULE WORDS`` does, with environment, directory and
descriptors of their own. `Forking` does so for what such a process starts itself. Tests of the
start, or of what is inherited, use `subprocess`. There is one server for each process of pytest; it
has one thread, and ends with that process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import inspect
import json
import mmap
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from iris_service.child import end_with_parent

SERVICES = ("state", "scheduler", "gateway", "proxy", "worker")
PRELOADED = {
    "iris.cli": (
        "iris.cli.commands",
        "iris.cli.cluster.teardown",
        "iris.doctor.collect",
        "iris_nats.nats_config",
    ),
    "iris_state.admin": ("iris_state.admin",),
    "iris.cluster": ("iris.cluster",),
    **{f"iris_{service}": (f"iris_{service}.service",) for service in SERVICES},
}
"""Module → what is imported when it is run for the first time; of a package, all its modules."""
CLUSTER = ("iris.cluster", *(f"iris_{service}" for service in SERVICES))
"""The processes of a local cluster."""
_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_LIBC = ctypes.CDLL(None)
_LIBC.sbrk.restype = ctypes.c_void_p
_shown: list[ctypes.c_char] = []
_REQUEST_BYTES = 1 << 20
_ANSWER_BYTES = 32
_MOST_FDS = 16


class Fork:
    """A process that was started, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid = int(answers.recv(_ANSWER_BYTES))
        self.returncode: int | None = None
        """Negative: the signal that ended it."""

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutExpired."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = int(self._answers.recv(_ANSWER_BYTES))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(
                ProcessLookupError
            ):  # its server tells in a moment that it has ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    words: Sequence[str],
    env: Mapping[str, str],
    stdout: int = 1,
    stderr: int = 2,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    *,
    forks: bool = False,
) -> Fork:
    """Start a module; it reads nothing, and the files it writes to are descriptors. It ends when
    this process does.

    ``pass_fds`` get other numbers. ``forks``: it and what it starts fork the processes of a local
    cluster.
    """
    request = json.dumps(
        {
            "module": module,
            "words": words,
            "env": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "forks": forks,
        }
    )
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_server(), [request.encode()], [theirs.fileno(), stdout, stderr, *pass_fds])
    return Fork(mine)


def run(
    module: str,
    words: Sequence[str],
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    *,
    forks: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, and capture what it writes. Raises TimeoutExpired."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = start(module, words, env, out.fileno(), err.fileno(), cwd=cwd, forks=forks)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess([module, *words], process.wait(), out.read(), err.read())


@cache
def _server() -> socket.socket:
    """Where requests are sent; its process is started when it is needed first."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    with theirs:
        words = [sys.executable, "-P", __file__, str(theirs.fileno())]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])

    def end() -> None:
        mine.close()
        process.wait()

    atexit.register(end)
    return mine


# ── the server ────────────────────────────────────────────────────────────────────────────────────


Running = dict[int, tuple[int, socket.socket]]
"""Processes that were forked: of each, by its pidfd, its id, and who is told of its end."""


def serve(requests: socket.socket) -> None:
    """Fork a process for each request until nobody can send one, and tell how each has ended.

    No signal tells of an end: one that comes as a system call begins would be handled after the
        next request.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: Running = {}
    readable = select.poll()
    readable.register(requests, select.POLLIN)
    while True:
        for fd, _ in readable.poll():
            if fd in running:
                readable.unregister(fd)
                tell(fd, *running.pop(fd))
            elif (pidfd := fork(requests, running)) is not None:
                readable.register(pidfd, select.POLLIN)
            else:
                return


def fork(requests: socket.socket, running: Running) -> int | None:
    """Fork the process of the next request; its pidfd, or None when there is no request."""
    body, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, _MOST_FDS)
    if not body:
        return None
    request = json.loads(body)
    for module in (request["module"], *(CLUSTER if request["forks"] else ())):
        preload(PRELOADED.get(module, ()))
    begin = end_with_parent()
    if not (pid := os.fork()):
        begin()
        become(request, fds, requests, running)
    answers = socket.socket(fileno=fds[0])
    for fd in fds[1:]:
        os.close(fd)
    with contextlib.suppress(OSError):  # nobody waits for it any more
        answers.send(b"%d" % pid)
    pidfd = os.pidfd_open(pid)
    running[pidfd] = (pid, answers)
    return pidfd


def tell(pidfd: int, pid: int, answers: socket.socket) -> None:
    """Tell how a process has ended."""
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with answers, contextlib.suppress(OSError):
        answers.send(b"%d" % os.waitstatus_to_exitcode(status))


@cache
def preload(names: Sequence[str]) -> None:
    for name in names:
        module = import_module(name)
        for each in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            if not each.name.endswith(".__main__"):
                import_module(each.name)
    gc.collect()
    gc.freeze()  # processes share what they do not change


def become(
    request: dict[str, Any], fds: Sequence[int], requests: socket.socket, running: Running
) -> None:
    """Be the process of a request; does not return."""
    requests.close()
    for pidfd, (_, answers) in running.items():
        os.close(pidfd)
        answers.close()
    _, stdout, stderr, *passed = fds
    os.close(fds[0])
    for descriptor, number in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    os.chdir(request["cwd"])
    if request["forks"]:
        subprocess.Popen = Forking  # type: ignore[misc]
    handle_no_signals()
    be(request["module"], request["words"], request["env"])


def handle_no_signals() -> None:
    """Handle signals as a new interpreter."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(
                number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            )


def be(module: str, words: Sequence[str], env: Mapping[str, str]) -> None:
    """Be the process of a module; does not return."""
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *words]
    os._exit(code_of(module))


def code_of(module: str) -> int:
    """Run a module as the interpreter does, to its exit code."""
    code: object = None
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as an interpreter
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        sys.stderr.write(code + "\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0) & 0xFF


class Forking(subprocess.Popen[bytes]):
    """Forks the processes of `CLUSTER`, and starts other programs.

    A forked process is in `/proc` as one that was started: its command line, environment, parent,
    group and descriptors are the same. Where the kernel does not allow that, it is started.
    """

    def _execute_child(self, *given: Any) -> None:
        named = _GIVEN.bind(self, *given).arguments
        if module_of(named["args"]) not in CLUSTER:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        begun, write_end = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                become_child(named, write_end)
            finally:
                os._exit(1)  # what it raises is not its parent's
        os.close(write_end)
        with open(begun, "rb") as pipe:
            pipe.read()  # it has the signal handlers, the group and the descriptors of its own
        self._child_created = True
        pipes = inspect.signature(self._close_pipe_fds).parameters  # type: ignore[attr-defined]
        self._close_pipe_fds(*(named[name] for name in pipes))  # type: ignore[attr-defined]


_GIVEN = inspect.signature(Forking.__mro__[1]._execute_child)  # type: ignore[attr-defined]


def module_of(argv: Sequence[str]) -> str:
    """That of ``python -P -m MODULE``; empty for other programs."""
    return argv[3] if list(argv[:3]) == [sys.executable, "-P", "-m"] else ""


def become_child(given: Mapping[str, Any], begun: int) -> None:
    """Be what `subprocess` was asked to start; does not return. ``begun`` is closed when it is."""
    gc.freeze()  # what the parent has open is closed below, and not when an object is collected
    atexit._clear()
    handle_no_signals()
    if given["start_new_session"]:
        os.setsid()
    elif given["process_group"] >= 0:
        os.setpgid(0, given["process_group"])
    for descriptor, number in (
        (given["p2cread"], 0),
        (given["c2pwrite"], 1),
        (given["errwrite"], 2),
    ):
        if descriptor >= 0:
            os.dup2(descriptor, number)
    for descriptor in {int(name) for name in os.listdir("/proc/self/fd")} - {
        0,
        1,
        2,
        begun,
        *given["pass_fds"],
    }:
        with contextlib.suppress(OSError):  # that of the listing
            os.close(descriptor)
    for descriptor in given["pass_fds"]:
        os.set_inheritable(descriptor, True)
    if given["preexec_fn"] is not None:
        given["preexec_fn"]()
    argv, env = given["args"], dict(os.environ if given["env"] is None else given["env"])
    if not show(argv, [f"{key}={value}" for key, value in env.items()]):
        os.execve(argv[0], argv, env)
    os.close(begun)
    be(argv[3], argv[4:], env)


def show(arguments: Sequence[str], environment: Sequence[str]) -> bool:
    """Have `/proc` show these of this process; whether it does."""
    content = [
        b"".join(os.fsencode(word) + b"\0" for word in words) for words in (arguments, environment)
    ]
    memory = mmap.mmap(-1, sum(map(len, content)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(b"".join(content))
    _shown.append(first := ctypes.c_char.from_buffer(memory))
    begin = ctypes.addressof(first)
    middle, end = begin + len(content[0]), begin + len(memory)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, stack, data = fields[23:25], fields[25], fields[42:45]
    kept = [*map(int, (*code, *data)), _LIBC.sbrk(0), int(stack)]
    layout = struct.pack(
        "=12QIi", *kept, begin, middle, middle, end, 0, 0, -1
    )  # struct prctl_mm_map, as of Linux 3.18
    return not _LIBC.prctl(
        _PR_SET_MM, _PR_SET_MM_MAP, layout, ctypes.c_ulong(len(layout)), ctypes.c_ulong(0)
    )


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
