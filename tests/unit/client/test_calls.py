"""What a map sends before its job: files that are not known to be stored, and large arguments."""

from __future__ import annotations

from iris.client.http.transport import HttpRequest
from iris.client.maps.calls import code_of, pack_arguments, send_calls
from iris.client.problems import Document, NotFound
from iris_core.spec.calls import Calls, inlined, is_inline


class FakeTransport:
    """A gateway that stores nothing."""

    def __init__(self) -> None:
        self.stored: dict[str, float] = {}
        self.sent: list[str] = []

    def send(self, request: HttpRequest) -> None:
        self.sent.append(request.method)
        if request.method == "HEAD":
            raise NotFound(404, Document())

    def map(self, items: list[object]) -> Calls:
        blobs = pack_arguments([(item,) for item in items], 1)
        return send_calls(self, code_of(abs, {}, 1), blobs, len(items), 1)  # type: ignore[arg-type]


def test_a_small_map_sends_arguments_with_its_job_and_a_function_once():
    transport = FakeTransport()
    first = transport.map([-1, -2])
    assert sorted(transport.sent) == ["HEAD", "HEAD", "PUT", "PUT"]
    second = transport.map([-3])
    assert len(transport.sent) == 4
    assert (first.runner, first.function) == (second.runner, second.function)
    assert first.digests == (first.runner, first.function)
    assert b"\xfe\xff\xff\xff" in inlined(first.segments[0])


def test_large_arguments_are_files():
    transport = FakeTransport()
    calls = transport.map(["x" * 5000])
    assert not is_inline(calls.segments[0])
    assert len(calls.digests) == 3
    assert transport.sent.count("PUT") == 3
