"""A small real HTTP server with scripted answers that records its requests."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Asked:
    """One request as it came; ``connection`` tells connections apart."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Said:
    """One answer. ``hang_up`` closes the connection instead.

    ``body``: an iterator is sent piece by piece, anything else that is no bytes as JSON.
    """

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hang_up: bool = False

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()

    @property
    def pieces(self) -> Iterable[bytes]:
        return self.body if isinstance(self.body, Iterator) else [self.data]


Answering = Callable[[Asked], Said]


class Answers:
    """The server: ``url``, what it was ``asked``, and ``answer``, which a test may replace at any
    time.
    """

    def __init__(self, url: str, answer: Answering) -> None:
        self.url = url
        self.answer = answer
        self.requests: list[Asked] = []


def in_turn(*answers: Said) -> Answering:
    """Each request gets the next answer; the last one is given again and again."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def problem(status: int, code: str, detail: str, **members: Any) -> Said:
    """A problem document."""
    headers = {"Content-Type": "application/problem+json"}
    return Said(status, {"code": code, "detail": detail, "status": status, **members}, headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless the client has left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def answering(answer: Answering, host: str = "127.0.0.2") -> Iterator[Answers]:
    """A server for as long as the block lasts, at an address where no cluster of another test is
    given its port.
    """
    answers: Answers

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            requests = Asked(
                self.command,
                self.path,
                dict(self.headers),
                self.rfile.read(length),
                self.client_address[1],
            )
            answers.requests.append(requests)
            given = answers.answer(requests)
            if given.hang_up:
                self.close_connection = True
                return
            (self.send_response_only if "Date" in given.headers else self.send_response)(
                given.status
            )
            for name, value in given.headers.items():
                self.send_header(name, value)
            if given.headers.get("Content-Type") == "text/event-stream":
                self.close_connection = True
            else:
                self.send_header("Content-Length", str(len(given.data)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # its reader may leave early
                for piece in () if self.command == "HEAD" else given.pieces:
                    self.wfile.write(piece)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = _Server((host, 0), Handler)
    answers = Answers(f"http://{host}:{server.server_port}", answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def job_view(name: str = "/train", state: str = "pending", **members: Any) -> dict[str, Any]:
    """A job as the API shows it."""
    return {
        "id": "j7",
        "name": name,
        "state": state,
        "user": "ann",
        "band": "interactive",
        "replicas": 1,
        "spec": {"name": name, "command": ["true"], "resources": {"cpu_millis": 1000}},
        "parent": None,
        "submitted_at": "2026-01-02T03:04:05Z",
        "root_submitted_at": "2026-01-02T03:04:05Z",
        "started_at": None,
        "finished_at": None,
        "error": None,
        "task_counts": {state: 1},
        **members,
    }


def events(*named: tuple[str, Any], first: int = 1) -> bytes:
    """A text/event-stream body with ids from ``first``."""
    return b"".join(
        f"id: {number}\nevent: {name}\ndata: {json.dumps(data)}\n\n".encode()
        for number, (name, data) in enumerate(named, first)
    )
