"""Checks the health of a NATS server over its system account, so that the server needs no
monitoring port.

Synchronous, one connection per check, for supervisors without an event loop.
Source: the NATS client protocol; the system services of nats-server
    (``$SYS.REQ.SERVER.<id>.HEALTHZ``).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any, BinaryIO

Sign = Callable[[str], dict[str, str]]
"""From the server's nonce, what of a CONNECT says who asks."""
_INBOX = "_INBOX.health"


def trouble(port: int, sign: Sign, timeout_s: float = 2.0) -> str:
    """The error that the server on loopback reports; empty when it is healthy."""
    return _asked("HEALTHZ", port, sign, timeout_s)


def read_again(port: int, sign: Sign, timeout_s: float = 5.0) -> str:
    """Have the server on loopback read its configuration again; returns its error, or empty."""
    return _asked("RELOAD", port, sign, timeout_s)


def _asked(service: str, port: int, sign: Sign, timeout_s: float) -> str:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout_s) as connection,
            connection.makefile("rb") as lines,
        ):
            info = json.loads(_line(lines).removeprefix(b"INFO "))
            hello = {
                "verbose": False,
                "pedantic": False,
                "name": "keeper",
                **sign(info.get("nonce", "")),
            }
            ask = f"PUB $SYS.REQ.SERVER.{info['server_id']}.{service} {_INBOX} 0"
            said = f"CONNECT {json.dumps(hello)}\r\nSUB {_INBOX} 1\r\n{ask}\r\n\r\n"
            connection.sendall(said.encode())
            return _error_in(_answer(connection, lines))
    except (OSError, ValueError, LookupError) as error:
        return str(error) or type(error).__name__


def _answer(connection: socket.socket, lines: BinaryIO) -> bytes:
    """The body of the first message. Raises OSError without one."""
    while True:
        line = _line(lines)
        if line.startswith(b"MSG "):
            return lines.read(int(line.split()[-1]))
        if line.startswith(b"-ERR"):
            raise OSError(line.decode(errors="replace"))
        if line == b"PING":
            connection.sendall(b"PONG\r\n")


def _line(lines: BinaryIO) -> bytes:
    line = lines.readline()
    if not line:
        raise OSError("the server has closed the connection")
    return line.strip()


def _error_in(body: bytes) -> str:
    answer: dict[str, Any] = json.loads(body)
    with contextlib.suppress(AttributeError):
        return str(
            answer.get("data", {}).get("error") or answer.get("error", {}).get("description") or ""
        )
    return ""
