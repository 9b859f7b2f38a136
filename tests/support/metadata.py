"""The metadata server of a virtual machine of Compute Engine, on loopback; what it says may
change.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

from aiohttp import web

PREEMPTED = {"preempted": "TRUE"}
QUIET = {"preempted": "FALSE", "maintenanceEvent": "NONE"}
TPU_VM = {
    "zone": "projects/1234/zones/us-central2-b",
    "scheduling": {"preemptible": "TRUE", "onHostMaintenance": "TERMINATE"},
    "attributes": {
        "accelerator-type": "v5litepod-16",
        "agent-worker-number": "2",
        "tpu-env": "ACCELERATOR_TYPE: 'v5litepod-16'\nNODE_ID: 'train-0'\nTOPOLOGY: '4x4'\nZONE: 'us-central2-b'\n",
    },
}


class MetadataServer:
    """Serves one instance at ``url`` within a block."""

    def __init__(self, instance: dict[str, Any]) -> None:
        self._instance = {**instance, **QUIET}
        self._changed = asyncio.Event()
        self._tag = 1
        self.url = ""

    def say(self, values: dict[str, str]) -> None:
        """Change some values."""
        self._instance |= values
        self._tag += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        if request.query.get("wait_for_change") == "true" and request.query["last_etag"] == str(
            self._tag
        ):
            await self._changed.wait()
        headers = {"ETag": str(self._tag), "Metadata-Flavor": "Google"}
        return web.json_response(self._instance, headers=headers)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/computeMetadata/v1/instance/", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._changed.set()
        await self._runner.cleanup()
