"""A minimal reverse proxy on aiohttp: ``python aiohttp_proxy.py LISTEN_PORT ROUTE_PORT``."""

import asyncio
import sys

import aiohttp
from aiohttp import web


async def main(port: int, route: int) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            async with session.request(
                request.method,
                f"http://127.0.0.1:{route}{request.raw_path}",
                headers=request.headers,
            ) as answer:
                response = web.StreamResponse(status=answer.status, headers=answer.headers)
                await response.prepare(request)
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
                return response

        server = await asyncio.get_running_loop().create_server(
            web.Server(handle, access_log=None), "127.0.0.1", port
        )
        await server.serve_forever()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
