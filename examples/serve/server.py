"""A model server: logistic regression in plain Python, trained when it starts, behind HTTP on
IRIS_PORT_HTTP.

iris deploy create iris-demo --replicas 3 --workdir examples/serve --wait -- python server.py
curl -d '{"x": [0.9, 0.8]}' http://127.0.0.1:8081/d/iris-demo/predict
"""

import json
import math
import os
import random
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def train(steps: int = 2000) -> list[float]:
    """Weights that tell whether the two numbers of a point add up to more than 1."""
    chance, weights = random.Random(7), [0.0, 0.0, 0.0]
    for _ in range(steps):
        point = [chance.random(), chance.random(), 1.0]
        error = float(sum(point[:2]) > 1) - predict(weights, point)
        weights = [weight + error * value for weight, value in zip(weights, point, strict=True)]
    return weights


def predict(weights: list[float], point: list[float]) -> float:
    return 1 / (
        1 + math.exp(-sum(weight * value for weight, value in zip(weights, point, strict=True)))
    )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    weights = train()

    def do_GET(self) -> None:
        self.answer(
            {"status": "ok"}
            if self.path == "/healthz"
            else {"pid": os.getpid(), "version": sys.argv[1:]}
        )

    def do_POST(self) -> None:
        point = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["x"]
        self.answer({"probability": predict(self.weights, [*point, 1.0])})

    def answer(self, value: dict[str, object]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged: probes are too many."""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
