"""One probe of one route: an HTTP GET, a TCP connect, or a command run as the task.

Each ends at its timeout, reads a bounded number of bytes, and leaves nothing open or running behind
it, also when it is cancelled. HTTP is spoken by hand: of an answer only the status counts, and
nothing that a service sends is trusted. Out of scope: when to probe, and what results amount to
    (schedule).
Source: docs/design/serving.md#probes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import string
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from urllib.parse import quote

from iris_core.spec.jobs import Probe
from iris_worker.attempt.probes.schedule import ProbeOutcome
from iris_worker.launcher.records.records import Exit
from iris_worker.launcher.starts.spawn import NotRunnable

_ANSWER_BYTES = 64 * 1024
_LINE_BYTES = 8 * 1024
_PRINTED_BYTES = 1024 * 1024
"""Bytes of a command's standard error; a command that prints more blocks until its timeout."""
_TAIL_BYTES = 1024
_KILLED_S = 1.0
"""Seconds for a command to end after KILL."""
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")

KillCommand = Callable[[], None]
StartCommand = Callable[[int, Callable[[Exit], None]], KillCommand]
"""Starts a probe's command with this descriptor as standard error and calls back when it has ended;
what it returns ends its process group. Raises NotRunnable, OSError."""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """What is probed: ``port`` is 0 when the job has no port of that name."""

    probe: Probe
    host: str
    port: int
    start: StartCommand


async def check(target: ProbeTarget) -> ProbeOutcome:
    """Probe once. Raises only CancelledError."""
    probe = target.probe
    if probe.kind == "command":
        return ProbeOutcome(await _run(target.start, probe.timeout_s))
    if not target.port:
        return ProbeOutcome(f"the job has no port {probe.port!r}")
    if probe.kind == "tcp":
        return ProbeOutcome(await _connect(target))
    if not probe.ready_path:
        return ProbeOutcome(await _get(target, probe.path))
    return ProbeOutcome(
        *await asyncio.gather(_get(target, probe.path), _get(target, probe.ready_path))
    )


def netloc(host: str, port: int) -> str:
    """``host:port``, with brackets where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ── HTTP and TCP ──────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def _connection(
    target: ProbeTarget,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=_LINE_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _connect(target: ProbeTarget) -> str:
    timeout_s = target.probe.timeout_s
    try:
        async with asyncio.timeout(timeout_s), _connection(target):
            return ""
    except (OSError, ValueError) as error:
        return f"connect to {netloc(target.host, target.port)}: {_reason(error, timeout_s)}"


async def _get(target: ProbeTarget, path: str) -> str:
    """GET ``path`` without following redirects; returns why it failed."""
    probe = target.probe
    line = b""
    try:
        async with asyncio.timeout(probe.timeout_s), _connection(target) as (reader, writer):
            writer.write(_request(target, path))
            line = await reader.readline()
            await _discard(reader)
    except (OSError, ValueError) as error:
        if not line:  # otherwise the status is known, and only the rest of the response is missing
            return f"GET {path}: {_reason(error, probe.timeout_s)}"
    found = _STATUS.fullmatch(line)
    if found is None:
        return (
            f"GET {path}: the answer is not HTTP/1"
            if line
            else f"GET {path}: closed without an answer"
        )
    status = int(found[1])
    passes = status in probe.expect if probe.expect else 200 <= status < 400
    return "" if passes else f"GET {path}: status {status}"


def _request(target: ProbeTarget, path: str) -> bytes:
    """The request; no path can add a header line to it."""
    return (
        f"GET {quote(path, safe=string.punctuation)} HTTP/1.1\r\nHost: {netloc(target.host, target.port)}\r\n"
        "User-Agent: iris-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    ).encode()


async def _discard(reader: asyncio.StreamReader) -> None:
    """Read the rest of the response: many services log an error when it is cut off."""
    left = _ANSWER_BYTES
    while left > 0 and (data := await reader.read(left)):
        left -= len(data)


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, UnicodeError):
        return str(error)  # the host has no address
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    if isinstance(error, OSError):
        return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
    return "the answer is not HTTP/1"


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


async def _run(start: StartCommand, timeout_s: float) -> str:
    """Run a command to its end; returns why it failed."""
    try:
        with _StandardError() as printed:
            return await _end_of(start, printed, timeout_s)
    except (OSError, NotRunnable) as error:
        return f"the command: {error}"


async def _end_of(start: StartCommand, printed: _StandardError, timeout_s: float) -> str:
    ended: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def on_end(exit_: Exit) -> None:
        if not ended.done():
            ended.set_result(exit_)

    kill = start(printed.write_end, on_end)
    try:
        printed.read()
        if (await asyncio.wait((ended,), timeout=timeout_s))[0]:
            return _explain(ended.result(), printed.last_line())
        kill()
        await asyncio.wait((ended,), timeout=_KILLED_S)
        return f"the command did not end within {timeout_s:g} s"
    finally:
        if not ended.done():
            kill()


def _explain(exit_: Exit, last_line: str) -> str:
    if exit_.code == 0:
        return ""
    how = (
        f"killed by signal {exit_.signal}"
        if exit_.signal is not None
        else f"exit code {exit_.code}"
    )
    return f"the command: {how}: {last_line}" if last_line else f"the command: {how}"


class _StandardError:
    """A pipe whose last bytes are kept. ``write_end`` is passed to a process before `read`. Raises
    OSError.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._tail = b""
        self._size = 0

    def __enter__(self) -> _StandardError:
        return self

    def read(self) -> None:
        """Begin to read; called when the process has its own descriptor."""
        self._close_write_end()
        self._loop.add_reader(self._read_end, self._keep)

    def _keep(self) -> None:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read_end, _ANSWER_BYTES)
        self._tail = (self._tail + data)[-_TAIL_BYTES:]
        self._size += len(data)
        if not data or self._size > _PRINTED_BYTES:
            self._loop.remove_reader(self._read_end)

    def last_line(self) -> str:
        """The last line printed so far; empty when there is none."""
        self._keep()
        lines = self._tail.decode(errors="replace").split("\n")
        return next((line for line in map(str.strip, reversed(lines)) if line), "")

    def _close_write_end(self) -> None:
        end = self.write_end
        self.write_end = -1
        if end >= 0:
            os.close(end)

    def __exit__(self, *_: object) -> None:
        self._close_write_end()
        self._loop.remove_reader(self._read_end)
        os.close(self._read_end)
