"""Serves requests to execute commands beside tasks, to read their terminals, and to connect to
their ports. Part of the
shell: it waits for output, and for time.

The client reads by requests, one piece after the other, so nothing is sent faster than it is read.
A command, or a connection, is ended when its client has not asked for some time, when it is idle or
lasts for too long, and with its task; a terminal is left for the next client.
Source: docs/adr/0044-commands-beside-tasks-are-read-by-requests.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from iris_bus.contract import Bus, Message, Subscription
from iris_core import codec, subjects
from iris_core.messages.gateway_worker import (
    CloseExecution,
    ExecutionOutput,
    ExecutionRequest,
    ExecutionTaken,
    ReadExecution,
    StartExecution,
    WriteExecution,
)
from iris_core.messages.message import AttemptRef
from iris_worker.attempt.beside import CommandsBeside
from iris_worker.attempt.executions import listeners
from iris_worker.attempt.executions.connection import PortConnection
from iris_worker.attempt.executions.execution import Execution
from iris_worker.attempt.executions.room import NoRoom, Running, gives_way
from iris_worker.attempt.executions.terminals import Terminals
from iris_worker.attempt.running import RunningAttempts
from iris_worker.environment import EXEC_VARIABLE
from iris_worker.launcher.records.records import Exit
from iris_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

WAIT_S = 3.0
"""How long a request waits for output, or for room for input."""
_SILENT_S = 15.0
_CHECK_S = 1.0
_SIGNALS = {
    name: getattr(signal, f"SIG{name}")
    for name in ("INT", "QUIT", "TERM", "HUP", "KILL", "USR1", "USR2")
}
_UNKNOWN = "its worker has ended it, or was restarted"
_TAKEN = "another client has connected to the terminal"
_GONE = "its client has gone"


_NOT_TO_BE_RETRIED = 255

Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(slots=True, eq=False)
class Served:
    """A command, and when its client last asked, by the loop's clock.

    Attributes:
        number: of the command at the launcher; 0: it is a terminal, or a connection.
        terminal: whether it is one.
        ref: of the attempt.
    """

    execution: Execution
    ref: AttemptRef
    asked_s: float
    number: int = 0
    terminal: bool = False
    reading: int = 0


class ExecutionServer:
    """All commands that are executed beside tasks of this host, with their terminals and
    connections.

    Args:
        spawn: runs a coroutine as one of the worker's tasks.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        attempts: RunningAttempts,
        commands: CommandsBeside,
        terminals: Terminals,
        bus: Bus,
        spawn: Spawn,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._commands = commands
        self._terminals = terminals
        self._bus = bus
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._served: dict[str, Served] = {}
        self._connecting = 0
        self._check_terminals()

    async def subscribe(self, worker: str) -> Subscription:
        return await self._bus.subscribe(subjects.execution(worker), self._on_request)

    def _on_request(self, message: Message) -> None:
        try:
            request: Any = codec.unpack(message.data, ExecutionRequest)  # type: ignore[arg-type]
        except codec.Undecodable as error:
            log.error("undecodable execution request: %s", error)
            return
        if isinstance(request, StartExecution):
            if request.terminal or request.port:
                self._spawn(self._open(message, request))
            else:
                self._answer(message, self._start(request))
        elif isinstance(request, CloseExecution):
            self._end(request.execution, _GONE)
        elif isinstance(request, ReadExecution):
            self._spawn(self._read(message, request))
        else:
            self._spawn(self._write(message, request))

    def _answer(self, message: Message, answer: ExecutionTaken | ExecutionOutput) -> None:
        if message.reply:
            self._bus.publish(message.reply, codec.pack(answer))

    # ── start and end ─────────────────────────────────────────────────────────────────────────────

    def _start(self, request: StartExecution) -> ExecutionTaken:
        if request.execution in self._served:
            return ExecutionTaken()
        try:
            self._make_room(request.user, self._settings.exec_at_once)
            execution = Execution.of_command(request.user, request.tty)
        except (NoRoom, OSError) as error:
            return ExecutionTaken(error=str(error))
        execution.resize(request.rows, request.columns)
        env = {EXEC_VARIABLE: "1"} | (
            {"TERM": request.term} if request.tty and request.term else {}
        )
        try:
            number = self._commands.start(
                request.ref,
                request.command,
                execution.stdio,
                execution.on_exit,
                env=env,
                inherits=True,
                tty=request.tty,
            )
        except OSError as error:
            execution.close()
            return ExecutionTaken(error=error.strerror or str(error))
        execution.begin()
        self._serve(request, Served(execution, request.ref, self._loop.time(), number))
        log.info(
            "executes",
            extra={
                "execution": request.execution,
                "user": request.user,
                "command": request.command,
            },
        )
        return ExecutionTaken()

    def _serve(self, request: StartExecution, served: Served) -> None:
        self._served[request.execution] = served
        self._loop.call_later(_CHECK_S, self._check, request.execution)

    async def _open(self, message: Message, request: StartExecution) -> None:
        """Give a client a task's terminal, or a connection to a port of it."""
        try:
            served = await (self._attach(request) if request.terminal else self._connect(request))
        except (NoRoom, OSError) as error:
            self._answer(message, ExecutionTaken(error=str(error) or type(error).__name__))
            return
        self._serve(request, served)
        what = {"terminal": request.terminal, "port": request.port, "attempt": str(request.ref)}
        log.info("opens", extra={"execution": request.execution, "user": request.user, **what})
        self._answer(message, ExecutionTaken())

    async def _attach(self, request: StartExecution) -> Served:
        """The last client to ask has the terminal, and the one before learns it. Raises OSError."""
        execution = await self._terminals.attach(request.ref, request.user)
        for served in self._served.values():
            if served.execution is execution:
                served.execution = Execution(served.execution.user, -1, {})
                served.execution.error = _TAKEN
                served.execution.on_exit(Exit(_NOT_TO_BE_RETRIED))
        execution.resize(request.rows, request.columns)
        return Served(execution, request.ref, self._loop.time(), terminal=True)

    async def _connect(self, request: StartExecution) -> Served:
        """Raises NoRoom, OSError."""
        attempt = self._attempts.living(request.ref)
        if attempt is None:
            raise ProcessLookupError("the task does not run here")
        self._make_room(
            request.user, max(0, self._settings.tunnels_at_once - self._connecting), tunnels=True
        )
        self._connecting += 1
        try:
            line = await asyncio.to_thread(
                listeners.connect, attempt.slot.workdir, attempt.pid, request.port
            )
        finally:
            self._connecting -= 1
        if not attempt.alive:
            line.close()
            raise ProcessLookupError("the task has ended")
        execution = PortConnection(request.user, line)
        execution.begin()
        return Served(execution, request.ref, self._loop.time())

    def _make_room(self, user: str, at_once: int, *, tunnels: bool = False) -> None:
        """End one of a user who has more than a share of the host, if need be. Raises NoRoom."""
        alive = {
            name: one.execution
            for name, one in self._served.items()
            if not (one.terminal or one.execution.over or one.execution.error)
            and (one.number == 0) == tunnels
        }
        running = [
            Running(name, execution.user, execution.active_s) for name, execution in alive.items()
        ]
        what = "connections" if tunnels else "commands"
        if name := gives_way(running, user, at_once, what):
            self._end(
                name,
                f"ended for {user}: one user may have half of a host's {what} while others wait",
            )

    def _end(self, name: str, why: str) -> None:
        """Kill a command, close a connection, leave a terminal; forget what has ended."""
        served = self._served.get(name)
        if served is None:
            return
        if served.execution.over or served.terminal:
            del self._served[name]
            if served.execution.over:
                served.execution.close()
            else:
                self._terminals.leave(served.execution)
            return
        served.execution.error = served.execution.error or why
        if served.number:
            self._commands.signal(served.number, signal.SIGKILL)
        else:
            served.execution.close()

    def _check(self, name: str) -> None:
        """End a command that has reached a limit."""
        served = self._served.get(name)
        now_s = self._loop.time()
        settings = self._settings
        if served is None:
            return
        execution = served.execution
        if not served.reading and now_s - served.asked_s > _SILENT_S:
            self._end(name, _GONE)
        elif not served.number and self._attempts.living(served.ref) is None and not execution.over:
            self._end(name, "its task has ended")
        elif served.terminal:
            pass  # its task is what is limited
        elif now_s - execution.active_s > settings.exec_idle_s:
            self._end(name, f"idle for {settings.exec_idle_s:g} s")
        elif now_s - execution.began_s > settings.exec_longest_s:
            self._end(name, f"it ran for {settings.exec_longest_s:g} s")
        self._loop.call_later(_CHECK_S, self._check, name)

    def _check_terminals(self) -> None:
        self._terminals.check()
        self._loop.call_later(_CHECK_S, self._check_terminals)

    def close(self) -> None:
        """The worker ends, and with it all commands and connections."""
        self._terminals.close()
        for served in self._served.values():
            served.execution.close()

    # ── input and output ──────────────────────────────────────────────────────────────────────────

    async def _read(self, message: Message, request: ReadExecution) -> None:
        served = self._served.get(request.execution)
        if served is None:
            self._answer(message, ExecutionOutput(request.after + 1, ended=True, error=_UNKNOWN))
            return
        served.reading += 1
        output = served.execution.take(request.after)
        if output.number == request.after:
            await self._wait(served)
            output = served.execution.take(request.after)
        served.reading -= 1
        served.asked_s = self._loop.time()
        self._answer(message, output)

    async def _write(self, message: Message, request: WriteExecution) -> None:
        served = self._served.get(request.execution)
        if served is None or served.execution.user != request.user:
            self._answer(message, ExecutionTaken(error=_UNKNOWN))
            return
        execution = served.execution
        served.asked_s = self._loop.time()
        if request.signal in _SIGNALS and served.number:
            self._commands.signal(served.number, _SIGNALS[request.signal])
        elif request.signal in _SIGNALS and served.terminal:
            execution.interrupt(_SIGNALS[request.signal])
        if request.rows and request.columns:
            execution.resize(request.rows, request.columns)
        position = execution.write(request.offset, request.data, request.end)
        if request.data and position <= request.offset:
            await self._wait(served)
            position = execution.write(request.offset, request.data, request.end)
        self._answer(message, ExecutionTaken(position))

    async def _wait(self, served: Served) -> None:
        """Wait until something has happened, for a limited time."""
        served.execution.news.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await served.execution.news.wait()
