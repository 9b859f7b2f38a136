"""Calls of maps that are hostile or too large: each ends in a clear outcome of its own, and hurts
nobody else's job.
"""

from __future__ import annotations

import concurrent.futures
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import iris
from iris.client.maps.mapping import Mapped
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration
WITHIN_S = 240
MB = 1_000_000
FULL = pytest.mark.soak


@pytest.fixture
def cluster(map_cluster: Cluster) -> Cluster:
    """Of both kinds of calls with fresh memory."""
    return map_cluster


def outcomes(mapped: Mapped[object]) -> list[object]:
    """The value of each call, or the type and the text of its exception."""
    found = [future.exception(WITHIN_S) or future.result() for future in mapped.futures]
    return [
        f"{type(one).__name__}: {one}" if isinstance(one, BaseException) else one for one in found
    ]


@contextmanager
def somebody_else(cluster) -> Iterator[None]:
    """A job of another user runs before, beside and after the block."""

    def runs() -> str:
        return cluster.client.run(["true"], user="somebody-else", cpu=0.1).wait(WITHIN_S).state

    assert runs() == "succeeded"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        beside = pool.submit(runs)
        yield
        assert beside.result() == "succeeded"
    assert runs() == "succeeded"


@pytest.mark.parametrize("reuse", [1, 50])
def test_what_ends_a_process_or_is_no_exception_is_the_end_of_its_call(cluster, reuse):
    def ends(how):
        import asyncio
        import os
        import signal

        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "cancelled":
            raise asyncio.CancelledError("late")
        if how == "exit":
            raise SystemExit("a text")
        if how == "base":
            raise BaseException("mine")
        if how == "recursion":

            def deeper(depth):
                return deeper(depth + 1)

            return deeper(0)
        if how == "deep":
            value = []
            for _ in range(100_000):
                value = [value]
            return value
        if how == "term":
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "group":
            os.killpg(0, signal.SIGKILL)
        return how

    hows = ["interrupt", "cancelled", "exit", "base", "recursion", "deep", "term", "group", "well"]
    name = f"b-ends-{reuse}"
    with somebody_else(cluster):
        mapped = cluster.client.map(ends, hows, name=name, reuse=reuse, cpu=0.1)
        found = outcomes(mapped)
    assert found == [
        "RemoteError: the function raised KeyboardInterrupt",
        "RemoteError: the function raised asyncio.exceptions.CancelledError: late",
        f"JobFailed: /{name}/2 failed: exit code 1",
        "RemoteError: the function raised BaseException: mine",
        "RecursionError: maximum recursion depth exceeded",
        "TypeError: the result cannot be sent back: Could not pickle object as excessively deep recursion required.",
        f"JobFailed: /{name}/6 failed: killed by signal 15 (SIGTERM)",
        f"JobFailed: /{name}/7 failed: killed by signal 9 (SIGKILL: perhaps out of memory)",
        "well",
    ]


@pytest.mark.parametrize("reuse", [1, 50])
def test_odd_pickles_are_the_outcome_of_their_call(cluster, reuse):
    def odd(what):
        import os

        class Ends:
            def __reduce__(self):
                os._exit(9)

        class Loads:
            def __reduce__(self):
                return exec, ("raise SystemExit(5)",)

        class Silent(Exception):
            def __str__(self):
                raise RuntimeError("no text")

            def __reduce__(self):
                return exec, ("raise KeyboardInterrupt",)

        if what == "silent":
            raise Silent
        return {"ends": Ends(), "loads": Loads(), "generator": (one for one in "ab")}.get(
            what, what
        )

    name = f"b-pickles-{reuse}"
    mapped = cluster.client.map(
        odd, ["ends", "loads", "generator", "silent", "well"], name=name, reuse=reuse, cpu=0.1
    )
    ends, loads, generator, silent, well = outcomes(mapped)

    assert ends == f"JobFailed: /{name}/0 failed: exit code 9"
    assert loads == "RemoteError: it returned a value (it cannot be unpickled here: SystemExit: 5)"
    assert (
        generator == "TypeError: the result cannot be sent back: cannot pickle 'generator' object"
    )
    assert (
        "Silent: <exception str() failed> (it cannot be unpickled here: KeyboardInterrupt: )\nTraceback "
        in silent
    )
    assert well == "well"


