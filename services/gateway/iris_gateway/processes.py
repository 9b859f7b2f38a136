"""Asks all processes of the cluster who they are, and remembers those that have stopped answering
for a while.

Workers are not asked: the state service knows them. Out of scope: how a process answers
    (`iris_service.run`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from iris_bus.contract import Bus, Message
from iris_core.codec import Undecodable, unpack
from iris_core.messages.processes import ServiceInfo
from iris_core.subjects import DESCRIBE

COLLECT_S = 0.1
LAST_ANSWER_S = 1.0
FRESH_S = 1.0
FORGET_S = 600.0
MAX_PROCESSES = 200


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """A process and how many seconds ago it answered last; 0: to the last question.

    ``clock_ahead_s``: its clock less this gateway's when its answer arrived; None: it did not say.
    """

    info: ServiceInfo
    silent_s: float = 0.0
    clock_ahead_s: float | None = None


class Processes:
    """The processes of the cluster.

    Args:
        clock: monotonic seconds. wall_ms: milliseconds since the epoch.
        wait_s: how long answers are waited for, because how many will come is not known.
        last_answer_s: how long a leader of the state service, and those that answered the last
            time, are waited for.
    """

    def __init__(
        self,
        bus: Bus,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        wait_s: float = COLLECT_S,
        last_answer_s: float = LAST_ANSWER_S,
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._wall_ms = wall_ms
        self._wait_s = wait_s
        self._last_answer_s = last_answer_s
        self._inbox = ""
        self._known: dict[str, tuple[ServiceInfo, float]] = {}
        self._ahead_s: dict[str, float] = {}
        self._asked_s = float("-inf")
        self._missing: set[str] = set()
        self._led = False
        self._complete = asyncio.Event()
        self._asking = asyncio.Lock()

    async def all(self) -> list[KnownProcess]:
        """Processes by service and start. Nobody is asked more often than once a second. Raises
        Unavailable.
        """
        async with self._asking:
            if self._clock() - self._asked_s > FRESH_S:
                await self._ask()
        now_s = self._clock()
        since_s = self._asked_s
        found = [
            KnownProcess(
                info,
                0.0 if answered_s >= since_s else now_s - answered_s,
                self._ahead_s.get(info.id),
            )
            for info, answered_s in self._known.values()
        ]
        return sorted(found, key=lambda one: (one.info.service, one.info.started_ms, one.info.id))

    async def _ask(self) -> None:
        before_s = self._asked_s
        self._asked_s = self._clock()
        self._known = {
            id_: one for id_, one in self._known.items() if self._asked_s - one[1] < FORGET_S
        }
        self._ahead_s = {id_: one for id_, one in self._ahead_s.items() if id_ in self._known}
        self._missing = {
            id_ for id_, (_, answered_s) in self._known.items() if answered_s >= before_s
        }
        self._led = False
        self._complete.clear()
        if not self._inbox:
            self._inbox = self._bus.new_inbox()
            await self._bus.subscribe(self._inbox, self._heard)
        self._bus.publish(DESCRIBE, b"", reply=self._inbox)
        await asyncio.sleep(self._wait_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._last_answer_s):
                await self._complete.wait()

    def _heard(self, message: Message) -> None:
        with contextlib.suppress(Undecodable):
            info = unpack(message.data, ServiceInfo)
            if info.id in self._known or len(self._known) < MAX_PROCESSES:
                self._known[info.id] = (info, self._clock())
                if info.now_ms:
                    self._ahead_s[info.id] = (info.now_ms - self._wall_ms()) / 1000
            self._missing.discard(info.id)
            self._led |= info.replica is not None and info.replica.leads
            if self._led and not self._missing:
                self._complete.set()
