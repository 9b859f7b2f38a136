"""The moments at which attempts end, as they are told on the bus: a result or an artifact is stored,
a worker reports an end.

Whoever waits for one is woken before the end can be in the journal, or just then. Out of scope: what
is done at that moment (`killer`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from iris_bus.connection.connection import Credentials
from iris_bus.contract import Message, Unavailable
from iris_bus.jetstream import JetStreamConnection, connect
from iris_core import codec, subjects
from iris_core.messages.processes import Ping
from iris_core.messages.state_worker import WorkerReport

_LOOK_S = 0.2
KINDS = ("result", "artifact", "end")


@dataclass
class Moments:
    """Listens until it is told to stop.

    Attributes:
        leader: the process that leads, as of its last answer; 0: nobody has answered.
    """

    url: str
    credentials: Credentials
    leader: int = 0
    enough: threading.Event = field(default_factory=threading.Event)
    _heard: threading.Condition = field(default_factory=threading.Condition)
    _last: dict[str, tuple[int, str]] = field(default_factory=dict)

    def run(self) -> None:
        asyncio.run(self._listen())

    def next(self, kind: str, within_s: float, suits: Callable[[str], bool]) -> str:
        """The worker of the next moment of that kind, if it suits. Raises LookupError."""
        with self._heard:
            before = self._last.get(kind, (0, ""))[0]

            def has_come() -> bool:
                number, worker = self._last.get(kind, (0, ""))
                return number > before and suits(worker)

            if not self._heard.wait_for(has_come, within_s):
                raise LookupError(f"no {kind}")
            return self._last[kind][1]

    async def _listen(self) -> None:
        connection = await connect(
            self.url, name="moments", credentials=self.credentials, on_lost=lambda _: None
        )
        bus = connection.bus
        heard = {
            "iris.result.*.*": lambda message: self._note("result", message),
            "iris.artifact.*.*.*": lambda message: self._note("artifact", message),
            subjects.REPORTS: self._on_report,
        }
        for subject, callback in heard.items():
            await bus.subscribe(subject, callback)
        while not self.enough.is_set():
            await self._ask(connection)
            await asyncio.sleep(_LOOK_S)
        await connection.close()

    async def _ask(self, connection: JetStreamConnection) -> None:
        with contextlib.suppress(Unavailable, codec.Undecodable):
            pong = await connection.bus.request(subjects.STATE_PING, b"", timeout=_LOOK_S)
            self.leader = int(codec.unpack(pong.data, Ping).leader.partition("-")[0])

    def _on_report(self, message: Message) -> None:
        with contextlib.suppress(codec.Undecodable):
            report = codec.unpack(message.data, WorkerReport)
            if any(stage.ended is not None for stage in report.stages):
                self._note("end", message)

    def _note(self, kind: str, message: Message) -> None:
        worker = subjects.sender(message.subject)
        with self._heard:
            self._last[kind] = (self._last.get(kind, (0, ""))[0] + 1, worker)
            self._heard.notify_all()
