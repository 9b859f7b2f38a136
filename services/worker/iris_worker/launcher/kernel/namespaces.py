"""The system calls for namespaces and privileges that Python 3.11 does not have. Linux only."""

from __future__ import annotations

import _thread
import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

MOUNT = 0x0002_0000
IPC = 0x0800_0000
USER = 0x1000_0000
PID = 0x2000_0000
NETWORK = 0x4000_0000
"""Flags of clone(2)."""
_FS = 0x200
_PR_SET_NO_NEW_PRIVS = 38
_MSG_INFO = 12
_SEM_INFO = 19
_SHM_INFO = 14
"""Commands of msgctl(2), semctl(2), shmctl(2): they count what is in use."""
_SEMUSZ = 7
_OWN = ("mnt", "ipc", "pid", "net")

T = TypeVar("T")

_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *args: int) -> None:
    if getattr(_libc, name)(*args):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def forbid_new_privileges() -> None:
    """Whatever this process starts from now on gains no privileges: programs with the setuid bit
    run without it.
    """
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def enter_user_namespace() -> None:
    """Move this process to a user namespace of its own, with capabilities over what is made in it.

    Raises OSError: then it was not moved.
    """
    child = (
        os.fork()
    )  # who fails halfway cannot return: AppArmor, for one, refuses only what follows `unshare`
    if not child:
        try:
            _enter_user_namespace()
        except OSError as error:
            os._exit(error.errno or errno.EPERM)
        os._exit(0)
    if number := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(number, f"user namespace: {os.strerror(number)}")
    _enter_user_namespace()


def _enter_user_namespace() -> None:
    ids = {"uid_map": os.geteuid(), "gid_map": os.getegid()}
    _call("unshare", USER)
    Path("/proc/self/setgroups").write_text("deny")
    for name, number in ids.items():
        Path("/proc/self", name).write_text(f"{number} {number} 1")


def own_namespaces() -> tuple[int, ...]:
    """Descriptors of the namespaces of this process, with which `enter` returns."""
    return tuple(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in _OWN)


def enter(pidfd: int, *, network: bool) -> None:
    """Enter the mount and IPC namespaces of a process, and the network's; what is started next is
    in its process namespace too.
    """
    _call("setns", pidfd, MOUNT | IPC | PID | (NETWORK if network else 0))


def enter_view(pidfd: int) -> None:
    """Enter the mount and IPC namespaces of a process, and nothing that matters to what is started
    next.
    """
    _call("setns", pidfd, MOUNT | IPC)


def enter_network(pid: int) -> None:
    """Enter the network of a process, in a thread that ends soon: there is no way back. Raises
    OSError.
    """
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("setns", fd, NETWORK)
    finally:
        os.close(fd)


def leave(own: Iterable[int]) -> None:
    """Return to the namespaces that `own_namespaces` found."""
    for fd in own:
        _call("setns", fd, 0)


def ipc_objects() -> tuple[int, int, int]:
    """Message queues, semaphore sets and shared memory segments of the IPC namespace; 0 where the
    kernel has none.
    """
    info = (ctypes.c_int * 32)()
    queues = info[0] if _libc.msgctl(0, _MSG_INFO, info) >= 0 else 0
    sets = info[_SEMUSZ] if _libc.semctl(0, 0, _SEM_INFO, info) >= 0 else 0
    return queues, sets, info[0] if _libc.shmctl(0, _SHM_INFO, info) >= 0 else 0


def in_thread(work: Callable[[], T], *, enters: bool) -> T:
    """Run ``work`` in a thread of its own, whose confinement ends with it. Raises what it raises,
    and OSError where the host has no room for a thread.

    ``enters``: it enters mount namespaces, and so has a directory of its own; containers do not let
    every process.
    """
    found: list[T | BaseException] = []

    def run() -> None:
        try:
            if enters:
                _call("unshare", _FS)
            found.append(work())
        except BaseException as error:  # noqa: BLE001
            found.append(error)
        finally:
            running.release()

    running = _thread.allocate_lock()  # `threading.Thread` takes two and a half times the CPU
    running.acquire()
    try:
        _thread.start_new_thread(run, ())
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    running.acquire()
    [result] = found
    if isinstance(result, BaseException):
        raise result
    return result
