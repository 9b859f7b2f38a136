"""Encodes NATS protocol lines of one message and of chained messages; nats-py's publish costs five
times as much.

Each message names the stream sequence it follows; only the last requests an acknowledgement. After
a message that is lost or refused every later one is refused too, so one confirmed sequence proves
all before it. Out of scope: sending, waiting, recovering. Source:
    docs/design/nats.md#features-used.
"""

from __future__ import annotations

from collections.abc import Sequence

from iris_bus.contract import Headers, Publication
from iris_core.subjects import fits_line

_SHOWN = 200


def one(subject: str, data: bytes, reply: str = "", headers: Headers | None = None) -> bytes:
    """A message as PUB, or HPUB when it has headers. Raises ValueError for text that would break
    the protocol line.
    """
    if not fits_line(subject, reply):
        raise ValueError(f"not a subject: {subject[:_SHOWN]!r} {reply[:_SHOWN]!r}")
    target = f"{subject} {reply}" if reply else subject
    if not headers:
        return b"PUB %b %d\r\n%b\r\n" % (target.encode(), len(data), data)
    block = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if block.count("\n") != len(headers) or block.count("\r") != len(headers):
        raise ValueError(f"not one line each: {dict(headers)!r}")
    raw = f"NATS/1.0\r\n{block}\r\n".encode()
    return b"HPUB %b %d %d\r\n%b%b\r\n" % (
        target.encode(),
        len(raw),
        len(raw) + len(data),
        raw,
        data,
    )


def chained(events: Sequence[Publication], after: int, reply: str) -> bytes:
    """``events`` as HPUB lines for the stream sequences after ``after``; the acknowledgement of the
    last goes to ``reply``.

    Raises ValueError when a subject or header would break its line.
    """
    lines: list[bytes] = []
    add = lines.append
    last = len(events) - 1
    plain: set[str] = set()
    for at, event in enumerate(events):
        headers = event.headers
        text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        block = f"NATS/1.0\r\nNats-Expected-Last-Sequence: {after + at}\r\nNats-Msg-Id: {event.message_id}\r\n{text}\r\n"
        subject = event.subject
        if subject not in plain and fits_line(subject, reply):
            plain.add(subject)
        if block.count("\n") != len(headers) + 4 or subject not in plain:
            raise ValueError(
                f"not one line each: {subject!r} {event.message_id!r} {dict(headers)!r}"
            )
        size = len(block) if block.isascii() else len(block.encode())
        data = event.data
        target = subject if at != last else f"{subject} {reply}"
        add(f"HPUB {target} {size} {size + len(data)}\r\n{block}".encode())
        add(data)
        add(b"\r\n")
    return b"".join(lines)
