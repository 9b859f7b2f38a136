"""The program of a task of a map: what it loads, and what it leaves."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from iris.client.maps import call_runner
from iris.client.maps.calls import SEGMENT_BYTES, pack_arguments, pack_function, segments_of, table
from iris.client.maps.outcomes import error_of, value_of
from iris.client.problems import RemoteError

WITHIN_S = 120
"""A call that waits for a process without end fails by then, and is ended."""
SCRIPT = """
import sys
from dataclasses import dataclass
from pathlib import Path

from iris.client.maps.calls import pack_arguments, pack_function, table

@dataclass
class Pair:
    left: int

factor = 3
there = Path(sys.argv[1])
(there / "function").write_bytes(pack_function(lambda pair: Pair(pair.left * factor), {}, chunked=False))
(there / "items").write_bytes(table(list(pack_arguments([(Pair(2),)], 1))))
"""


@pytest.fixture
def place(tmp_path):
    """The directory of a task, with the runner in it."""
    there = tmp_path / ".iris-call"
    there.mkdir()
    (there / "run.py").write_bytes(Path(call_runner.__file__).read_bytes())
    return tmp_path


def ran(place, function=None, arguments=(), *, env=(), chunked=False, **kwargs):
    """Run a call as a task does: the process, and its result file."""
    if function is not None:
        (place / ".iris-call/function").write_bytes(
            pack_function(function, kwargs, chunked=chunked)
        )
        calls = arguments if chunked else [arguments]
        (place / ".iris-call/items").write_bytes(
            table(list(pack_arguments(calls, len(calls) if chunked else 1)))
        )
    environ = {"PATH": os.environ["PATH"], **dict(env)}
    command = [sys.executable, "-P", "-S", ".iris-call/run.py"]
    process = subprocess.run(
        command, cwd=place, env=environ, capture_output=True, check=False, timeout=WITHIN_S
    )
    result = place / ".iris-call/result"
    return process, result.read_bytes() if result.exists() else b""


@pytest.mark.parametrize(("size", "kind"), [(10, b"v"), (call_runner.SMALL + 1, b"V")])
def test_a_runner_that_is_told_so_returns_its_result_and_leaves_no_file(
    place, monkeypatch, size, kind
):
    monkeypatch.delenv("IRIS_OUTPUT", raising=False)
    here = place / ".iris-call"
    (here / "items").write_bytes(table(list(pack_arguments([(size,)], 1))))
    called = call_runner.MappedFunction(bytes, {}, chunked=False)
    code, result = call_runner.outcome_of(called, str(here / "items"), 0, str(here))

    assert (code, result[:1], (here / "result").exists()) == (0, kind, False)
    stored = place / call_runner.LARGE_DIRECTORY / call_runner.LARGE_NAME
    assert value_of(stored.read_bytes() if stored.exists() else result[1:])[0] == bytes(size)


def value(place, function, *arguments, **kwargs):
    process, result = ran(place, function, arguments, **kwargs)
    assert (process.returncode, result[:1]) == (0, b"v"), process.stderr
    return value_of(result[1:])[0]


def error(place, function, *arguments, **kwargs):
    process, result = ran(place, function, arguments, **kwargs)
    assert (process.returncode, result[:1]) == (1, b"e"), process.stderr
    return error_of(result[1:])[1]


def test_a_function_with_what_it_closes_over_needs_no_cloudpickle(place):
    offset, names = 10, []

    def recursive(number):
        names.append(number)
        return offset + number if number else recursive(1)

    def modules(number):
        return recursive(number), [
            m for m in ("cloudpickle", "site", "typing", "traceback") if m in sys.modules
        ]

    assert value(place, modules, 0) == (11, [])


def test_constant_keyword_arguments_reach_the_call(place):
    assert value(place, lambda x, *, z: (x, z), 1, z=[2]) == (1, [2])


def test_classes_of_a_script_travel_along(place):
    subprocess.run([sys.executable, "-c", SCRIPT, place / ".iris-call"], check=True)
    process, result = ran(place)

    assert process.returncode == 0, process.stderr
    assert value_of(result[1:])[0].left == 6


def test_installed_packages_are_found_when_one_is_missing(place):
    def use():
        import msgspec

        return msgspec.json.encode([1])

    assert value(place, use) == b"[1]"


def test_modules_of_the_directory_and_of_pythonpath_are_found(place, tmp_path):
    (place / "beside.py").write_text("number = 1")
    (place / "lib").mkdir()
    (place / "lib/further.py").write_text("number = 2")

    def use():
        beside, further = (__import__(name) for name in ("beside", "further"))
        return beside.number + further.number

    process, result = ran(place, use, (), env={"PYTHONPATH": "lib"})
    assert value_of(result[1:]) == (3, None), process.stderr


def test_an_exception_comes_back_as_it_was_raised_with_its_traceback(place):
    def boom():
        return 1 / 0

    found = error(place, boom)
    assert type(found) is ZeroDivisionError
    assert str(found.__cause__).startswith('\n"""\nTraceback (most recent call last):\n')
    assert "in boom\n" in str(found.__cause__)
    assert "_called" not in str(found.__cause__)


