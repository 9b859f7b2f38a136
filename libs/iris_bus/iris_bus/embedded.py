"""A supervised `nats-server` for one machine: started, watched, restarted on the same ports, stopped.

    async with EmbeddedNats(directory) as nats:
        connection = await connect(nats.url, name="state")
        await nats.wait()

Out of scope: how the process is found, configured and locked (`nats_binary`, `nats_process`); a cluster of servers
(`deploy/nats`). Source: docs/design/nats.md#embedded-server; docs/ARCHITECTURE.md#storage.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType

from iris_bus.nats_process import DamagedFiles, NatsProcess, StartFailed
from iris_bus.termination import end

log = logging.getLogger(__name__)

_GLANCE_S = 0.02
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_STEADY_S = 30.0


class EmbeddedNats:
    """One server on ``directory`` for as long as the block lasts; a crash is followed by a restart on the same ports.

    Restarts back off from 50 ms to 5 s; `wait` returns only when a restart is impossible, with the reason raised.
    """

    def __init__(self, directory: Path, *, sync: str = "always", start_timeout: float = 20.0) -> None:
        self.process = NatsProcess(directory, sync=sync)
        self.restarts = 0
        self._start_timeout = start_timeout
        self._keeper: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where clients connect, with user and password; the same across restarts."""
        return self.process.url

    @property
    def monitor_url(self) -> str:
        return self.process.monitor_url

    @property
    def pid(self) -> int:
        """0 between a crash and the restart."""
        return self.process.pid

    async def start(self) -> None:
        """Return when it serves. Raises Occupied, StartFailed, NoServer."""
        try:
            await self._launch()
        except BaseException:
            self.process.stop(grace=1.0)
            raise
        self._keeper = asyncio.create_task(self._keep())

    async def wait(self) -> None:
        """Return when stopped; raise what made a restart impossible."""
        if self._keeper is not None:
            await asyncio.shield(self._keeper)

    async def stop(self, grace: float = 15.0) -> None:
        """TERM, then KILL; returns when it is gone."""
        await end(self._keeper)
        await asyncio.to_thread(self.process.stop, grace)

    async def __aenter__(self) -> EmbeddedNats:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def _launch(self) -> None:
        # Spawned from this thread on purpose: the kernel's parent-death signal follows the thread that forked.
        self.process.spawn()
        async with asyncio.timeout(self._start_timeout):
            while not self.process.ready():  # noqa: ASYNC110 - another process has no event to wait for
                await asyncio.sleep(0.005)

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE_S
        clock = asyncio.get_running_loop().time
        while True:
            started = clock()
            while self.process.ended() is None:  # noqa: ASYNC110 - another process has no event to wait for
                await asyncio.sleep(_GLANCE_S)
            if clock() - started > _STEADY_S:
                pause = _FIRST_PAUSE_S
            log.warning("nats-server ended with %s, starting it again in %.2f s", self.process.ended(), pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            try:
                await self._launch()
            except DamagedFiles:
                raise
            except (StartFailed, TimeoutError) as error:
                log.warning("nats-server did not come back: %s", error)
                self.process.kill()
                continue
            self.restarts += 1
