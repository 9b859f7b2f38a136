"""Maps on a whole cluster: each call ends in a clear outcome of its own, whatever the function
does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import iris
import iris_core
from iris.client.http.event_stream import EventStream
from iris.client.maps.calls import code_of
from iris.client.maps.mapping import Mapped
from iris.client.problems import InvalidOption, JobFailed, JobKilled, RemoteError
from tests.support.cluster import Cluster

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture
def cluster(map_cluster: Cluster) -> Cluster:
    """Of both kinds of calls with fresh memory."""
    return map_cluster


def outcomes(mapped: Mapped[object]) -> list[object]:
    """The value or the name of the exception of each call."""
    found = [future.exception(WITHIN_S) or future.result() for future in mapped.futures]
    return [type(one).__name__ if isinstance(one, BaseException) else one for one in found]


def until(true: Callable[[], bool]) -> None:
    """Return once it is true."""
    late = time.monotonic() + WITHIN_S
    while not true():
        assert time.monotonic() < late
        time.sleep(0.01)


def test_several_iterables_and_constant_arguments_reach_each_call(cluster):
    mapped = cluster.client.map(
        lambda x, y, *, z: (x, y, z), [1, 2], "ab", kwargs={"z": 3}, name="m-several", cpu=0.1
    )
    spread = cluster.client.starmap(pow, [(2, 3), (3, 2)], name="m-star", cpu=0.1)

    assert mapped.results(WITHIN_S) == [(1, "a", 3), (2, "b", 3)]
    assert spread.results(WITHIN_S) == [8, 9]


def test_a_map_over_nothing_is_empty_and_has_no_job(cluster):
    assert cluster.client.map(len, []) == []
    assert cluster.client.map(len, []).results() == []


def test_a_map_that_no_host_could_ever_take_warns(cluster):
    with pytest.warns(UserWarning, match="no registered worker can ever take /m-wide: "):
        mapped = cluster.client.map(len, ["a"], cpu=1000, name="m-wide")
    mapped.job.cancel()


def test_chunks_return_a_future_for_each_item(cluster):
    def half(number):
        if number == 3:
            raise ValueError("three")
        return number / 2

    mapped = cluster.client.map(half, range(5), chunksize=2, name="m-chunks", cpu=0.1)

    assert outcomes(mapped) == [0.0, 0.5, 1.0, "ValueError", 2.0]
    assert mapped.job.wait(WITHIN_S).task_counts == {"succeeded": 2, "failed": 1}


def test_an_exception_comes_with_the_traceback_of_its_host(cluster):
    def boom(_):
        raise KeyError("gone")

    (future,) = cluster.client.map(boom, [0], name="m-trace", cpu=0.1)

    error = future.exception(WITHIN_S)
    assert (type(error), error.args) == (KeyError, ("gone",))
    assert "in boom\n" in str(error.__cause__)


@pytest.mark.parametrize("reuse", [1, 50])
def test_a_process_that_dies_fails_its_own_call_only(cluster, reuse):
    def ends(how):
        import os
        import signal
        import sys

        if how == "exit":
            os._exit(7)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "sys":
            sys.exit(4)
        if how == "zero":
            os._exit(0)
        return how

    whats = ["exit", "kill", "sys", "zero", "well"]
    mapped = cluster.client.map(ends, whats, name=f"m-dies-{reuse}", reuse=reuse, cpu=0.1)
    errors = [future.exception(WITHIN_S) for future in mapped.futures]

    assert [type(error) for error in errors] == [JobFailed] * 4 + [type(None)]
    assert [(e.exit_code, e.signal) for e in errors[:4]] == [
        (7, None),
        (None, 9),
        (4, None),
        (0, None),
    ]
    assert mapped[4].result() == "well"


@pytest.mark.parametrize("reuse", [1, 50])
def test_odd_functions_end_in_a_clear_outcome_of_their_call(cluster, reuse):
    def odd(what):
        import os
        import sys
        import threading

        if what == "fork":
            os.fork()
        if what == "close":
            os.closerange(0, 200)
        if what == "threads":
            for _ in range(20):
                threading.Thread(target=lambda: None).start()
        if what == "print":
            for _ in range(1024):
                sys.stdout.write("x" * 1023 + "\n")
        if what == "result":
            return threading.Lock()
        if what == "error":

            class Odd(Exception):
                def __init__(self, one, two):
                    super().__init__(f"{one} {two}")

            raise Odd("the weight", 3)
        return what

    whats = ["fork", "close", "threads", "print", "result", "error", "plain"]
    mapped = cluster.client.map(odd, whats, name=f"m-odd-{reuse}", reuse=reuse, cpu=0.1)

    assert outcomes(mapped) == [
        "fork",
        "close",
        "threads",
        "print",
        "TypeError",
        "RemoteError",
        "plain",
    ]
    assert "Odd: the weight 3 (it cannot be unpickled here: TypeError: " in str(
        mapped[5].exception()
    )


@pytest.mark.parametrize("reuse", [1, 50])
def test_the_timeout_of_a_call_ends_it_and_others_go_on(cluster, reuse):
    def waits(seconds):
        import time

        time.sleep(seconds)
        return seconds

    options = {"timeout": 5, "cpu": 0.5, "reuse": reuse}
    mapped = cluster.client.map(waits, [1000, *[0.2] * 20], name=f"m-never-{reuse}", **options)

    killed = mapped[0].exception(WITHIN_S)
    assert isinstance(killed, JobKilled)
    assert (killed.error, killed.exit_code, killed.signal) == ("ran longer than 5 s", None, None)
    assert outcomes(mapped) == ["JobKilled", *[0.2] * 20]
    assert mapped.job.wait(WITHIN_S).task_counts == {"killed": 1, "succeeded": 20}


def test_large_items_and_results_travel(cluster):
    mapped = cluster.client.map(
        lambda data: data[::-1], [b"ab" * 1_000_000, b"xy"], name="m-large", cpu=0.1
    )

    assert mapped.results(WITHIN_S) == [b"ba" * 1_000_000, b"yx"]


def test_a_failed_call_is_tried_again(cluster, tmp_path):
    def flaky(index):
        import os

        if os.environ["IRIS_ATTEMPT"] == "0" or index == 1:
            raise ValueError(os.environ["IRIS_ATTEMPT"])
        return os.environ["IRIS_ATTEMPT"]

    mapped = cluster.client.map(
        flaky, [0, 1], retries=1, return_exceptions=True, name="m-retries", cpu=0.1
    )
    first, second = mapped.results(WITHIN_S)

    assert first == "1"
    assert (type(second), second.args) == (ValueError, ("1",))


def test_results_come_as_they_are_done(cluster, tmp_path):
    gate = tmp_path / "gate"

    def waits(index):
        import os
        import time

        while index == 0 and not os.path.exists(gate):
            time.sleep(0.02)
        return index

    mapped = cluster.client.map(waits, [0, 1], order="done", name="m-done", cpu=0.1)
    found = []
    for future in mapped:
        found.append(future.result())
        gate.touch()

    assert found == [1, 0]
    assert mapped.results() == [1, 0]
    assert {future.result() for future in concurrent.futures.as_completed(mapped.futures)} == {0, 1}


def test_items_that_raise_while_they_are_read_start_no_job(cluster):
    def items():
        yield 1
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        cluster.client.map(len, items(), name="m-items")
    assert not [job for job in cluster.client.jobs() if job.name == "/m-items"]


def test_too_many_calls_are_refused_with_the_chunksize_that_fits(cluster):
    with pytest.raises(InvalidOption, match="use chunksize=2 or more"):
        cluster.client.map(len, [""] * 10_001)


def test_an_item_that_cannot_be_pickled_is_raised_at_once(cluster):
    with pytest.raises(TypeError, match="pickle"):
        cluster.client.map(len, [sys.stdout])


SCRIPT = """
import sys, time
from iris import Client
with Client() as client:
    mapped = client.map(lambda x: x * 10, range(3), name="m-resumed", cpu=0.1)
    print(mapped.job.id, flush=True)
    time.sleep(1000)