def test_an_exception_that_does_not_unpickle_keeps_its_text(place):
    def raises():
        class Odd(Exception):
            """It is pickled with other arguments than its constructor takes."""

            def __init__(self, what, number):
                super().__init__(f"{what} {number}")

        raise Odd("the weight", 3)

    found = error(place, raises)
    assert type(found) is RemoteError
    first, traceback = str(found).split("\n", 1)
    assert "Odd: the weight 3 (it cannot be unpickled here: TypeError: " in first
    assert traceback.startswith("Traceback (most recent call last):\n")
    assert "in raises\n" in traceback


@pytest.mark.parametrize("how", ["lines", "noted", "group"])
def test_an_exception_that_its_host_cannot_pickle_is_named(place, how):
    def raises(how):
        class Locked(Exception):
            def __reduce__(self):
                raise TypeError("it holds a lock")

        error = Locked("the weight 3\nand more")
        if how == "noted":
            error.add_note("of the night")
        raise ExceptionGroup("two", [error]) if how == "group" else error

    found = error(place, raises, how)
    assert type(found) is RemoteError
    first, traceback = str(found).split("\n", 1)
    shown = "ExceptionGroup: two (1 sub-exception)" if how == "group" else "Locked: the weight 3"
    assert first.endswith(f"{shown} (its host cannot pickle it: TypeError: it holds a lock)")
    assert "in raises\n" in traceback
    assert "and more" in traceback


@pytest.mark.parametrize("name", ["KeyboardInterrupt", "GeneratorExit", "BaseException"])
def test_what_would_end_its_reader_is_a_remote_error(place, name):
    def raises(kind):
        raise getattr(__import__("builtins"), kind)("stop")

    found = error(place, raises, name)
    assert type(found) is RemoteError
    assert str(found) == f"the function raised {name}: stop"
    assert "in raises\n" in str(found.__cause__)


def test_what_cannot_be_pickled_is_an_error_of_the_call(place):
    def returns():
        import threading

        return threading.Lock()

    assert "the result cannot be sent back: " in str(error(place, returns))


def test_a_function_that_cannot_be_loaded_is_an_error_of_the_call(place):
    (place / ".iris-call/function").write_bytes(table([b"cnowhere\nnothing\n.", b"", b"", b""]))
    (place / ".iris-call/items").write_bytes(table([pickle.dumps(())]))
    process, result = ran(place)

    assert process.returncode == 1
    assert type(error_of(result[1:])[1]) is ModuleNotFoundError


BY_VALUE = cloudpickle.dumps(lambda: 1)


@pytest.mark.parametrize(
    ("function", "kwargs", "arguments"),
    [
        (BY_VALUE, b"", pickle.dumps(())),
        (pickle.dumps(dict), cloudpickle.dumps({"key": lambda: 1}), pickle.dumps(())),
        (pickle.dumps(callable), b"", cloudpickle.dumps((lambda: 1,))),
    ],
    ids=["function", "keyword argument", "argument"],
)
def test_code_of_another_python_is_refused_in_words(place, function, kwargs, arguments):
    packed = table([function, kwargs, b"", b"3.1"])
    (place / ".iris-call/function").write_bytes(packed)
    (place / ".iris-call/items").write_bytes(table([arguments]))

    found = error_of(ran(place)[1][1:])[1]
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert str(found) == (
        f"the function or an argument is code of Python 3.1, and this host runs it by {here}: "
        f"call it from Python {here}, have python3.1 in the PATH of the workers of the host, "
        'or ask for it by python="3.1"'
    )


def test_a_large_result_is_left_in_the_output_directory(place):
    process, result = ran(place, lambda: b"x" * 100_000)
    assert (process.returncode, result) == (0, b"V")
    assert value_of((place / ".iris-large/.iris-result").read_bytes()) == (b"x" * 100_000, None)

    (place / "mine").mkdir()
    ran(place, lambda: b"y" * 100_000, env={"IRIS_OUTPUT": str(place / "mine")})
    assert value_of((place / "mine/.iris-result").read_bytes())[0] == b"y" * 100_000


