"""Between gateways and workers: output of attempts, results of calls, and commands that people
execute beside tasks.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from iris_core.messages.message import AttemptRef, ServiceMessage
from iris_core.moments import LAST_MS
from iris_core.states import Cause


class LogChunk(ServiceMessage, frozen=True):
    """A piece of one attempt's output.

    Attributes:
        stream: stdout or stderr. offset: of ``data`` in that stream, in bytes, including dropped
            bytes.
        dropped: bytes dropped just before ``data``. dropped_lines: line ends in them, -1 where they
            were not counted.
        limit: the setting that made the worker drop them, with its value.
        final: nothing of this stream follows.
    """

    stream: str
    at_ms: Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
    offset: int
    data: bytes
    dropped: int = 0
    final: bool = False
    dropped_lines: int = -1
    limit: str = ""


class TaskOutput(ServiceMessage, frozen=True):
    """Output of one attempt, in order. Unconfirmed output is sent again; ``offset`` identifies
    duplicates.
    """

    ref: AttemptRef
    chunks: tuple[LogChunk, ...]


CallResultKind = Literal["value", "error", "chunk", "died"]


class CallResult(ServiceMessage, frozen=True):
    """What one attempt of a map left.

    Attributes:
        kind: value, error, or chunk (the outcomes of several calls); died: the process ended
            without a result.
        data: its pickle, as the runner wrote it; empty when it is ``stored`` as the attempt's
        artifact. cause, code, signal: how the attempt ended. error: of one that died, in a line for
            a person.
    """

    index: int
    attempt: int
    kind: CallResultKind
    data: bytes
    cause: Cause
    code: int | None = None
    signal: int | None = None
    stored: bool = False
    error: str = ""


class CallResults(ServiceMessage, frozen=True):
    """Results of several attempts of one job; ones that were not confirmed are sent again, in other
    messages.
    """

    job: int
    results: tuple[CallResult, ...]


class StartExecution(ServiceMessage, frozen=True, tag="start"):
    """Start a command in the directory and environment of a running attempt; it ends with the
    attempt.

    Attributes:
        execution: its id, of the gateway's choice. user: the only one who may write to it.
        tty: with a terminal of that many rows and columns, and of the type ``term``.
        terminal: no command is started: it is the attempt's own terminal, which the last one to ask
            reads and writes.
        port: no command is started: it is a connection to this port, on which a process of the
            attempt listens.
    """

    execution: str
    ref: AttemptRef
    user: str
    command: tuple[str, ...]
    tty: bool = False
    rows: int = 24
    columns: int = 80
    term: str = ""
    terminal: bool = False
    port: int = 0


class ReadExecution(ServiceMessage, frozen=True, tag="read"):
    """Wait a while for output after piece number ``after``; answered by `ExecutionOutput`."""

    execution: str
    after: int


class WriteExecution(ServiceMessage, frozen=True, tag="write"):
    """Write to its standard input, whose position before ``data`` is ``offset``; signal it; resize
    its terminal.

    ``end``: nothing follows. ``signal``: a name without SIG, or empty.
    """

    execution: str
    user: str
    offset: int = 0
    data: bytes = b""
    end: bool = False
    signal: str = ""
    rows: int = 0
    columns: int = 0


class CloseExecution(ServiceMessage, frozen=True, tag="close"):
    """Its client is gone: end it; a terminal is left for the next client."""

    execution: str


ExecutionRequest = StartExecution | ReadExecution | WriteExecution | CloseExecution


class ExecutionOutput(ServiceMessage, frozen=True):
    """A piece of output, or none when its ``number`` is the one that was asked after.

    Attributes:
        ended: the last piece: the command has ended with a code or by a signal, or for the reason
            ``error``.
        closed: no output follows this piece, while what is written is still read: half of a
            connection.
    """

    number: int
    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    closed: bool = False


class ExecutionTaken(ServiceMessage, frozen=True):
    """The answer to a start or a write.

    ``position``: of the standard input, up to which it is taken; the rest is to be sent again.
    ``error``: why it was refused.
    """

    position: int = 0
    error: str = ""