@pytest.mark.parametrize("size", [2 * MB, pytest.param(50 * MB, marks=FULL)])
def test_an_exception_with_a_long_message_arrives_whole(cluster, size):
    def boom(length):
        raise ValueError("m" * length)

    with somebody_else(cluster):
        mapped = cluster.client.map(boom, [size, 3], name=f"b-message-{size}", cpu=0.1)
        errors = [future.exception(WITHIN_S) for future in mapped.futures]
    assert [(type(error), len(str(error))) for error in errors] == [
        (ValueError, size),
        (ValueError, 3),
    ]
    assert len(mapped.job.wait(WITHIN_S).error) < 10_000


@FULL
def test_a_result_of_100_megabytes_arrives_whole(cluster):
    with somebody_else(cluster):
        mapped = cluster.client.map(
            lambda size: b"x" * size, [100 * MB, 1], name="b-result", cpu=0.1
        )
        assert [len(value) for value in mapped.results(WITHIN_S)] == [100 * MB, 1]


@pytest.mark.parametrize("size", [2 * MB, pytest.param(200 * MB, marks=FULL)])
def test_a_function_that_closes_over_much_is_sent_whole(cluster, size):
    much = os.urandom(1024) * (size // 1024)
    with somebody_else(cluster):
        mapped = cluster.client.map(
            lambda number: len(much) + number, [1, 2], name=f"b-closure-{size}", cpu=0.1
        )
        assert mapped.results(WITHIN_S) == [len(much) + 1, len(much) + 2]


@pytest.mark.parametrize("size", [3 * MB, pytest.param(300 * MB, marks=FULL)])
def test_a_line_without_an_end_harms_no_call(cluster, size):
    def prints(length):
        sys.stdout.write("x" * length)
        return length

    with somebody_else(cluster):
        mapped = cluster.client.map(prints, [size, 3], name=f"b-line-{size}", cpu=0.1)
        assert mapped.results(WITHIN_S) == [size, 3]


@pytest.mark.parametrize("reuse", [1, 50])
@pytest.mark.parametrize("count", [20, pytest.param(300, marks=FULL)])
def test_children_and_threads_that_a_call_leaves_harm_no_call(cluster, count, reuse):
    def leaves(what):
        import os
        import threading
        import time

        for _ in range(count):
            if what == "threads":
                threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
            if what == "children" and not os.fork():
                os.setsid()
                time.sleep(1000)
        return what

    whats = ["threads", "plain", "children", "plain"]
    with somebody_else(cluster):
        mapped = cluster.client.map(
            leaves, whats, name=f"b-leaves-{count}-{reuse}", reuse=reuse, cpu=0.1
        )
        assert mapped.results(WITHIN_S) == whats


def test_a_call_that_stops_itself_ends_by_its_timeout(cluster):
    def stops(stop):
        import os
        import signal

        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        return stop

    mapped = cluster.client.map(stops, [1, 0], name="b-stops", timeout=8, cpu=0.1)
    assert outcomes(mapped) == ["JobKilled: /b-stops/0 killed: ran longer than 8 s", 0]


def test_maps_are_nested_three_deep(cluster):
    def outer(number):
        import iris

        def middle(number):
            import iris

            with iris.Client() as client:
                return sum(client.map(lambda x: 2 * x, range(number), cpu=0.1).results(120))

        with iris.Client() as client:
            return sum(client.map(middle, [number] * 2, cpu=0.1).results(120))

    env = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    mapped = cluster.client.map(outer, [2, 3], name="b-nested", cpu=0.1, env=env)
    assert mapped.results(WITHIN_S) == [4, 12]


def test_an_executor_that_many_threads_use_makes_each_call_once(cluster, tmp_path):
    def call(number):
        with (tmp_path / "calls").open("a") as file:
            file.write(f"{number}\n")
        return number * number

    with (
        iris.Executor(cluster.client, name="b-threads", reuse=50, cpu=0.1) as executor,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        futures = list(pool.map(lambda number: executor.submit(call, number), range(100)))
        assert [future.result(WITHIN_S) for future in futures] == [
            number * number for number in range(100)
        ]
        again = [futures[0]] * 10
        assert set(concurrent.futures.wait(again, WITHIN_S).done) == set(
            concurrent.futures.as_completed(again)
        )
    assert sorted(map(int, (tmp_path / "calls").read_text().split())) == list(range(100))


@FULL
def test_a_hundred_thousand_calls_of_a_kilobyte_return_what_they_took(cluster):
    items = [b"k" * 1024] * 100_000
    with somebody_else(cluster):
        mapped = cluster.client.map(
            lambda item: item, items, chunksize=10, reuse=50, name="b-many", cpu=0.1, band="batch"
        )
        assert mapped.results(4 * WITHIN_S) == items
