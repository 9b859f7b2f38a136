"""Forwards connections to a port of this machine to a port of a task, through the gateway.

No port of the task's host is opened: each connection is a request, answered by what comes from the
task's end. Out of scope: the request (`executions`). Source:
docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from iris.client.executions import PIECE, RemotePort
from iris.client.http.api import GatewayApi
from iris.client.problems import ClientError

LOCAL = "127.0.0.1"
_WAITING = 128
_ALIVE_S = 5.0
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class _Forwarded:
    """One connection. ``blocked_s``: since when its local end does not read; 0: it does."""

    line: socket.socket
    remote: RemotePort
    blocked_s: float = 0.0


class PortForward:
    """A port of this machine at which a port of a task answers, until the context is left.

    Only programs of this machine reach it. Each connection is to the attempt that runs then.
    Half-closed connections stay open in the other direction, and what one end does not read the
    other one cannot send.

    Attributes:
        address: where it answers.
        port: on which a process of the task listens; may be set anew, for further connections.

    Args:
        local_port: 0: a free one.
        on_trouble: called, from a thread, with why a connection could not be made or was ended.

    Raises OSError when the local port is taken.
    """

    def __init__(
        self,
        api: GatewayApi,
        task: str,
        port: int,
        *,
        local_port: int = 0,
        on_trouble: Callable[[str], object] | None = None,
    ) -> None:
        self._api = api
        self.task = task
        self.port = port
        self._on_trouble = on_trouble or (lambda why: None)
        self._open: set[_Forwarded] = set()
        self._left = threading.Event()
        self._listener = socket.create_server((LOCAL, local_port), backlog=_WAITING)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def __enter__(self) -> Self:
        for work in (self._accept, self._stay):
            threading.Thread(target=work, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._left.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            one.remote.close()
            _wake(one.line)

    def _accept(self) -> None:
        while not self._left.is_set():
            try:
                line, _ = self._listener.accept()
            except OSError:
                if not self._left.wait(_ALIVE_S / 50):  # this process has no descriptor left
                    continue
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        """Forward one connection to its end."""
        with line:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                remote = RemotePort(self._api, self.task, self.port)
            except ClientError as error:
                self._on_trouble(str(error))
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                return
            one = _Forwarded(line, remote)
            self._open.add(one)
            sender = threading.Thread(target=_send, args=(one,), daemon=True)
            try:
                with remote:
                    sender.start()
                    self._receive(one)
            except (ClientError, OSError) as error:
                if isinstance(error, ClientError) and not self._left.is_set():
                    self._on_trouble(str(error))
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            finally:
                self._open.discard(one)
                _wake(line)
                sender.join()

    def _receive(self, one: _Forwarded) -> None:
        for piece in one.remote:
            one.blocked_s = time.monotonic()
            one.line.sendall(piece.stdout)
            one.blocked_s = 0.0
            if piece.closed:
                one.line.shutdown(socket.SHUT_WR)
        if one.remote.error and not self._left.is_set():
            self._on_trouble(one.remote.error)

    def _stay(self) -> None:
        """Say for connections whose local ends do not read that this client is there."""
        while not self._left.wait(_ALIVE_S):
            before_s = time.monotonic() - _ALIVE_S / 2
            for one in [one for one in list(self._open) if 0 < one.blocked_s < before_s]:
                with contextlib.suppress(ClientError):
                    one.remote.alive()


def _send(one: _Forwarded) -> None:
    """Send what the local end writes, and its end."""
    try:
        while data := one.line.recv(PIECE):
            one.remote.write(data)
        one.remote.write(b"", end=True)
    except (OSError, ClientError):  # it has ended, which what comes from there tells
        _wake(one.line)


def _wake(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
