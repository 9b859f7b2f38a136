"""A process that ends tells which calls of its clients were not submitted, and fails."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import iris
import iris_core

NOT_ANSWERED = "the gateway at http://127.0.0.1:1 (from --url) does not answer: Connection refused"
LOST = f"iris: calls of an executor that were not submitted: 1; Unreachable: {NOT_ANSWERED}"
BEGIN = """
import atexit, os, sys, threading, time
atexit.register(print, "registered before")
from iris import Client, Executor
executor = Executor(Client("http://127.0.0.1:1"))
atexit.register(print, "registered after")
"""


def ended(script: str) -> tuple[int, list[str], list[str]]:
    """The exit code of a process that runs this, and the lines of both its streams."""
    paths = os.pathsep.join(str(Path(module.__file__).parents[1]) for module in (iris, iris_core))
    done = subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", BEGIN + script],
        env={**os.environ, "PYTHONPATH": paths},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines(), done.stderr.splitlines()


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit()",
        "executor.shutdown(wait=False)",
        "del executor",
        "threading.Thread(target=time.sleep, args=(0.01,)).start()",
        "while not future.done(): time.sleep(0.001)",
        "sys.exit(3)",
    ],
)
def test_a_process_whose_calls_were_not_submitted_says_so_and_fails(end):
    code, out, err = ended(f"future = executor.submit(print, 1)\n{end}")

    assert (code, err) == (1, [LOST])
    assert out == ["registered after", "registered before"]


@pytest.mark.parametrize(
    "end",
    [
        "print(type(future.exception()).__name__)",
        "future.add_done_callback(lambda one: print(type(one.exception()).__name__))",
    ],
)
def test_a_failure_that_was_read_is_not_reported_again(end):
    code, out, err = ended(f"future = executor.submit(print, 1)\n{end}")

    assert (code, err) == (0, [])
    assert out == ["Unreachable", "registered after", "registered before"]


def test_a_process_without_calls_ends_as_it_did():
    assert ended("executor.shutdown(wait=False)\nsys.exit(3)")[::2] == (3, [])


def test_a_fork_leaves_the_calls_of_the_other_process_alone():
    code, out, err = ended(
        "sys.stdout.flush()\n"
        "if not (child := os.fork()):\n"
        "    try:\n"
        "        executor.submit(print)\n"
        "    except RuntimeError as error:\n"
        "        print(str(error).replace(str(os.getppid()), 'PARENT'))\n"
        "    sys.exit()\n"
        "print(os.waitpid(child, 0)[1])\n"
    )

    refused = "this executor is of process PARENT, of which this is a fork; make another"
    assert (code, err) == (0, [])
    assert out[:3] == [refused, "registered after", "registered before"]
    assert out[3:] == ["0", "registered after", "registered before"]
