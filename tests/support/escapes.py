"""What a task may try against its host and its neighbours, and which confinement refuses what.

`docs/security.md` shows the table, and each row is tried on each kind of host. The file is also the
program of tasks: ``escapes.py try FACTS`` prints what was not refused, once the file of facts is
there; ``leave FACTS`` leaves it descriptors and keys, ``keys`` prints how many of these it finds,
and ``listen NAME`` has such a socket. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODES = (
    "root with bubblewrap",
    "root without it",
    "ordinary user with bubblewrap",
    "ordinary user without it",
)
_SANDBOXED = frozenset({MODES[0], MODES[2]})
_OTHER_USER = frozenset(MODES[:3])
_ALL = frozenset(MODES)
_CREATE_RULESET, _VERSION, _SCOPED_ABI = 444, 1, 6
_libc = ctypes.CDLL(None)
_SCOPES = _libc.syscall(_CREATE_RULESET, None, 0, _VERSION) >= _SCOPED_ABI
"""Whether this kernel's Landlock scopes sockets of the abstract namespace."""
Facts = dict[str, Any]
_TRIES_S = 1.0


@dataclass(frozen=True)
class Escape:
    """Something a task tries; the function raises OSError or AssertionError when it was refused.

    ``scoped``: the kinds of host on which a kernel refuses it whose Landlock scopes sockets.
    """

    what: str
    refused: frozenset[str]
    tried: Callable[[Facts], object]
    scoped: frozenset[str] = frozenset()

    def succeeds(self, mode: str) -> bool:
        """Whether a task on this host is not refused it."""
        return mode not in self.refused and not (_SCOPES and mode in self.scoped)

    def cell(self, mode: str) -> str:
        """What the table says of a kind of host."""
        return (
            "no"
            if mode in self.refused
            else "no with Linux 6.12"
            if mode in self.scoped
            else "**yes**"
        )


def reads_environment(facts: Facts) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{facts['worker']}/environ").read_bytes()
        return
    with open(f"/proc/{facts['worker']}/mem", "rb"):
        pass


def signals_worker(facts: Facts) -> None:
    for process in (facts["worker"], facts["launcher"]):
        os.kill(process, 0)


def signals_launcher_that_starts(facts: Facts) -> None:
    """While the launcher starts commands beside this task, as its user."""
    until = time.monotonic() + _TRIES_S
    while time.monotonic() < until:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.kill(facts["launcher"], 0)
            return
    raise PermissionError("it is never of this user")


def sees_processes(facts: Facts) -> None:
    assert Path(f"/proc/{facts['worker']}/cmdline").read_bytes()


def signals_task(facts: Facts) -> None:
    os.kill(facts["task"], 0)


def connects_to_launcher(facts: Facts) -> None:
    """It would take this connection for its next worker, and the test needs it."""
    assert os.access(f"{facts['data']}/launcher", os.W_OK)


def writes_outside(facts: Facts) -> None:
    """Where a directory of the host is, and not one of the sandbox with the same name."""
    for place, device in facts["places"].items():
        with contextlib.suppress(OSError):
            Path(place, "iris-escape").touch()
            if os.stat(place).st_dev == device:
                return
    raise PermissionError("nothing can be written")


def leaves_in_tmp(facts: Facts) -> None:
    Path("/tmp", facts["name"]).touch()
    assert os.stat("/tmp").st_dev == facts["tmp"]


