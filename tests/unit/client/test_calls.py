"""What a map sends before its job: files that are not known to be stored, and large arguments."""

from __future__ import annotations

import threading

import pytest

from iris.client.client import Client
from iris.client.http.transport import HttpRequest
from iris.client.maps.calls import code_of, pack_arguments, send_calls
from iris.client.maps.executor import Executor
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


def test_a_function_that_cannot_be_pickled_names_the_variable_at_fault():
    """It said "cannot pickle '_thread.lock' object" of a client that the script had made, and no
    more.
    """
    client, scale = threading.Lock(), 2

    def function(x: float) -> float:
        with client:
            return x * scale

    with pytest.raises(TypeError) as refused:
        code_of(function, {}, 1)
    assert refused.value.__notes__ == [
        "client cannot be pickled, which the function uses: make it in the function"
    ]
    with Executor(Client("http://127.0.0.1:1")) as executor, pytest.raises(TypeError) as refused:
        executor.submit(function, 1.0)
    assert refused.value.__notes__ == [
        "client cannot be pickled, which the function uses: make it in the function"
    ]
