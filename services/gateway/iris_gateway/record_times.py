"""The times of records, as the leader tells them now and then: what the state service dates is judged
by them and not by the wall clock of this host, which may be off.

Source: docs/adr/0154-times-of-records-pass-steadily.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from iris_bus.contract import Bus, Unavailable
from iris_core.codec import Undecodable, pack, unpack
from iris_core.messages.processes import Ping
from iris_core.subjects import STATE_PING
from iris_service.boot import since_boot_ns

_EVERY_S = 15.0
_AGAIN_S = 1.0
_ANSWER_S = 2.0
_NS = 1_000_000


class RecordTimes:
    """The time of records now.

    Args:
        wall_ms: the time of day, which is all that is known before the first answer.
    """

    def __init__(
        self,
        bus: Bus,
        wall_ms: Callable[[], int],
        steady_ns: Callable[[], int] = since_boot_ns,
    ) -> None:
        self._bus = bus
        self._wall_ms = wall_ms
        self._steady_ns = steady_ns
        self._boot_ms: int | None = None

    def now_ms(self) -> int:
        if self._boot_ms is None:
            return self._wall_ms()
        return self._boot_ms + self._steady_ns() // _NS

    async def follow(self) -> None:
        """Ask the leader again and again, until cancelled."""
        while True:
            answered = await self.ask()
            await asyncio.sleep(_EVERY_S if answered else _AGAIN_S)

    async def ask(self) -> bool:
        """Ask the leader; False when it has not said its time."""
        try:
            answer = await self._bus.request(STATE_PING, pack(Ping()), timeout=_ANSWER_S)
            said_ms = unpack(answer.data, Ping).now_ms
        except (Unavailable, Undecodable):
            return False
        if said_ms:
            self._boot_ms = said_ms - self._steady_ns() // _NS
        return bool(said_ms)
