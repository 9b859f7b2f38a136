"""What a task may try against its host and its neighbours, and which confinement refuses what.

`docs/security.md` shows the table, and each row is tried on each kind of host. The file is also the program of the task
that tries: ``escapes.py FACTS`` prints what was refused. It needs nothing but Python's standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODES = ("root with bubblewrap", "root without it", "ordinary user with bubblewrap", "ordinary user without it")
_SANDBOXED = frozenset({MODES[0], MODES[2]})
_OTHER_USER = frozenset(MODES[:3])
_ALL = frozenset(MODES)
Facts = dict[str, Any]


@dataclass(frozen=True)
class Escape:
    """Something a task tries; the function raises OSError or AssertionError when it was refused."""

    what: str
    refused: frozenset[str]
    tried: Callable[[Facts], object]


def reads_environment(facts: Facts) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{facts['worker']}/environ").read_bytes()
        return
    with open(f"/proc/{facts['worker']}/mem", "rb"):
        pass


def signals_worker(facts: Facts) -> None:
    for process in (facts["worker"], facts["launcher"]):
        os.kill(process, 0)


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
    Path("/tmp", facts["left"]).touch()
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
    held = {int(name) for name in os.listdir("/proc/self/fd")} - {0, 1, 2}
    open_ = [fd for fd in held if os.path.exists(f"/proc/self/fd/{fd}")]  # not that of the listing itself
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
    Escape("read the worker's environment or memory", _OTHER_USER, reads_environment),
    Escape("read the worker's key, and publish as the worker", _OTHER_USER, read("key")),
    Escape("signal the worker or its launcher", _OTHER_USER, signals_worker),
    Escape("connect to the launcher", _OTHER_USER, connects_to_launcher),
    Escape("signal another task", _OTHER_USER, signals_task),
    Escape("read another task's files", _OTHER_USER, read("file")),
    Escape("read another task's output", _OTHER_USER, read("output")),
    Escape("read another task's token", _OTHER_USER, read("token")),
    Escape("write outside its directory and the temporary ones", _OTHER_USER, writes_outside),
    Escape("see what else runs on the host", _SANDBOXED, sees_processes),
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
    rows = [[one.what, *("no" if mode in one.refused else "**yes**" for mode in MODES)] for one in ESCAPES]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


def main() -> None:
    facts = json.loads(sys.argv[1])
    succeeded = []
    for escape in ESCAPES:
        with contextlib.suppress(OSError, AssertionError):
            escape.tried(facts)
            succeeded.append(escape.what)
    print(json.dumps(succeeded))


if __name__ == "__main__":
    main()