"""


def test_a_client_that_was_killed_finds_its_map_again_and_so_does_a_second(cluster):
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        env={**cluster.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    job = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()

    twice = [cluster.client.map_of(job), cluster.client.map_of("/m-resumed")]
    assert [mapped.results(WITHIN_S) for mapped in twice] == [[0, 10, 20]] * 2
    with pytest.raises(InvalidOption, match="is not a map"):
        cluster.client.map_of(cluster.submit("true", name="m-no-map").name)


def test_a_cancelled_map_ends_every_future(cluster):
    mapped = cluster.client.map(lambda _: time.sleep(1000), range(3), name="m-cancelled", cpu=0.1)
    mapped.job.cancel("enough")

    assert [type(future.exception(WITHIN_S)) for future in mapped.futures] == [JobKilled] * 3


def test_a_cancelled_call_is_killed_and_the_others_go_on(cluster, tmp_path):
    def waits(index):
        import os
        import time

        os.mkdir(f"{tmp_path}/{index}")
        while not os.path.exists(f"{tmp_path}/gate"):
            time.sleep(0.02)
        return index

    mapped = cluster.client.map(waits, range(3), name="m-one", cpu=0.1)
    until((tmp_path / "1").exists)

    assert mapped[1].cancel()
    assert mapped[1].cancelled()
    assert not mapped[0].done()
    until(lambda: cluster.client.task("/m-one/1").attempts[0].finished_at is not None)
    (tmp_path / "gate").touch()
    assert [mapped[0].result(WITHIN_S), mapped[2].result(WITHIN_S)] == [0, 2]
    assert not mapped[0].cancel()
    task = cluster.client.task("/m-one/1")
    assert (task.state, task.cause) == ("killed", "cancelled")
    with pytest.raises(concurrent.futures.CancelledError):
        mapped.results()
    assert mapped.job.wait(WITHIN_S).task_counts == {"succeeded": 2, "killed": 1}


def test_a_call_that_somebody_else_cancelled_ends_its_future_at_once(cluster, monkeypatch):
    monkeypatch.setattr("iris.client.maps.mapping._LOOK_S", 1000.0)
    monkeypatch.setattr("iris.client.maps.mapping._LOOKS_S", (0.1,) * 600)
    mapped = cluster.client.map(lambda _: time.sleep(1000), range(2), name="m-other", cpu=0.1)
    until(lambda: cluster.client.task("/m-other/1").state == "running")

    assert cluster.iris("cancel", "/m-other/1").code == 0
    error = mapped[1].exception(WITHIN_S)
    assert isinstance(error, JobKilled)
    assert "cancelled" in str(error)
    assert not mapped[0].done()
    mapped.job.cancel()


def test_a_waiting_call_that_others_cancelled_ends_its_future_at_once(cluster, monkeypatch):
    monkeypatch.setattr("iris.client.maps.mapping._LOOK_S", 1000.0)
    mapped = cluster.client.map(
        lambda _: time.sleep(1000), range(2), name="m-waiting", cpu=0.1, max_parallel=1
    )
    until(lambda: cluster.client.task("/m-waiting/0").state == "running")
    assert cluster.client.task("/m-waiting/1").state == "pending"

    assert cluster.iris("cancel", "/m-waiting/1").code == 0
    assert isinstance(mapped[1].exception(WITHIN_S), JobKilled)
    assert not mapped[0].done()
    mapped.job.cancel()


def test_a_map_whose_calls_have_ended_reads_no_further(cluster, monkeypatch):
    closed = threading.Event()
    close = EventStream.close

    def noted(stream: EventStream) -> None:
        close(stream)
        if not stream.end:
            closed.set()

    monkeypatch.setattr(EventStream, "close", noted)
    mapped = cluster.client.map(lambda n: n, [1], name="m-no-further", cpu=0.1)

    assert mapped.results(WITHIN_S) == [1]
    assert closed.wait(WITHIN_S)


def test_a_function_that_the_cluster_has_lost_is_sent_again(cluster):
    def function(number: int) -> int:
        return number + 20_000

    lost = [hashlib.sha256(data).hexdigest() for data in code_of(function, {}, 1)]
    cluster.client.transport.stored |= dict.fromkeys(lost, time.monotonic())

    assert cluster.client.map(function, [1], name="m-lost", cpu=0.1).results(WITHIN_S) == [20_001]


def test_a_preempted_call_is_made_again(cluster, tmp_path):
    """Its attempt was stopped as that of a cancelled call is."""
    begun, go = tmp_path / "begun", tmp_path / "go"

    def call(_: int) -> str:
        with begun.open("a") as file:
            file.write("begun\n")
        while not go.exists():
            time.sleep(0.01)
        return "made"

    mapped = cluster.client.map(call, [0], name="m-preempted", band="batch", cpu=cluster.host_cpu)
    until(lambda: begun.exists() and begun.read_text() == "begun\n")
    cluster.preempt("m-urgent", tmp_path)
    until(lambda: begun.read_text().count("begun") == 2)
    assert not mapped[0].done()
    go.touch()
    assert mapped.results(WITHIN_S) == ["made"]


def test_what_a_rule_requeues_is_made_again(cluster, tmp_path):
    def call(item: str) -> str:
        with (tmp_path / item).open("a") as file:
            file.write(".")
        if (tmp_path / item).stat().st_size == 1:
            sys.exit(75) if item == "code" else time.sleep(1000)
        if item == "code":
            raise ValueError("the second time")
        return "made"

    options = {
        "on_exit": ["75=requeue"],
        "timeout": "1s",
        "on_timeout": "requeue",
        "grace": "1s",
        "cpu": 0.1,
    }
    code, late = cluster.client.map(call, ["code", "late"], name="m-rules", **options)
    assert late.result(WITHIN_S) == "made"
    with pytest.raises(ValueError, match="the second time"):
        code.result(WITHIN_S)


def test_nothing_of_a_result_is_in_the_output(cluster):
    mapped = cluster.client.map(lambda _: "secret" * 10, [0], name="m-quiet", cpu=0.1)

    assert mapped.results(WITHIN_S) == ["secret" * 10]
    assert list(mapped.job.logs()) == []


def test_a_value_that_only_its_host_can_unpickle_is_a_remote_error(cluster, tmp_path):
    (tmp_path / "only_there.py").write_text("class Thing:\n    pass\n")

    def make(_):
        return __import__("only_there").Thing()

    (future,) = cluster.client.map(make, [0], workdir=tmp_path, name="m-there", cpu=0.1)
    error = future.exception(WITHIN_S)

    assert type(error) is RemoteError
    assert "No module named 'only_there'" in str(error)


def test_an_executor_runs_all_its_calls_as_one_job(cluster):
    def divide(x, y=1):
        return x / y

    with iris.Executor(cluster.client, name="m-executor", cpu=0.1) as executor:
        futures = [executor.submit(divide, 6, y=y) for y in (3, 0, 2)]
        concurrent.futures.wait(futures)
        mapped = list(executor.map(divide, [1, 2]))
        with pytest.raises(TypeError, match="pickle"):
            executor.submit(divide, sys.stdout)
        job = cluster.client.job("/m-executor")
        until(lambda: job.refresh().task_counts == {"succeeded": 4, "failed": 1})
        assert (job.view.open, job.state) == (True, "running")
    assert job.wait(WITHIN_S).state == "failed"
    assert not job.view.open
    found = [future.exception() or future.result() for future in futures]

    assert [found[0], type(found[1]), found[2], mapped] == [2.0, ZeroDivisionError, 3.0, [1.0, 2.0]]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(divide, 1)


def test_an_executor_that_cancels_its_futures_ends_what_runs(cluster):
    executor = iris.Executor(cluster.client, name="m-ended", cpu=0.1)
    done = executor.submit(lambda: 1)
    assert done.result(WITHIN_S) == 1
    futures = [executor.submit(lambda: time.sleep(1000)) for _ in range(3)]
    until(futures[0].running)
    executor.shutdown(cancel_futures=True)

    assert [future.cancelled() for future in (done, *futures)] == [False, True, True, True]
    with pytest.raises(concurrent.futures.CancelledError):
        futures[0].result(WITHIN_S)
    assert cluster.client.job("/m-ended").wait(WITHIN_S).state == "killed"


def test_a_call_of_an_executor_is_cancelled_alone(cluster, tmp_path):
    with iris.Executor(cluster.client, name="m-alone", cpu=0.1) as executor:
        long = executor.submit(lambda: __import__("time").sleep(1000))
        until(long.running)
        assert long.cancel()
        assert executor.submit(lambda: 7).result(WITHIN_S) == 7
    assert cluster.client.job("/m-alone").wait(WITHIN_S).task_counts == {
        "killed": 1,
        "succeeded": 1,
    }


def test_an_executor_goes_on_in_a_second_job_when_its_first_was_closed(cluster):
    with iris.Executor(cluster.client, name="m-second", cpu=0.1) as executor:
        assert executor.submit(lambda: 1).result(WITHIN_S) == 1
        cluster.client.close_map("/m-second")
        assert executor.submit(lambda: 2).result(WITHIN_S) == 2
    assert cluster.client.job("/m-second-2").wait(WITHIN_S).state == "succeeded"


def test_an_executor_that_is_left_closes_the_client_that_it_made(cluster, monkeypatch):
    for name in cluster.environ.keys() - os.environ.keys():
        monkeypatch.setenv(name, cluster.environ[name])
    executor = iris.Executor(name="m-left", cpu=0.1)
    future = executor.submit(lambda: 1)
    executor.shutdown(wait=False)

    assert future.result(WITHIN_S) == 1
    assert cluster.client.job("/m-left").wait(WITHIN_S).state == "succeeded"
    until(lambda: not executor._client.transport._idle)


def test_items_of_an_iterator_are_called_as_they_come(cluster):
    gate = threading.Event()

    def items():
        yield from range(3)
        gate.wait(WITHIN_S)
        yield from range(3, 5)

    mapped = cluster.client.map(lambda x: x * x, items(), name="m-open", cpu=0.1)
    found = iter(mapped)
    assert [next(found).result(WITHIN_S) for _ in range(3)] == [0, 1, 4]
    view = mapped.job.refresh()
    assert (view.open, view.state, view.replicas) == (True, "running", 3)
    assert "open; waits for further calls" in str(view.note)
    with pytest.raises(TimeoutError, match="the map is open"):
        mapped.results(0)
    second = cluster.client.map_of("/m-open")
    gate.set()

    assert [future.result(WITHIN_S) for future in found] == [9, 16]
    assert mapped.results(WITHIN_S) == [0, 1, 4, 9, 16]
    assert second.results(WITHIN_S) == [0, 1, 4, 9, 16]
    assert mapped.job.wait(WITHIN_S).state == "succeeded"


def test_an_iterator_that_raises_ends_its_map_after_what_came_before(cluster):
    gate = threading.Event()

    def items():
        yield 1
        gate.wait(WITHIN_S)
        yield 2
        raise LookupError("no more items")

    mapped = cluster.client.map(lambda x: x * 10, items(), name="m-raises", cpu=0.1)
    gate.set()
    found = []
    with pytest.raises(LookupError, match="no more items"):
        found += [future.result(WITHIN_S) for future in mapped]

    with pytest.raises(LookupError):
        mapped.results(WITHIN_S)
    assert [future.result() for future in mapped.futures] == [10, 20]
    assert mapped.job.wait(WITHIN_S).state == "succeeded"


def test_items_are_not_taken_far_ahead_of_the_calls_that_have_ended(cluster, tmp_path):
    taken = []

    def items():
        for number in range(12):
            taken.append(number)
            yield number

    def waits(number):
        import os
        import time

        while not os.path.exists(f"{tmp_path}/gate"):
            time.sleep(0.02)
        return number

    mapped = cluster.client.map(waits, items(), lookahead=4, chunksize=2, name="m-ahead", cpu=0.1)
    until(lambda: len(mapped) == 4)
    until(lambda: mapped.job.refresh().task_counts.get("running") == 2)
    assert len(taken) == 4
    (tmp_path / "gate").touch()

    assert mapped.results(WITHIN_S) == list(range(12))
    assert mapped.job.refresh().replicas == 6


OPEN_SCRIPT = """
import sys, threading, time
from iris import Client, Executor
how = sys.argv[1]
if how.startswith("executor"):
    executor = Executor(name="m-exit", cpu=0.1)
    if how == "executor without threads":
        def refuse(thread):  # as Python 3.12.1 does at the end of a process
            raise RuntimeError("can't create new thread at interpreter shutdown")
        threading.Thread.start = refuse
    for number in range(3):
        executor.submit(pow, number, len(sys.argv), 1 << (1 << 20))
    sys.exit()