def gains_privileges(facts: Facts) -> None:
    """A program with the setuid bit of root."""
    found = subprocess.run([facts["setuid"], "-u"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "0"


def has_privileges(_: Facts) -> None:
    status = Path("/proc/self/status").read_text().split()
    assert status[status.index("CapEff:") + 1].strip("0") or os.geteuid() == 0


def inherits(facts: Facts) -> None:
    """A descriptor, or a variable of the worker."""
    held = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2, *facts["left"]}
    open_ = [
        fd for fd in held if os.path.exists(f"/proc/self/fd/{fd}")
    ]  # not that of the listing itself
    assert open_ or facts["secret"] in os.environ


def fills_descriptors(_: Facts) -> None:
    """Without an end; what ends it is a limit of each process."""
    table, held = os.open("/proc/sys/fs/file-nr", os.O_RDONLY), []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    used, _, most = map(int, os.pread(table, 100, 0).split())
    for fd in held:
        os.close(fd)
    assert used > most // 2


def uses_descriptors(facts: Facts) -> None:
    """Of an earlier task, on what belongs to a later one in its place."""
    output, directory, given = facts["left"]
    if facts["printed"].encode() in os.pread(output, 100, 0):
        return
    for name, where in (("secret", directory), ("token", given)):
        with contextlib.suppress(OSError):
            os.close(os.open(name, os.O_RDONLY, dir_fd=where))
            return
    raise PermissionError("nothing was there")


def connects_to_another(facts: Facts) -> None:
    """To a socket that has a name and no file, in no namespace but that of networks."""
    with socket.socket(socket.AF_UNIX) as giver:
        giver.connect(b"\0" + facts["name"].encode())


def finds_keys(facts: Facts) -> None:
    """Which an earlier task in the place of a later one has added."""
    assert facts["keys"]


def starts_processes(facts: Facts) -> None:
    """More than a task may have; each waits for the end of a pipe."""
    waiting, held = os.pipe()
    started = []
    try:
        while len(started) <= facts["processes"]:
            pid = os.fork()
            if not pid:
                os.close(held)
                os.read(waiting, 1)
                os._exit(0)
            started.append(pid)
    finally:
        os.close(held)
        for pid in started:
            os.waitpid(pid, 0)


def read(name: str) -> Callable[[Facts], object]:
    return lambda facts: Path(facts[name]).read_bytes()


ESCAPES = (
    Escape("read the worker's environment or memory", _OTHER_USER, reads_environment, _ALL),
    Escape("read the worker's key, and publish as the worker", _OTHER_USER, read("key")),
    Escape("signal the worker or its launcher", _OTHER_USER, signals_worker),
    Escape(
        "signal the launcher while it starts what is the task's own",
        _OTHER_USER,
        signals_launcher_that_starts,
    ),
    Escape("connect to the launcher", _OTHER_USER, connects_to_launcher),
    Escape("signal another task", _OTHER_USER, signals_task),
    Escape("read another task's files", _OTHER_USER, read("file")),
    Escape("read another task's output", _OTHER_USER, read("output")),
    Escape("read another task's token", _OTHER_USER, read("token")),
    Escape("write outside its directory and the temporary ones", _OTHER_USER, writes_outside),
    Escape("see what else runs on the host", _SANDBOXED, sees_processes),
    Escape(
        "use a descriptor of an earlier task on a later one's output, files or token",
        _ALL,
        uses_descriptors,
    ),
    Escape("read a key that an earlier task has left in a keyring", _ALL, finds_keys),
    Escape(
        "connect to another task's socket in the abstract namespace",
        frozenset(),
        connects_to_another,
        _ALL,
    ),
    Escape("leave something in the host's `/tmp`", _SANDBOXED, leaves_in_tmp),
    Escape("gain privileges by a program with the setuid bit", _ALL, gains_privileges),
    Escape("use capabilities, or be root", _ALL, has_privileges),
    Escape("use a descriptor or variable of the worker", _ALL, inherits),
    Escape("take all descriptors of the host", _ALL, fills_descriptors),
    Escape("start more processes than a task may have", _OTHER_USER, starts_processes),
)


def table() -> str:
    """The rows of `docs/security.md`."""
    head = ["| a task can | " + " | ".join(MODES) + " |", "|---" * (len(MODES) + 1) + "|"]
    rows = [[one.what, *map(one.cell, MODES)] for one in ESCAPES]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


# ── the programs of tasks ─────────────────────────────────────────────────────────────────────────

_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
_SEARCH = 10
_KEYRINGS = (-3, -4, -5)
"""Of the session, the user, and the user's sessions. Source: linux/keyctl.h."""
_WAIT_S = 0.01


def leave(facts: Path) -> None:
    """Descriptors of the own output, directory and what was given, and a key in each keyring."""
    for keyring in _KEYRINGS:
        _libc.syscall(_ADD_KEY, b"user", b"left", b"secret", 6, keyring)
    given = os.path.dirname(os.environ["IRIS_TOKEN_FILE"])
    with socket.socket(socket.AF_UNIX) as taker:
        taker.connect(f"{facts}.socket")
        socket.send_fds(taker, [b"-"], [1, *(os.open(path, os.O_PATH) for path in (".", given))])


def count_keys() -> None:
    print(
        sum(
            _libc.syscall(_KEYCTL, _SEARCH, keyring, b"user", b"left", 0) >= 0
            for keyring in _KEYRINGS
        )
    )


def listen(name: Path) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(b"\0" + os.fsencode(name))
        taken.listen()
        print("ready", flush=True)
        signal.pause()


def try_all(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(f"{path}.socket")
        os.chmod(f"{path}.socket", 0o777)
        taken.listen()
        print("listening", flush=True)
        giver, _ = taken.accept()
        with giver:
            _, left, _, _ = socket.recv_fds(giver, 1, 3)
    while not path.exists():
        time.sleep(_WAIT_S)
    facts = {**json.loads(path.read_text()), "left": left}
    succeeded = []
    for escape in ESCAPES:
        with contextlib.suppress(OSError, AssertionError):
            escape.tried(facts)
            succeeded.append(escape.what)
    print(json.dumps(succeeded))


def main() -> None:
    program, *words = sys.argv[1:]
    programs: dict[str, Callable[..., None]] = {
        "try": try_all,
        "leave": leave,
        "keys": count_keys,
        "listen": listen,
    }
    programs[program](*map(Path, words))


if __name__ == "__main__":
    main()
