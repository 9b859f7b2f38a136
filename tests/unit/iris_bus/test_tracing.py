"""Spans go to the collector that is set, and nowhere when none is."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from iris_bus.telemetry import Trace
from iris_bus.tracing import Tracer


@pytest.fixture
def collector():
    bodies: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_an_endpoint_the_context_is_passed_on_untouched():
    given = Trace.new()
    with Tracer("state").span("submit", given, job="/a") as trace:
        assert trace is given


def test_a_span_continues_the_trace_it_came_with(collector):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    url, bodies = collector
    tracer, parent, linked = Tracer("state", url), Trace.new(), Trace.new()
    with tracer.span("submit", parent, links=[linked], job="/a") as trace:
        pass
    tracer.close()
    path, body = bodies[0]
    assert (trace.trace_id, trace.span_id != parent.span_id, path) == (parent.trace_id, True, "/v1/traces")
    wanted = [
        b"iris-state",
        b"submit",
        b"/a",
        *(bytes.fromhex(t) for t in (trace.span_id, parent.span_id, linked.trace_id)),
    ]
    assert [part for part in wanted if part not in body] == []