with Client() as client:
    def items():
        yield from range(3)
        time.sleep(1000)
    mapped = client.map(lambda x: x, items(), name="m-exit", cpu=0.1)
    assert mapped.job.view.open
    while len(mapped) < 3:  # items that come a moment later are added by another request
        time.sleep(0.01)
"""


@pytest.mark.parametrize("how", ["executor", "executor without threads", "items"])
def test_an_open_map_is_closed_when_the_process_of_its_client_ends(cluster, how):
    name = f"m-exit-{how.replace(' ', '-')}"
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))
    done = subprocess.run(
        [sys.executable, "-c", OPEN_SCRIPT.replace("m-exit", name), how],
        env={**cluster.environ, "PYTHONPATH": paths},
        timeout=WITHIN_S,
        check=False,
        capture_output=True,
        text=True,
    )

    cut = (
        f"iris: /{name} takes no further items, because this process ends: "
        "its iterator was not at its end\n"
    )
    assert (done.returncode, done.stderr) == ((1, cut) if how == "items" else (0, ""))
    job = cluster.client.job(name)
    assert job.wait(WITHIN_S).state == "succeeded"
    assert job.view.replicas == 3
    assert job.view.note == (
        "closed: the process of its client has ended" if how == "items" else None
    )


HELPERS = """
import threading
from dataclasses import dataclass
import deeper.inner
LOCK = threading.Lock()
@dataclass
class Pair:
    left: int
    right: int
