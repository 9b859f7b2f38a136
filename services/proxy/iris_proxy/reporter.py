"""Reports the load of deployments with a scaling rule, and requests: every second, and at once when
one wakes.

Source: docs/design/serving.md#scale.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket

from iris_bus.contract import Bus
from iris_core import codec
from iris_core.messages.proxy_state import LoadReport
from iris_core.subjects import LOADS
from iris_proxy.proxy import Proxy

REPORT_S = 1.0


class LoadReporter:
    """The reporter of one proxy process, with its own id: the state service adds up the reports of
    all processes.
    """

    def __init__(self, proxy: Proxy, bus: Bus) -> None:
        self._proxy = proxy
        self._bus = bus
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._leaving = False

    async def run(self) -> None:
        """Report until `leave`."""
        while not self._leaving:
            loads = self._proxy.loads()
            requests = self._proxy.requests()
            if loads or requests:
                self._bus.publish(
                    LOADS, codec.pack(LoadReport(self._name, loads, requests=requests))
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._proxy.woken.wait()
            self._proxy.woken.clear()

    def leave(self) -> None:
        """Report that this process stops, so that its silence does not count as a fault."""
        self._leaving = True
        self._bus.publish(LOADS, codec.pack(LoadReport(self._name, leaving=True)))
