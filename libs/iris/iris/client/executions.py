"""Executes a command beside a running task, uses a task's own terminal, or connects to a port of
it: what comes from there as it comes, and what is sent there.

Out of scope: terminals and signals of this machine (`iris.cli.remote_terminal`), local ports
    (`iris.client.tunnels`).
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from iris.client.decode import from_json
from iris.client.http.api import GatewayApi
from iris.client.http.encode import encode_json
from iris.client.http.transport import BROKEN, HttpRequest, in_path
from iris.client.problems import ExecutionLost
from iris_core.views.streams import ExecutionLine, ExecutionPosition

PIECE = 192 * 1024
_SILENCE_S = 60.0
_READ_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """Rows and columns of a terminal, and its type, as in the variable TERM."""

    rows: int
    columns: int
    term: str = ""


class RemoteStream:
    """What one request opens at a task; iterate for what comes from there until it has ended.

    Leaving the context ends it, but for a task's own terminal. One thread reads; another one may
    write.

    Attributes:
        exit_code: of what has ended. error: why it was ended.

    Args:
        path: of the request, below the task's. body: what is asked for.

    Raises Problem, Unreachable.
    """

    def __init__(self, api: GatewayApi, task: str, path: str, body: dict[str, object]) -> None:
        self._api = api
        self._position = 0
        self.exit_code: int | None = None
        self.error = ""
        path = f"/v1/tasks/{in_path(task)}/{path}"
        headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        request = HttpRequest("POST", path, body=encode_json(body), headers=headers)
        self._channel = api.transport.start(request, _SILENCE_S)
        self._lines = self._read()
        self._path = f"/v1/executions/{in_path(next(self._lines).execution)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; any thread may, also while another one reads."""
        self._channel.interrupt()
        self._channel.close()

    def __iter__(self) -> Iterator[ExecutionLine]:
        """Its output. Raises ExecutionLost when the command was ended, and its own end was not
        seen.
        """
        for line in self._lines:
            if line.stdout or line.stderr or line.closed:
                yield line
            if line.ended:
                self.error = line.error
                self.exit_code = line.exit_code if line.signal is None else 128 + line.signal
                if line.error and line.exit_code is None:
                    raise ExecutionLost(line.error)
                return

    def write(self, data: bytes, *, end: bool = False) -> None:
        """Give it input; returns when all of it is taken. ``end``: nothing follows. Raises
        Problem.
        """
        start = self._position
        while True:
            rest = data[self._position - start :][:PIECE]
            last = self._position - start + len(rest) == len(data)
            body = {"offset": self._position, "data": rest, "end": end and last}
            self._position = self._send(body)
            if last and self._position - start >= len(data):
                return

    def alive(self) -> None:
        """Say that this client is there, which may not read for a while. Raises Problem."""
        self._send({"offset": self._position})

    def signal(self, name: str) -> None:
        """Signal its process group: INT, TERM and so on. Raises Problem."""
        self._send({"offset": self._position, "signal": name})

    def resize(self, rows: int, columns: int) -> None:
        """Its terminal has another size. Raises Problem."""
        self._send({"offset": self._position, "rows": rows, "columns": columns})

    def _send(self, body: dict[str, object]) -> int:
        return self._api.post(self._path, ExecutionPosition, body=body).position

    def _read(self) -> Iterator[ExecutionLine]:
        rest = b""
        while True:
            try:
                chunk = self._channel.response.read1(_READ_BYTES)
            except (*BROKEN, http.client.IncompleteRead, ValueError, AttributeError) as error:
                raise ExecutionLost(f"the connection to the gateway broke: {error}") from error
            if not chunk:
                raise ExecutionLost("the gateway has closed the connection")
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield from_json(line, ExecutionLine)


class RemoteCommand(RemoteStream):
    """A command beside a task, on a terminal of that size if one is given."""

    def __init__(
        self,
        api: GatewayApi,
        task: str,
        command: Sequence[str],
        *,
        terminal: TerminalSize | None = None,
    ) -> None:
        body: dict[str, object] = {"command": list(command)}
        if terminal is not None:
            body |= {
                "tty": True,
                "rows": terminal.rows,
                "columns": terminal.columns,
                "term": terminal.term,
            }
        super().__init__(api, task, "executions", body)


class RemoteTerminal(RemoteStream):
    """The own terminal of a task, whose process goes on for a minute when nobody is connected to
    it.
    """

    def __init__(self, api: GatewayApi, task: str, size: TerminalSize) -> None:
        super().__init__(api, task, "terminal", {"rows": size.rows, "columns": size.columns})


class RemotePort(RemoteStream):
    """A connection to a TCP port on which a process of a task listens."""

    def __init__(self, api: GatewayApi, task: str, port: int) -> None:
        super().__init__(api, task, "tunnels", {"port": port})
