"""Processes of Python modules without the time of their imports: forked from a process that has imported them.

`run` and `start` do what ``python -m MODULE WORDS`` does, with environment, directory and descriptors of their own.
Tests of the start itself, or of what is inherited, use `subprocess`. There is one server for each process of pytest; it
has one thread, and ends with that process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import pkgutil
import runpy
import signal
import socket
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

PRELOADED = {
    "iris.cli": ("iris.cli.commands", "iris.cluster.teardown", "iris.doctor.collect", "iris_nats.nats_config"),
    "iris_state.admin": ("iris_state.admin",),
    "iris_worker": ("iris_worker.service",),
}
"""Module → what is imported when it is run for the first time; of a package, all its modules."""
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
        with contextlib.suppress(BlockingIOError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises TimeoutError."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            self.returncode = int(self._answers.recv(_ANSWER_BYTES))
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # its server tells in a moment that it has ended
                os.kill(self.pid, number)


def start(
    module: str,
    words: Sequence[str],
    env: Mapping[str, str],
    stdout: int = 1,
    stderr: int = 2,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
) -> Fork:
    """Start a module; it reads nothing, and the files it writes to are descriptors. ``pass_fds`` get other numbers."""
    request = json.dumps({"module": module, "words": words, "env": dict(env), "cwd": str(cwd or Path.cwd())})
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_server(), [request.encode()], [theirs.fileno(), stdout, stderr, *pass_fds])
    return Fork(mine)


def run(
    module: str, words: Sequence[str], env: Mapping[str, str], timeout: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a module to its end, and capture what it writes. Raises TimeoutExpired."""
    with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
        process = start(module, words, env, out.fileno(), err.fileno(), cwd=cwd)
        try:
            process.wait(timeout)
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise subprocess.TimeoutExpired([module, *words], timeout) from None
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


# ── the server ──────────────────────────────────────────────────────────────────────────────────────────────────


def serve(requests: socket.socket) -> None:
    """Fork a process for each request until nobody can send one."""
    running: dict[int, socket.socket] = {}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: reap(running))
    while True:
        body, fds, _, _ = socket.recv_fds(requests, _REQUEST_BYTES, _MOST_FDS)
        if not body:
            return
        request = json.loads(body)
        preload(PRELOADED.get(request["module"], ()))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        if not (pid := os.fork()):
            become(request, fds, [requests, *running.values()])
        answers = running[pid] = socket.socket(fileno=fds[0])
        for fd in fds[1:]:
            os.close(fd)
        with contextlib.suppress(OSError):  # nobody waits for it any more
            answers.send(b"%d" % pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def reap(running: dict[int, socket.socket]) -> None:
    """Tell how the processes that have ended did."""
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:  # the last one, of which the call that this one interrupts is about to tell
            return
        if not pid:
            return
        with running.pop(pid) as answers, contextlib.suppress(OSError):
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


def become(request: dict[str, Any], fds: Sequence[int], not_its: Sequence[socket.socket]) -> None:
    """Be the process of a request; does not return."""
    for each in not_its:
        each.close()
    _, stdout, stderr, *passed = fds
    os.close(fds[0])
    for descriptor, number in ((stdout, 1), (stderr, 2)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = [request["module"], *request["words"]]
    os._exit(code_of(request["module"]))


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


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
