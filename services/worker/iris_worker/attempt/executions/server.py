"""Serves requests to execute commands beside tasks. Part of the shell: it waits for output, and for time.

The client reads by requests, one piece after the other, so nothing is sent faster than it is read. A command is ended
when its client has not asked for some time, when it is idle or runs for too long, and with its task.
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
from iris_worker.attempt.beside import CommandsBeside
from iris_worker.attempt.environment import EXEC_VARIABLE
from iris_worker.attempt.executions.execution import Execution
from iris_worker.attempt.executions.room import NoRoom, Running, gives_way
from iris_worker.settings import WorkerSettings

log = logging.getLogger(__name__)

WAIT_S = 3.0
"""How long a request waits for output, or for room for input."""
_SILENT_S = 15.0
_CHECK_S = 1.0
_SIGNALS = {name: getattr(signal, f"SIG{name}") for name in ("INT", "QUIT", "TERM", "HUP", "KILL", "USR1", "USR2")}
_UNKNOWN = "its worker has ended it, or was restarted"


Spawn = Callable[[Coroutine[Any, Any, None]], object]


@dataclass(slots=True, eq=False)
class Served:
    """A command with its number at the launcher, and when its client last asked, by the loop's clock."""

    execution: Execution
    number: int
    asked_s: float
    reading: int = 0


class ExecutionServer:
    """All commands that are executed beside tasks of this host.

    Args:
        spawn: runs a coroutine as one of the worker's tasks.
    """

    def __init__(self, settings: WorkerSettings, commands: CommandsBeside, bus: Bus, spawn: Spawn) -> None:
        self._settings = settings
        self._commands = commands
        self._bus = bus
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._served: dict[str, Served] = {}

    async def subscribe(self, worker: str) -> Subscription:
        return await self._bus.subscribe(subjects.execution(worker), self._on_request)

    def _on_request(self, message: Message) -> None:
        try:
            request: Any = codec.unpack(message.data, ExecutionRequest)  # type: ignore[arg-type]
        except codec.Undecodable as error:
            log.error("undecodable execution request: %s", error)
            return
        if isinstance(request, StartExecution):
            self._answer(message, self._start(request))
        elif isinstance(request, CloseExecution):
            self._end(request.execution, "its client has gone")
        elif isinstance(request, ReadExecution):
            self._spawn(self._read(message, request))
        else:
            self._spawn(self._write(message, request))

    def _answer(self, message: Message, answer: ExecutionTaken | ExecutionOutput) -> None:
        if message.reply:
            self._bus.publish(message.reply, codec.pack(answer))

    # ── start and end ───────────────────────────────────────────────────────────────────────────────────────────

    def _start(self, request: StartExecution) -> ExecutionTaken:
        if request.execution in self._served:
            return ExecutionTaken()
        try:
            self._make_room(request.user)
            execution = Execution(request.user, request.tty)
        except (NoRoom, OSError) as error:
            return ExecutionTaken(error=str(error))
        execution.resize(request.rows, request.columns)
        env = {EXEC_VARIABLE: "1"} | ({"TERM": request.term} if request.tty and request.term else {})
        try:
            number = self._commands.start(
                *(request.ref, request.command, execution.stdio, execution.on_exit),
                env=env,
                inherits=True,
                tty=request.tty,
            )
        except OSError as error:
            execution.close()
            return ExecutionTaken(error=error.strerror or str(error))
        execution.begin()
        self._served[request.execution] = Served(execution, number, self._loop.time())
        self._loop.call_later(_CHECK_S, self._check, request.execution)
        log.info("executes", extra={"execution": request.execution, "user": request.user, "command": request.command})
        return ExecutionTaken()

    def _make_room(self, user: str) -> None:
        """End a command of a user who has more than a share of the host, if need be. Raises NoRoom."""
        alive = {
            name: one.execution for name, one in self._served.items() if not (one.execution.over or one.execution.error)
        }
        running = [Running(name, execution.user, execution.active_s) for name, execution in alive.items()]
        if name := gives_way(running, user, self._settings.exec_at_once):
            self._end(name, f"it gave way to {user}: nobody has more than half of a host's commands while others wait")

    def _end(self, name: str, why: str) -> None:
        """Kill a command, or forget it when it has ended."""
        served = self._served.get(name)
        if served is None:
            return
        if served.execution.over:
            del self._served[name]
            served.execution.close()
            return
        served.execution.error = served.execution.error or why
        self._commands.signal(served.number, signal.SIGKILL)

    def _check(self, name: str) -> None:
        """End a command that has reached a limit."""
        served, now_s, settings = self._served.get(name), self._loop.time(), self._settings
        if served is None:
            return
        execution = served.execution
        if not served.reading and now_s - served.asked_s > _SILENT_S:
            self._end(name, "its client has gone")
        elif now_s - execution.active_s > settings.exec_idle_s:
            self._end(name, f"idle for {settings.exec_idle_s:g} s")
        elif now_s - execution.began_s > settings.exec_longest_s:
            self._end(name, f"it ran for {settings.exec_longest_s:g} s")
        self._loop.call_later(_CHECK_S, self._check, name)

    def close(self) -> None:
        """The worker ends, and with it all commands."""
        for served in self._served.values():
            served.execution.close()

    # ── input and output ────────────────────────────────────────────────────────────────────────────────────────

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
        if request.signal in _SIGNALS:
            self._commands.signal(served.number, _SIGNALS[request.signal])
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