class Wrong(Exception):
    pass
def swapped(pair):
    return Pair(*deeper.inner.turned(pair.left, pair.right))
def fails(pair):
    raise Wrong(pair.left)
def locked(pair):
    with LOCK:
        return pair
"""
BESIDE_SCRIPT = """
import sys
import helpers
from iris import Client, Executor
with Client() as client:
    pairs = [helpers.Pair(1, 2), helpers.Pair(3, 4)]
    if sys.argv[1:] == ["sent along"]:
        print(client.map(helpers.locked, pairs, cpu=0.1, workdir=".").results())
        sys.exit()
    found = client.map(helpers.swapped, pairs, cpu=0.1).results()
    print(found, all(isinstance(one, helpers.Pair) for one in found))
    print(client.map(lambda pair: helpers.swapped(pair).left, iter(pairs), cpu=0.1).results())
    with Executor(client, cpu=0.1) as executor:
        print(executor.submit(helpers.swapped, helpers.Pair(5, 6)).result())
    try:
        client.map(helpers.fails, pairs[:1], cpu=0.1).results()
    except helpers.Wrong as error:
        print("Wrong", error)
    print(client.map(helpers.locked, pairs[:1], cpu=0.1).results())
    try:
        client.map(lambda _: __import__("nowhere"), [1], cpu=0.1).results()
    except ModuleNotFoundError as error:
        print(error, error.__notes__[0], sep="\\n")
