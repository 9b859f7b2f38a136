"""Ray Serve's HTTP proxy before a deployment that answers 1 KiB: ``python ray_serve_peer.py PORT``.

Prints the proxy's process id once it answers, and serves until its standard input ends.
"""

import sys

import ray
from ray import serve
from starlette.requests import Request
from starlette.responses import PlainTextResponse

BODY = "x" * 1024


@serve.deployment(max_ongoing_requests=100)
class Answering:
    async def __call__(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(BODY)


def main(port: int) -> None:
    ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        serve.run(Answering.bind(), route_prefix="/")
        print("ready", flush=True)
        sys.stdin.read()
    finally:
        serve.shutdown()
        ray.shutdown()


main(int(sys.argv[1]))
