"""What a template runs: preloads modules, then makes a process for each call that the launcher
orders.

The first is bare: it runs nothing of its owner's, so it can serve several jobs, and its clones
become the templates of jobs, or make the call of a job that has one only.
Each page of memory that a clone touches is copied, so what can be done before it is made is done by
its template.

The launcher sends this source, after that of template_programs, to ``python -I -S`` on its standard
input, a socket of datagrams, so it imports nothing of Iris and as little as possible of the
standard library: what it holds costs each call. A call's process is made with CLONE_PARENT, so it
is the launcher's child, and waits for the launcher's word before it runs anything of its owner.
Where it is to be reused it then says how its call ended, and waits for the next one; where it is to
restore its memory it takes a snapshot before its first call, and goes back to that after each.
Out of scope: whether templates are used, and limits of calls (templates); which calls a process
    gets (reuse).
Source: docs/design/calls.md#templates, docs/design/calls.md#reused-processes,
    docs/design/calls.md#restored-memory.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import gc
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from iris_worker.launcher.templates.template_memory import (
        CallMemory,
        CannotRestore,
        OtherState,
    )
    from iris_worker.launcher.templates.template_programs import (
        CALL,
        Function,
        Script,
        compiled_file,
    )

    Change = tuple[list[str], list[tuple[str, str]], bytes]
    """Names of variables that a process loses, those that it gets, and all of them as the kernel
    shows them.
    """

MESSAGE_BYTES = 1 << 18
HELLO = b"h"
BEGUN = b"b"
READY = b"r"
UNUSABLE = b"u"
FAILED = b"f"
"""What the launcher hears: a process is there; it preloads; calls can begin, and why memory cannot be
restored between them; why they cannot; why preloading failed.
"""
GO = b"g"
"""What a call's process is told."""
DONE = b"d"
LAST = b"l"
"""What it says when its call has ended: its exit code and result, if it can be reused; why it takes
no further one.
"""
END = b"e"
"""What it is told when it cannot be reused after all: its end is that of its call."""
ROOM = "IRIS_TEMPLATE"
"""The variable whose length is room for longer variables of calls."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_FLAGS = 0x8000 | 0x0100_0000 | 0x0020_0000 | 17
"""CLONE_PARENT, CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID, SIGCHLD."""
_PR_GET_TID_ADDRESS = 40
_PR_SET_DUMPABLE = 4
_NEEDED = ("_pickle", "types")
"""What runners import, and is imported once."""
_MOST_FILES = 256
"""With more open files than this a process is not reused: it may have none left for the next
call.
"""
_OWN_FILES = 4
"""Its standard descriptors and its socket. Linux tells the number of open files since 6.2; before
it none.
"""
_ACCELERATORS = ("/dev/nvidia", "/dev/accel", "/dev/vfio/", "/dev/kfd", "/dev/dri/")


class Template:
    """This process. ``control``: a socket of the launcher's. ``code``: compiled runners, by their
    source. ``memory``: restores memory; None: ``no_memory`` says why it cannot.
    """

    program: Any = None
    memory: CallMemory | None = None

    def __init__(self, control: Any) -> None:
        self.control = _socket.socket(fileno=os.dup(control.fileno()))
        self.workdir = os.getcwd()
        self.environ = Environ()
        self.code: dict[bytes, Any] = {}
        self.held: list[tuple[int, int]] = []
        self.room = bytearray(MESSAGE_BYTES)
        _connect_to_nothing(0)
        self.null = _identity(0)

    def be_bare(self, library: list[int], why: str, checks: bool) -> None:
        """Serve until the launcher ends, without anything of a job. Nobody else may trace this
        process. ``library``: the descriptor of what restores memory, or none, and ``why`` there is
        none. ``checks``: whether each restore is verified.
        """
        try:
            self.clone = Clone()
        except (ImportError, OSError, KeyError, AttributeError) as error:
            self.control.send(
                UNUSABLE + f"this Python cannot clone: {type(error).__name__}: {error}".encode()
            )
            return
        self.clone.set_dumpable(False)
        self._load_memory(library, why, checks)
        for name in _NEEDED:
            __import__(name)
        if os.path.exists(f"{CALL}/run.py"):
            compiled_file(self.code, f"{CALL}/run.py")
        _connect_to_nothing(1, 2)
        gc.collect()
        gc.freeze()
        self.control.send(READY)
        self._serve()

    def _load_memory(self, library: list[int], why: str, checks: bool) -> None:
        self.no_memory = why or "its interpreter was given no library"
        for fd in library:
            try:
                self.memory = CallMemory(fd, checks)
            except CannotRestore as error:
                self.no_memory = str(error)
            os.close(fd)

    def be_template(self, order: dict[str, Any]) -> None:
        """Serve one job until the launcher ends: its modules to preload, its program, paths of
        further device files.
        """
        self.control.send(BEGUN)
        self.devices = order["accelerators"]
        try:
            self.program = self._program(order["function"])
            for name in order["preload"]:
                __import__(name)
            self.program.load()
        except BaseException as error:  # noqa: BLE001 - modules may raise anything
            sys.excepthook(*sys.exc_info())
            _flush()
            self.control.send(
                FAILED + f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
            )
            return
        if why := self._settle():
            self.control.send(UNUSABLE + why.encode(errors="replace")[:2000])
            return
        self.environ.look()
        if order["restores"]:
            self._copy_memory()
        why = "" if self.memory is not None else self.no_memory
        self.control.send(READY + why.encode(errors="replace")[:2000])
        self._serve()

    def _copy_memory(self) -> None:
        """Copy what clones have in common, to which they restore theirs."""
        if self.memory is None:
            return
        try:
            self.memory.copy_template()
        except CannotRestore as error:
            self.memory = None
            self.no_memory = str(error)

    def _program(self, is_function: bool) -> Any:
        program = Function(self.code) if is_function else Script()
        program.prepare(self.workdir)
        return program

    def _settle(self) -> str:
        """Have libraries end their threads, by an ordinary fork; returns why no call may be cloned,
        else nothing.
        """
        _flush()
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        if (threads := len(os.listdir("/proc/self/task"))) > 1:
            return f"preloading left {threads} threads"
        if path := _accelerator(set(os.listdir("/proc/self/fd")), self.devices):
            return f"preloading opened {path}"
        _connect_to_nothing(1, 2)
        gc.collect()
        gc.freeze()
        return ""

    def _serve(self) -> None:
        self.places = _places_below(self.workdir)
        while True:
            size, control, _, _ = self.control.recvmsg_into([self.room], _socket.CMSG_SPACE(4 * 4))
            if not size:
                return
            fds = _descriptors(control)
            call = marshal.loads(self.room)
            if not call["restores"]:
                call["change"] = self.environ.change(call["env"])
            if not self.clone():
                self._call(call, fds)
            for fd in fds:
                os.close(fd)

    def _call(self, call: dict[str, Any], fds: list[int]) -> None:
        """The life of the process of a call, or of a job's template, which has a socket of its
        own.
        """
        code = 1
        try:
            out, err, go, *sockets = fds
            self.control.send(HELLO + call["number"].to_bytes(8, "big"))
            self.control.close()
            if os.read(go, 1) != GO:
                os._exit(1)
            os.setsid()
            if sockets:
                os.close(go)
                self._become(call, [out, err])
                self.control = _socket.socket(fileno=sockets[0])
                self.be_template(call["order"])
                code = 0
            elif call["restores"]:
                code = self._make_calls([out, err], go)
            else:
                code = self._run(call, [out, err], go)
        except SystemExit as error:
            code = _exit_code(error)
        except BaseException:  # noqa: BLE001 - the call may raise anything
            sys.excepthook(*sys.exc_info())
        finally:
            _run_exit_functions()
            os._exit(code)

    def _run(self, call: dict[str, Any], output: list[int], go: int) -> int:
        """Make a call, and those that follow in this process; returns the exit code of the last
        one.
        """
        os.set_inheritable(go, False)
        self.held = [_identity(go)]
        once = not call["again"]
        if not once:
            self.link = _socket.socket(fileno=go)
        elif isinstance(self.program, Script):  # it has no result to send
            os.close(go)
        while True:
            self._become(call, output)
            program = self.program or self._program(True)
            code: int = program.run(call)
            following = self._next(code, program.result) if call["again"] else None
            if following is None:
                if not (once and self._hand_over(go, program.result)):
                    program.leave(call)
                return code
            call, output = following

    def _make_calls(self, output: list[int], go: int) -> int:
        """Make calls, after each of which the memory is restored to what it is now; returns the
        exit code of the last one.
        """
        assert self.memory is not None
        process = os.getpid()
        os.set_inheritable(go, False)
        self.link = _socket.socket(fileno=go)
        self._write_to(output)
        self.held = [_identity(go), _identity(1), _identity(2)]
        try:
            self.environ.change(dict(os.environ))  # which keeps the lines that all calls have
            self.memory.open(go)
            state = OtherState(go)
            restores = self.memory.take()
        except CannotRestore as error:
            self.link.send(LAST + str(error).encode()[:2000])
            os._exit(1)
        following = self._receive(is_next=restores > 0)
        if following is None:
            last, self.program.result, workdir = marshal.loads(self.memory.kept())
            self.program.leave({"workdir": workdir})
            os._exit(last)
        self.memory.forget()
        call, output = following
        self._become(call, output)
        self.held[1:] = [_identity(1), _identity(2)]  # maybe those of the call before
        code: int = self.program.run(call)
        result = self.program.result
        _run_exit_functions()
        is_this = os.getpid() == process  # else the call has forked, and returned in both
        if is_this and self._tell(code, result, self._unrestorable(state)):
            self.memory.restore(marshal.dumps((code, result, self.workdir)))
        self.program.leave(call)
        return code

    def _unrestorable(self, state: OtherState) -> str:
        """Why this process makes no further call after its memory was restored; empty: it does."""
        if self.held[1:] != [_identity(1), _identity(2)]:
            return "it closed its output"
        return state.difference()

    def _hand_over(self, go: int, result: bytes) -> bool:
        """Send the result of the only call of this process; False when the launcher has ended, or
        the call has closed its descriptor.
        """
        if not result or self.held[0] != _identity(go):
            return False
        try:
            os.set_blocking(go, False)
            return os.write(go, result) > 0
        except OSError:
            return False

    def _next(self, code: int, result: bytes) -> tuple[dict[str, Any], list[int]] | None:
        """The next call for this process and where its output goes; None when its end, with
        ``code``, is that of its call. Raises SystemExit when it gets no further one.
        """
        _flush()
        if not self._tell(code, result, self._unfit()):
            return None
        self.environ.look()
        following = self._receive(is_next=True)
        if following is not None and following[0]["workdir"] != self.workdir:
            self.places = _places_below(self.workdir)
        return following

    def _tell(self, code: int, result: bytes, why: str) -> bool:
        """Say how a call has ended, and wait for the next; False when this process takes none,
        which says ``why``, or nobody hears it.
        """
        if self.held[0] != _identity(
            self.link.fileno()
        ):  # the call has closed it, and perhaps opened another file
            return False
        try:
            if why:
                self.link.send(LAST + why.encode(errors="replace")[:2000])
            else:
                self.link.send(b"%b%c%b" % (DONE, code, result))
        except OSError:  # the launcher has ended
            return False
        return not why

    def _receive(self, *, is_next: bool) -> tuple[dict[str, Any], list[int]] | None:
        """A call for this process, as `_next` returns it. ``is_next``: another was made before."""
        try:
            size, control, _, _ = self.link.recvmsg_into([self.room], _socket.CMSG_SPACE(4 * 2))
            data = self.room[:size]
            if data == END and is_next:
                return None
            # the launcher has the result, or has ended, and another attempt may have the directory
            if not data:
                raise SystemExit(1)
            self.link.send(HELLO)
        except OSError:
            raise SystemExit(1) from None
        call = marshal.loads(data)
        call["change"] = self.environ.change(call["env"])
        return call, _descriptors(control)

    def _unfit(self) -> str:
        """Why this process takes no further call; empty: it does."""
        if (threads := len(sys._current_frames()) - 1) > 0:
            return f"it left {threads} {'thread' if threads == 1 else 'threads'}"
        if (
            self.held[1:] != [_identity(1), _identity(2)]
            or _is_closed(sys.stdout)
            or _is_closed(sys.stderr)
        ):
            return "it closed its output"
        if (sys.stdout, sys.stderr) != (sys.__stdout__, sys.__stderr__):
            return "it replaced its output"
        if any(_signal.getitimer(which)[0] for which in range(3)):
            return "it left a timer"
        if _identity(0) == self.null and os.stat("/proc/self/fd").st_size == _OWN_FILES:
            return ""
        fds = set(os.listdir("/proc/self/fd"))
        if len(fds) > _MOST_FILES:
            return f"it left {len(fds)} open files"
        if path := _accelerator(
            fds - {"1", "2", str(self.link.fileno())}, self.devices
        ):  # those were compared
            return f"it left {path} open"
        return ""

    def _become(self, call: dict[str, Any], output: list[int]) -> None:
        """Be the process of this call. ``output``: where its standard output and error go; empty:
        where they went.
        """
        self._write_to(output)
        if self.held and output:
            self.held[1:] = [_identity(1), _identity(2)]
        before = self.workdir
        self.workdir = call["workdir"]
        os.chdir(self.workdir)
        self.environ.become(call["change"])
        moved = (sys.path, *self.places) if before != self.workdir else ()
        for paths in moved:  # what is imported later is found in this attempt's directory
            paths[:] = [
                self.workdir + str(one)[len(before) :] if str(one).startswith(before) else one
                for one in paths
            ]
        if self.program is None:
            self.clone.set_dumpable(True)
        for name in sys.modules.keys() & {"random", "numpy.random"}:
            sys.modules[name].seed()
        if "_ssl" in sys.modules:  # which sees a new process, but not memory that was restored
            sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)

    def _write_to(self, output: list[int]) -> None:
        """Have standard output and error go there; empty: where they went."""
        for number, fd in enumerate(output, 1):
            os.dup2(fd, number)
            os.close(fd)


class Clone:
    """The system call that makes a child of the parent of this process. Raises OSError, KeyError,
    ImportError.
    """

    def __init__(self) -> None:
        import ctypes

        api = ctypes.PyDLL(None, use_errno=True)
        machine = os.uname().machine
        number = _CLONE[machine]
        address = ctypes.c_void_p()
        if api.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(address), 0, 0, 0) or not address.value:
            raise OSError("the kernel does not tell the address of the thread id")
        longs = [ctypes.c_long(value) for value in (number, _FLAGS, 0, 0)]
        last = (address, ctypes.c_long(0)) if machine == "x86_64" else (ctypes.c_long(0), address)
        self._arguments = (*longs, *last)
        self._syscall = api.syscall
        self._errno = ctypes.get_errno
        self._before = api.PyOS_BeforeFork
        self._parent = api.PyOS_AfterFork_Parent
        self._child = api.PyOS_AfterFork_Child
        self._syscall.restype = ctypes.c_long
        self._prctl = api.prctl

    def __call__(self) -> int:
        """The process id of the child; 0 in the child. Raises OSError."""
        self._before()
        pid = self._syscall(*self._arguments)
        if pid == 0:
            self._child()
            return 0
        self._parent()
        if pid < 0:
            raise OSError(self._errno(), "clone")
        return int(pid)

    def set_dumpable(self, value: bool) -> None:
        """Whether processes of the same user may trace this one, or read its memory."""
        if self._prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0):
            raise OSError(self._errno(), "prctl")


class Environ:
    """The variables of this process, also where others read them: /proc/<pid>/environ."""

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            self._start, self._end = map(int, file.read().rpartition(b")")[2].split()[47:49])
        self._lines: dict[tuple[str, str], bytes] = {}
        self._raw: Any = ()
        self._own: Any = os.environ
        self._held = {name: value for name, value in os.environ.items() if name != ROOM}
        os.environ.clear()
        os.environ.update(self._held)  # nothing refers to the kernel's copy any more

    def look(self) -> None:
        """Code of the owner may have changed or replaced them."""
        os.environ = self._own  # noqa: B003
        if self._own._data != self._raw:  # encoded, which is quick to compare
            self._held = dict(self._own)

    def change(self, env: dict[str, str]) -> Change:
        """What `become` has to do for these variables."""
        size = self._end - self._start
        self._lines = {
            pair: self._lines.get(pair) or os.fsencode("=".join(pair) + "\0")
            for pair in env.items()
        }
        data = b"".join(self._lines.values())
        gone = [name for name in self._held if name not in env]
        new = [pair for pair in env.items() if self._held.get(pair[0]) != pair[1]]
        return gone, new, data[: size - 1].ljust(size, b"\0") if size > 1 else b""

    def become(self, change: Change) -> None:
        import ctypes

        gone, new, data = change
        for name in gone:
            os.environ.pop(name, None)
            del self._held[name]
        for name, value in new:
            os.environ[name] = self._held[name] = value
        self._raw = dict(self._own._data)
        ctypes.memmove(self._start, data, len(data))


def _connect_to_nothing(*fds: int) -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for fd in fds:
        os.dup2(null, fd)
    os.close(null)


def _places_below(workdir: str) -> list[list[str]]:
    """The search paths of packages that are in a directory."""
    found = [getattr(module, "__path__", None) for module in list(sys.modules.values())]
    return [
        paths
        for paths in found
        if isinstance(paths, list) and any(str(one).startswith(workdir) for one in paths)
    ]


def _accelerator(fds: set[str], devices: tuple[str, ...]) -> str:
    """The path of an accelerator, one of ``devices`` too, that is open; empty: none is."""
    for fd in fds:
        try:
            path = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if path.startswith((*_ACCELERATORS, *devices)):
            return path
    return ""


def _descriptors(control: list[Any]) -> list[int]:
    """The descriptors that came with a message."""
    return [
        int.from_bytes(part[at : at + 4], sys.byteorder)
        for _, _, part in control
        for at in range(0, len(part) - 3, 4)
    ]


def _identity(fd: int) -> tuple[int, int]:
    """Which file a descriptor is of; zeros when it is closed."""
    try:
        return os.fstat(fd)[1:3]
    except OSError:
        return 0, 0


def _is_closed(stream: Any) -> bool:
    return getattr(stream, "closed", stream is None)


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


def _run_exit_functions() -> None:
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    _flush()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # it is closed
            continue


if __name__ == "iris_template":
    Template(globals()["control"]).be_bare(*globals()["memory"])