"""


def test_what_modules_beside_a_script_define_is_sent_with_a_function(cluster, tmp_path):
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "__init__.py").write_text("")
    (tmp_path / "deeper" / "inner.py").write_text("def turned(*items):\n    return items[::-1]\n")
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "script.py").write_text(BESIDE_SCRIPT)
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))

    def run(*words):
        done = subprocess.run(
            [sys.executable, "script.py", *words],
            env={**cluster.environ, "PYTHONPATH": paths},
            cwd=tmp_path,
            timeout=WITHIN_S,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    swapped, lefts, one, wrong, locked, missing, remedy = run()
    assert swapped == "[Pair(left=2, right=1), Pair(left=4, right=3)] True"
    assert (lefts, one, wrong) == ("[2, 4]", "Pair(left=6, right=5)", "Wrong 1")
    assert locked == "[Pair(left=1, right=2)]"
    assert missing == "No module named 'nowhere'"
    assert remedy.startswith(
        "nowhere is not installed where the calls run: send its directory with workdir="
    )
    assert run("sent along") == ["[Pair(left=1, right=2), Pair(left=3, right=4)]"]


READ_SCRIPT = """
import threading, time
from iris import Client
client = Client()
def items():
    yield from range(3)
    time.sleep(1000)
def read(mapped):
    try:
        for future in mapped:
            print(future.result(), flush=True)
            third.set() if future.result() == 2 else None
    except RuntimeError as error:
        print(error, flush=True)