@pytest.mark.parametrize(
    "function",
    [
        lambda: os.closerange(0, 100),
        lambda: os.chdir("/"),
        lambda: os.fork() and None,
        lambda: setattr(sys, "stdout", None),
    ],
    ids=["closes", "moves", "forks", "mutes"],
)
def test_the_result_is_left_whatever_the_function_does_to_its_process(place, function):
    assert value(place, function) is None


def test_exit_leaves_no_result_and_keeps_its_code(place):
    process, result = ran(place, lambda: exit(3))
    assert (process.returncode, result) == (3, b"")


def test_threads_are_awaited_and_exit_handlers_run(place):
    def starts():
        import atexit
        import threading
        import time

        def late():
            time.sleep(0.1)
            print("thread", flush=True)

        threading.Thread(target=late).start()
        atexit.register(print, "handler")

    process, _ = ran(place, starts)
    assert process.stdout == b"thread\nhandler\n"


def test_a_chunk_leaves_each_outcome_and_fails_with_one(place):
    process, result = ran(place, lambda x: 6 // x, [(1,), (0,), (3,)], chunked=True)
    parts = pickle.loads(result[1:])

    assert (process.returncode, result[:1]) == (1, b"c")
    assert [kind for kind, _ in parts] == [b"v", b"e", b"v"]
    assert [value_of(parts[0][1])[0], type(error_of(parts[1][1])[1]), value_of(parts[2][1])[0]] == [
        6,
        ZeroDivisionError,
        2,
    ]


def test_a_segment_is_at_most_a_mebibyte_unless_one_item_is_larger():
    blobs = [b"a" * 600_000, b"b" * 600_000, b"c" * 3_000_000, b"d", b"e"]
    segments = list(segments_of(blobs))

    assert [first for first, _ in segments] == [0, 1, 2, 3]
    assert [len(data) <= SEGMENT_BYTES for _, data in segments] == [True, True, False, True]


@pytest.mark.parametrize("count", [0, 1, call_runner.HEAD])
def test_one_call_reads_its_own_entry_of_a_segment(tmp_path, count):
    path, blobs = tmp_path / "items", [b"zero", b"", b"two" * call_runner.HEAD, *[b"x"] * count]
    path.write_bytes(table(blobs))
    assert [call_runner.entry(str(path), index) for index in range(len(blobs))] == blobs


# ── the caller's __main__ ─────────────────────────────────────────────────────────────────────────

OF_A_SCRIPT = """
import concurrent.futures, multiprocessing, pickle, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import helper

from iris.client.maps.calls import pack_arguments, pack_function, table

class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return self.x == other.x

seen = 0

def twice(x):
    return 2 * x

def count():
    global seen
    seen += 1
    return seen

def forked(point):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(twice, range(point.x))

def spawned(point):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(abs, [-point.x])

def next_to(point):
    return Point(twice(point.x))

def called_elsewhere(method, point):
    with multiprocessing.get_context(method).Pool(1) as pool:
        found = pool.map(next_to, [point])
        return found == [Point(6)] and pool.map(helper.thrice, [point.x])

def spawned_with_own(point):
    return called_elsewhere("spawn", point)

def served_with_own(point):
    return called_elsewhere("forkserver", point)

def spawned_twice(point):
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(spawned_with_own, point).result()

def pickled(point):
    return pickle.loads(pickle.dumps(point)) == point and pickle.loads(pickle.dumps(twice))(1)

def counts(point):
    count()
    return [count(), sys.modules["__main__"].seen]

there = Path(sys.argv[1])
(there / "function").write_bytes(pack_function(globals()[sys.argv[2]], {}, chunked=False))
(there / "items").write_bytes(table(list(pack_arguments([(Point(3),)], 1))))
"""


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("forked", [0, 2, 4]),
        ("spawned", [3]),
        ("spawned_with_own", [9]),
        ("served_with_own", [9]),
        ("spawned_twice", [9]),
        ("pickled", 2),
        ("counts", [2, 2]),
    ],
)
def test_inside_a_call_main_is_the_script_of_the_caller(place, name, result):
    """Plain pickles and `multiprocessing` look there for its functions and classes, also in
    processes that are not forked from the call; what they miss a pool waits for without end.
    """
    there = place / ".iris-call"
    (there / "helper.py").write_text("def thrice(x):\n    return 3 * x\n")
    subprocess.run([sys.executable, "-c", OF_A_SCRIPT, there, name], check=True)
    process, left = ran(place)
    assert (process.returncode, process.stderr) == (0, b"")
    assert value_of(left[1:])[0] == result
