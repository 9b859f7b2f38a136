"""Connects to a port on which a process of an attempt listens, in the network of that process.

Tasks share the network of their host unless it gives each its own, so a port alone says nothing:
only a listening socket that a process of the attempt has open is connected to. Blocks; to be called
in a thread. Linux only, by /proc.
Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iris_worker.launcher.kernel import namespaces, tree

_LISTENS = "0A"
_TABLES = (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6))
_CONNECT_S = 5.0
_UNSPECIFIED = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True)
class _Listener:
    """A listening socket: its address, and a process of the attempt that has it open."""

    family: socket.AddressFamily
    address: str
    pid: int


def connect(workdir: str, leader: int, port: int) -> socket.socket:
    """A connection to what listens on ``port`` of the attempt in this directory, whose first
    process is ``leader``.

    Raises OSError, with words for a person.
    """
    listener = _listener(workdir, leader, port)
    line = _socket_in(listener)
    try:
        line.settimeout(_CONNECT_S)
        line.connect((listener.address, port))
        line.settimeout(0)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        line.close()
        raise OSError(f"port {port}: {error.strerror or error}") from error
    return line


def _socket_in(listener: _Listener) -> socket.socket:
    """A socket in the network of the process that listens. Raises OSError."""
    path = f"/proc/{listener.pid}/ns/net"
    try:
        if os.stat(path).st_ino == os.stat("/proc/self/ns/net").st_ino:
            return socket.socket(listener.family)
        return namespaces.in_thread(lambda: _enter(listener), enters=False)
    except OSError as error:
        raise OSError(f"this worker cannot enter the network of the task: {error}") from error


def _enter(listener: _Listener) -> socket.socket:
    namespaces.enter_network(listener.pid)
    return socket.socket(listener.family)


def _listener(workdir: str, leader: int, port: int) -> _Listener:
    """What listens. Raises OSError when no process of the attempt does."""
    owner = os.stat(workdir).st_uid
    looked_at = dict[int, dict[int, tuple[socket.AddressFamily, str]]]()
    for pid in _processes(workdir, leader, owner):
        with contextlib.suppress(OSError):  # it has ended
            network = os.stat(f"/proc/{pid}/ns/net").st_ino
            if network not in looked_at:
                looked_at[network] = dict(_listening(pid, port))
            for inode, (family, address) in looked_at[network].items():
                if _has_open(pid, inode):
                    return _Listener(family, address, pid)
    raise OSError(f"no process of the task listens on port {port}")


def _processes(workdir: str, leader: int, owner: int) -> Iterator[int]:
    """The processes of the attempt, and those beside it: of its session, or started in its
    directory, as its user.
    """
    mark = f"{tree.WORKDIR}={workdir}".encode()
    for pid in tree.all_pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid != owner:
                continue
            if tree.session_of(pid) == leader or mark in tree.environ(pid):
                yield pid


def _listening(pid: int, port: int) -> Iterator[tuple[int, tuple[socket.AddressFamily, str]]]:
    """The sockets that listen on a port in the network of a process, by the number of their
    file.
    """
    for name, family in _TABLES:
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            host, _, number = fields[1].partition(":")
            if fields[3] == _LISTENS and int(number, 16) == port:
                yield int(fields[9]), (family, _address(family, host))


def _address(family: socket.AddressFamily, text: str) -> str:
    """An address as /proc/net/tcp shows it, in words of four bytes in the order of this machine."""
    words = [bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8)]
    address = socket.inet_ntop(family, b"".join(words))
    return _UNSPECIFIED.get(address, address)


def _has_open(pid: int, inode: int) -> bool:
    wanted = f"socket:[{inode}]"
    directory = f"/proc/{pid}/fd"
    for name in os.listdir(directory):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(f"{directory}/{name}") == wanted:
                return True
    return False
