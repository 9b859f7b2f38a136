"""One template as the launcher has it: a process, and what is ordered of it and not cloned yet.

Out of scope: when there is one, and what becomes of its clones (templates); what it does
    (template_process).
"""

from __future__ import annotations

import contextlib
import marshal
import os
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iris_worker.launcher.kernel.event_loop import DelayedCall
from iris_worker.launcher.records.records import StartProcess, StartTemplate
from iris_worker.launcher.templates import template_memory, template_programs
from iris_worker.launcher.templates import template_process as inside

_BOOT = f"""
import _socket, marshal, os, sys

def compiled(source, path):
    read_end, write_end = os.pipe()
    if not os.fork():  # compiling leaves memory behind, which each call would cost
        try:
            with open(write_end, "wb") as file:
                marshal.dump(compile(source, path, "exec"), file)
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as file:
        code = file.read()
    os.wait()
    return marshal.loads(code)

control = _socket.socket(fileno=0)
data, files, _, _ = control.recvmsg({inside.MESSAGE_BYTES}, _socket.CMSG_SPACE(4))
sources, why, checks = marshal.loads(data)
library = [int.from_bytes(part, sys.byteorder) for _, _, part in files]
memory = (library, why, checks)
names = {{"__name__": "iris_template", "control": control, "compiled": compiled, "memory": memory}}
for source in sources:
    exec(compiled(source, "iris_template"), names)
"""
_SOURCES = [
    Path(str(part.__file__)).read_bytes() for part in (template_programs, template_memory, inside)
]
"""Of the release of this launcher: that may outlive an upgrade."""
_ROOM = 4096
"""Bytes by which the variables of a clone may be longer than those of its template."""
_HEARD_BYTES = 4096
"""More than a template ever says in one message."""
_CREDENTIALS = struct.Struct("iII")
_SPACE = socket.CMSG_SPACE(_CREDENTIALS.size)


@dataclass(slots=True, eq=False)
class OrderedClone:
    """An attempt, or the template of a job, that is being cloned.

    ``go``: where it is told to go on; when that closes, the clone ends; None: others have it.
    ``control``: of a template, the launcher's end of its socket. ``again``: it may make several
    calls. ``first``: it restores its memory before each, and this is the order of the first.
    """

    request: StartProcess | StartTemplate
    go: socket.socket | None
    late: DelayedCall
    control: socket.socket | None = None
    again: bool = False
    first: bytes = b""


@dataclass(slots=True, eq=False)
class RunningTemplate:
    """One template.

    ``slot``: in whose sandbox, or as whose user it runs; -1: it is not confined, and serves all
    slots. ``control``: a socket of datagrams, which its clones share until they are told to go.
    ``used_s``: when it was. ``seen_s``: when a clone of it was last seen to run. ``late``: ends
    it, unless it answers. ``request``: by which it was started. ``waiting``: requests for templates
    of jobs, until it is ready. ``forks_because``: why its clones cannot restore their memory; empty:
    they can.
    """

    request: StartTemplate
    pid: int
    control: socket.socket
    used_s: float
    late: DelayedCall
    ready: bool = False
    forks_because: str = ""
    seen_s: float = 0.0
    clones: dict[int, OrderedClone] = field(default_factory=dict)
    waiting: list[StartTemplate] = field(default_factory=list)
    slot: int = field(init=False)

    def __post_init__(self) -> None:
        self.slot = self.request.slot if self.request.sandbox is not None else -1

    @property
    def key(self) -> str:
        return self.request.key

    @property
    def user(self) -> str:
        return self.request.user

    @property
    def is_bare(self) -> bool:
        return self.request.key == self.request.bare

    def wait_again(self, timer: Callable[[], DelayedCall]) -> None:
        """Wait for what it has not answered until a new timer is due."""
        for one in self.clones.values() if self.ready else (self,):
            one.late.cancel()
            one.late = timer()

    def messages(self) -> Iterator[tuple[bytes, int]]:
        """What it and its clones have said, each with the process that has, as the kernel signs.
        Ends with empty data, of no process, when they are gone, else raises BlockingIOError;
        ConnectionResetError.
        """
        while self.control.fileno() >= 0:
            data, control, _, _ = self.control.recvmsg(_HEARD_BYTES, _SPACE)
            signed = (
                _CREDENTIALS.unpack(part)[0]
                for _, kind, part in control
                if kind == socket.SCM_CREDENTIALS
            )
            yield data, next(signed, 0)


def beyond(idle: Mapping[RunningTemplate, int], limit: int) -> list[RunningTemplate]:
    """The templates that end so that those of which nothing runs hold at most ``limit`` bytes
    together: those of the user who has most, what was unused for longest first. The last one stays,
    however large.

    Args:
        idle: what each holds.
    """
    left = dict(sorted(idle.items(), key=lambda one: max(one[0].used_s, one[0].seen_s)))
    held = Counter[str]()
    for one, size in left.items():
        held[one.user] += size
    gone: list[RunningTemplate] = []
    while len(left) > 1 and held.total() > limit:
        template = max(left, key=lambda one: held[one.user])
        held[template.user] -= left.pop(template)
        gone.append(template)
    return gone


def connection() -> tuple[socket.socket, socket.socket]:
    """Two ends of a socket of datagrams."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def control() -> tuple[socket.socket, socket.socket]:
    """The launcher's end of a template's socket, and that of the template: the kernel signs all
    that this one sends.
    """
    mine, its = connection()
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    mine.setblocking(False)
    return mine, its


def command_of(request: StartTemplate) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command of a bare template and its variables, with room for those of calls."""
    used = sum(len(name) + len(value) + 2 for name, value in request.env.items())
    return (request.command[0], "-I", "-S", "-c", _BOOT), {
        **request.env,
        inside.ROOM: " " * (_ROOM + used // 4),
    }


def send_sources(mine: socket.socket, library: str, why: str, *, checks: bool) -> None:
    """Send a bare template what it runs, and the library that restores memory; ``why`` there is
    none.
    """
    fds = []
    with contextlib.suppress(OSError):
        try:
            fds = [os.open(library, os.O_RDONLY | os.O_CLOEXEC)] if library else []
        except OSError as error:
            why = f"{library} cannot be read: {error.strerror}"
        try:
            socket.send_fds(mine, [marshal.dumps((_SOURCES, why, checks))], fds)
        finally:
            for fd in fds:
                os.close(fd)


def how_ended(status: int) -> str:
    return (
        f"exit code {code}"
        if (code := os.waitstatus_to_exitcode(status)) >= 0
        else f"signal {-code}"
    )