third = threading.Event()
mapped = client.map(lambda x: x, items(), name="m-read", cpu=0.1)
threading.Thread(target=read, args=(mapped,)).start()
third.wait()
"""


def test_a_thread_that_reads_an_open_map_hears_that_its_process_ends(cluster):
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))
    environ = {**cluster.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-c", READ_SCRIPT]
    done = subprocess.run(
        command, env=environ, timeout=WITHIN_S, check=False, capture_output=True, text=True
    )

    said = "/m-read takes no further items, because this process ends"
    assert done.stdout.splitlines() == ["0", "1", "2", said]
    assert (done.returncode, done.stderr) == (1, f"iris: {said}: its iterator was not at its end\n")
    assert cluster.client.job("/m-read").wait(WITHIN_S).state == "succeeded"


@pytest.mark.parametrize("items", [[1], [1, 2]], ids=["one", "several"])
def test_a_host_without_python_says_what_to_set(cluster, items):
    name = f"m-python-{len(items)}"
    mapped = cluster.client.map(abs, items, env={"PATH": "nowhere"}, name=name, cpu=0.1)
    error = mapped[0].exception(WITHIN_S)

    assert type(error) is JobFailed
    assert "`python`" in str(error)
    assert mapped.job.wait(WITHIN_S).state == "failed"
    task = cluster.client.task(f"/{name}/0")
    assert str(task.error).startswith(
        "python: command not found; the calls of a map run the `python` of"
    )
    assert "set PATH" in cluster.iris("why", f"/{name}/0").out


@pytest.mark.parametrize("names", [[], ["python3"]], ids=["none", "python3"])
def test_a_call_without_python_in_its_path_is_run_by_another_and_says_so(cluster, tmp_path, names):
    for name in names:
        (tmp_path / name).symlink_to(sys.executable)
    name = f"m-other-{len(names)}"
    mapped = cluster.client.map(abs, [-1], env={"PATH": str(tmp_path)}, name=name, cpu=0.1)

    assert mapped.results(WITHIN_S) == [1]
    shown = cluster.iris("show", f"/{name}/0").out
    program = str(tmp_path / "python3") if names else sys.executable
    assert f"it is run by {program}: its PATH has no python that its user may run" in shown


def test_code_of_the_callers_python_is_not_run_by_another_version(cluster, tmp_path):
    tmp_path.chmod(0o755)
    other = tmp_path / "python3.99"
    other.write_bytes(b"\x7fELF")  # of which the name alone is looked at
    other.chmod(0o755)
    (tmp_path / "python").symlink_to(other)
    name, here = "m-version", f"{sys.version_info[0]}.{sys.version_info[1]}"
    mapped = cluster.client.map(
        lambda x: x + 1, [1], env={"PATH": str(tmp_path)}, name=name, cpu=0.1
    )

    assert mapped.results(WITHIN_S) == [2]
    shown = cluster.iris("show", f"/{name}/0").out
    assert f"python in its PATH is 3.99, its function is code of {here}" in shown


def test_an_asynchronous_client_awaits_the_calls_of_an_iterator(cluster, monkeypatch):
    for name in cluster.environ.keys() - os.environ.keys():
        monkeypatch.setenv(name, cluster.environ[name])

    def items(most):
        for number in range(5):
            time.sleep(0.03)
            if number == most:
                raise LookupError("no more items")
            yield number

    async def squares(most):
        async with iris.AsyncClient() as client:
            calls = await client.map(
                lambda x: x * x, items(most), lookahead=2, name=f"m-async-{most}", cpu=0.1
            )
            found = [await asyncio.gather(*calls), await calls.results(WITHIN_S)]
            again = await client.map_of(calls.job.name)
            ended = [future.result() async for future in again.as_completed(WITHIN_S)]
            assert (await again.job.cancel()).state == "succeeded"  # it has ended before
            return [*found, sorted(ended), (await again.job.wait(WITHIN_S)).state]

    assert asyncio.run(squares(9)) == [*[[0, 1, 4, 9, 16]] * 3, "succeeded"]
    with pytest.raises(LookupError, match="no more items"):
        asyncio.run(squares(3))


def test_a_map_within_a_call_is_a_child_job(cluster):
    paths = os.pathsep.join({str(Path(module.__file__).parents[1]) for module in (iris, iris_core)})

    def outer(number):
        import iris

        with iris.Client() as client:
            inner = client.map(lambda x: x + number, [1, 2], name=f"inner-{number}", cpu=0.1)
            return inner.job.name, inner.results(60)

    mapped = cluster.client.map(
        outer, [10, 20], name="m-nested", cpu=0.1, env={"PYTHONPATH": paths}
    )

    assert mapped.results(WITHIN_S) == [
        ("/m-nested/inner-10", [11, 12]),
        ("/m-nested/inner-20", [21, 22]),
    ]
    assert {child.job.name for child in cluster.client.tree("/m-nested").children} == {
        "/m-nested/inner-10",
        "/m-nested/inner-20",
    }


@pytest.mark.soak
def test_an_item_of_100_megabytes_reaches_its_call(cluster):
    sized = cluster.client.map(
        lambda data, n: (len(data), n), [b"x" * 100_000_000, b"y"], [1, 2], name="m-100", cpu=0.1
    )

    assert sized.results(4 * WITHIN_S) == [(100_000_000, 1), (1, 2)]


@pytest.mark.soak
def test_a_call_that_prints_a_gigabyte_returns_and_its_neighbours_too(cluster):
    def talks(count):
        import os

        line = b"x" * 1023 + b"\n"
        for _ in range(count):
            os.write(1, line * 1024)
        return count

    mapped = cluster.client.map(talks, [1024, 0, 1], name="m-gigabyte", cpu=0.1)

    assert [mapped[1].result(WITHIN_S), mapped[2].result(WITHIN_S)] == [0, 1]
    assert mapped[0].result(4 * WITHIN_S) == 1024
    mapped.job.wait(WITHIN_S)  # the end of an attempt is recorded after its result is known
    assert cluster.client.task("/m-gigabyte/0").attempts[0].output_dropped_bytes > 0


def test_who_comes_back_to_a_map_hears_that_its_iterator_raised(cluster):
    """It had succeeded, with the calls that there were, as any other."""
    submitted = threading.Event()

    def items():
        yield -1
        assert submitted.wait(WITHIN_S)
        raise ValueError("no more files")

    mapped = cluster.client.map(abs, items(), name="m-cut", cpu=0.1)
    submitted.set()

    with pytest.raises(ValueError, match="no more files"):
        mapped.results(WITHIN_S)
    cut = r"/m-cut may lack calls of its items: closed: its iterator raised ValueError\('no more files'\)"
    with pytest.warns(UserWarning, match=cut):
        assert cluster.client.map_of("m-cut").results(WITHIN_S) == [1]


def test_a_killed_client_of_an_open_map_leaves_it_to_the_next(cluster):
    script = OPEN_SCRIPT + "\n    print(mapped.job.id, flush=True)\n    time.sleep(1000)\n"
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))
    process = subprocess.Popen(
        [sys.executable, "-c", script.replace("m-exit", "m-orphan"), "items"],
        env={**cluster.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    job = process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()
    mapped = cluster.client.map_of(job)

    assert [future.result(WITHIN_S) for future in mapped.futures] == [0, 1, 2]
    assert cluster.client.job(job).view.open
    assert "takes no further calls" in cluster.iris("close", job, "--reason", "its client died").err
    assert mapped.results(WITHIN_S) == [0, 1, 2]
    assert mapped.job.wait(WITHIN_S).note == "its client died"
