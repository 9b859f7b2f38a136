"""Reads a NATS connection and passes each message directly to its subscriber, without a task or a
queue.

It replaces nats-py's stream reader once a connection is established, and passes it every line that
is not a message, so that nats-py still handles pings, errors, server information and the end of the
connection. Bytes are read into one buffer that is used again and again: a fresh one of 256 KiB for
each read, asyncio's way, costs more than the read. Out of scope: subscriptions, and what messages
mean. Source: the NATS client protocol; docs/adr/0003-a-thin-layer-on-nats-py.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

Deliver = Callable[[int, bytes, bytes, bytes, bytes | None], None]
"""Called with subscription id, subject, reply, body and header block of each message; never
raises.
"""

_BUFFER_BYTES = 1 << 16
_LONGEST_LINE = 1 << 13


class Garbled(ConnectionError):
    """The server sent bytes that are neither a message nor a protocol line; what follows cannot be
    parsed.
    """


class Intake(asyncio.BufferedProtocol):
    """The reading end of one connection.

    Args:
        before: the protocol that read the connection before; it receives every line that is not a
            message.
    """

    def __init__(self, before: asyncio.Protocol, deliver: Deliver) -> None:
        self._before = before
        self._deliver = deliver
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._wanted = 1

    def get_buffer(self, sizehint: int) -> memoryview:
        """The free part of the buffer."""
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle that many new bytes. Raises Garbled, which ends the connection."""
        self._filled += nbytes
        if self._filled < self._wanted:
            return
        used = self._take()
        size = max(self._wanted, _BUFFER_BYTES)
        if len(self._buffer) < size or len(self._buffer) > 2 * size:
            self._move(used, bytearray(2 * size if size > _BUFFER_BYTES else size))
        elif used:
            self._view[: self._filled - used] = bytes(self._view[used : self._filled])
        self._filled -= used

    def _move(self, used: int, buffer: bytearray) -> None:
        """Switch to another buffer: a message is larger than this one, or a large one has been
        handled.
        """
        buffer[: self._filled - used] = self._view[used : self._filled]
        self._buffer, self._view = buffer, memoryview(buffer)

    def _take(self) -> int:
        """Deliver the complete messages; returns how many bytes they used. Sets how many bytes the
        next message needs.
        """
        buffer, view, filled = self._buffer, self._view, self._filled
        at = 0
        while True:
            end = buffer.find(b"\r\n", at, filled)
            if end < 0:
                self._wanted = filled - at + 1
                if self._wanted > _LONGEST_LINE:
                    raise Garbled("the server sent a line without an end")
                return at
            fields = bytes(view[at:end]).split()
            kind = fields[0] if fields else b""
            body = end + 2
            if kind in (b"MSG", b"HMSG"):
                try:
                    size = int(fields[-1])
                    stop = body + size
                    if stop + 2 > filled:
                        self._wanted = stop + 2 - at
                        return at
                    self._message(fields, body, stop)
                except (ValueError, IndexError) as error:
                    raise Garbled(f"the server sent {b' '.join(fields)[:200]!r}") from error
                at = stop + 2
            else:
                self._before.data_received(bytes(view[at:body]))
                at = body

    def _message(self, fields: list[bytes], body: int, stop: int) -> None:
        """``MSG subject id [reply] size`` or ``HMSG subject id [reply] header-size size``. Raises
        ValueError.
        """
        subject, number = fields[1], int(fields[2])
        if fields[0] == b"MSG":
            reply = fields[3] if len(fields) == 5 else b""
            self._deliver(number, subject, reply, bytes(self._view[body:stop]), None)
        else:
            reply = fields[3] if len(fields) == 6 else b""
            inner = body + int(fields[-2])
            self._deliver(
                number, subject, reply, bytes(self._view[inner:stop]), bytes(self._view[body:inner])
            )

    def eof_received(self) -> bool | None:
        return self._before.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()


def divert(transport: asyncio.WriteTransport, deliver: Deliver) -> None:
    """Deliver messages of this connection directly from now on."""
    before = cast(asyncio.Protocol, transport.get_protocol())
    transport.set_protocol(Intake(before, deliver))
