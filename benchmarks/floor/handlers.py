"""``python -m benchmarks.floor.handlers starlette|aiohttp PORT``: a handler that answers every GET
with 1 KiB.
"""

from __future__ import annotations

import asyncio
import sys

import uvicorn
from aiohttp import web
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

BODY = b"x" * 1024


def starlette(port: int) -> None:
    async def answer(_: Request) -> Response:
        return Response(BODY)

    uvicorn.run(
        Starlette(routes=[Route("/{path:path}", answer)]),
        port=port,
        http="httptools",
        access_log=False,
        log_level="error",
    )


def aiohttp(port: int) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(body=BODY)

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(
            web.Server(answer, access_log=None), "127.0.0.1", port
        )
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    {"starlette": starlette, "aiohttp": aiohttp}[sys.argv[1]](int(sys.argv[2]))
