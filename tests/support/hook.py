"""A receiver of webhooks on this machine."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """A receiver of webhooks.

    Attributes:
        events: what has arrived, in order. is_away: every request is refused.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_away = False
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is given by the base
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if not hook.is_away:
                    hook.events.append(json.loads(body))
                self.send_response(503 if hook.is_away else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def jobs(self, kind: str) -> set[str]:
        """The jobs of which it was told so."""
        return {
            event.get("subject", "") for event in self.events if event["type"] == f"iris.job.{kind}"
        }
