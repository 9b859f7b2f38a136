"""The service of a chaos deployment, ``server.py VERSION DIRECTORY``: an HTTP server that returns
its route.

The version says how it behaves: ``bad-1`` exits at once, ``never-1`` fails its probe for ever, any
other serves. Every version fails its probe while `ill_file` of its job exists.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def ill_file(directory: str | Path, job: str) -> Path:
    """While it exists, the route of a job fails its probe."""
    return Path(directory, job.strip("/").replace("/", "."))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        version, directory, job = sys.argv[1], sys.argv[2], os.environ["IRIS_JOB"]
        ill = version.startswith("never") or ill_file(directory, job).exists()
        body = json.dumps({"job": job, "version": version}).encode()
        self.send_response(503 if self.path == "/healthz" and ill else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes are too many to be printed."""


if __name__ == "__main__":
    if sys.argv[1].startswith("bad"):
        sys.exit(3)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ThreadingHTTPServer(("", int(os.environ["IRIS_PORT_HTTP"])), Handler).serve_forever()
