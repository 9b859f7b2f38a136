"""The lines of the HTTP API's streams: output, commands beside tasks, results of maps. See also:
`views`.
"""

from __future__ import annotations

from datetime import datetime

from iris_core.views.jobs import View


class ExecutionLine(View, kw_only=True, omit_defaults=True):
    """A piece of what a command prints that is executed beside a task, of what a task's terminal
    shows, or of what arrives by a connection to its port; bytes are base64 in JSON.

    The first one has the command's id, to write to it. The last one has ``ended``: with the exit
    code, or the signal that ended it, and with ``error`` when it could not be started, or was
    ended. ``closed``: nothing more arrives by the connection, while what is written is still read.
    """

    execution: str = ""
    stdout: bytes = b""
    stderr: bytes = b""
    ended: bool = False
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    closed: bool = False


class ExecutionPosition(View, kw_only=True):
    """The position of a command's standard input up to which input is taken."""

    position: int


class LogLineView(View, kw_only=True, omit_defaults=True):
    """One line of output. ``(task, attempt, stream, offset)`` names it.

    ``dropped`` bytes before it are lost; ``notice`` is the message about that. ``data``: its bytes
    where they are not UTF-8, base64 in JSON; ``line`` has other letters in their place then.
    ``continued``: the line has not ended; the next one of the same task, attempt and stream goes
    on with it.
    """

    task: str
    index: int
    attempt: int
    stream: str
    at: datetime | None
    offset: int
    line: str
    dropped: int = 0
    notice: str = ""
    data: bytes = b""
    continued: bool = False

    @property
    def printed(self) -> bytes:
        """The line as it was printed."""
        return self.data or self.line.encode()


class LogEnd(View, omit_defaults=True):
    """The last event of a stream of output.

    Attributes:
        state: of the job or task.
        unfinished: how many outputs may still get lines: of tasks that are being killed, or of lost
            hosts.
    """

    state: str
    unfinished: int = 0


class CallResultView(View, kw_only=True):
    """What one attempt of a map left.

    Attributes:
        kind: value, error, chunk (the outcomes of several calls); died: the process ended without a
            result.
        data: base64 of what the runner wrote; empty when it is ``stored`` as the attempt's
        artifact. cause, exit_code, signal: how the attempt ended. error: of one that died, in a
            line for a person.
    """

    index: int
    attempt: int
    kind: str
    data: str
    cause: str
    exit_code: int | None
    signal: int | None
    stored: bool
    error: str = ""


class ResultsView(View):
    """Some results of a map, in the order in which they were stored; one that appears twice was
    sent twice.

    Attributes:
        ended: indices of tasks that have ended otherwise than well meanwhile, and perhaps leave no
            result.
        ended_attempts: of each of them the number of its last attempt; -1: it had none.
    """

    results: list[CallResultView]
    ended: tuple[int, ...] = ()
    ended_attempts: tuple[int, ...] = ()


class ResultsEnd(View):
    """The last event of a stream of results: the state of the job.

    ``missing``: of a job that had ended before, the indexes of tasks of which no result is here, as
    ``0-3,7``; empty where each that succeeded has one. ``why``: some are not there.
    """

    state: str
    missing: str = ""
    why: str = ""
