"""What the exception of a call says whose process left nothing."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest

from iris.client.maps import call_runner
from iris.client.maps.outcomes import death_of, ending_of, outcomes_of
from iris.client.problems import JobFailed, JobKilled, RemoteError
from iris_core.views.jobs import TaskView
from iris_core.views.streams import CallResultView
from tests.support.fake_state import attempt_of

DIED = CallResultView(
    index=2, attempt=0, kind="died", data="", cause="exited", exit_code=7, signal=None, stored=False
)


def test_what_a_call_raised_names_its_task_and_which_of_its_calls() -> None:
    """Of a thousand calls one raised `KeyError: 'value'`, and nothing said which one."""

    def raised(kind: str, payload: bytes) -> list[list[str]]:
        result = msgspec.structs.replace(DIED, kind=kind)
        return [
            getattr(error, "__notes__", []) for _, error in outcomes_of("/m/2", result, payload)
        ]

    failed = bytes(4) + pickle.dumps(KeyError("value"))
    chunk = [(call_runner.VALUE, pickle.dumps(1)), (call_runner.ERROR, failed)]
    assert raised("error", failed) == [["from /m/2"]]
    assert raised("chunk", pickle.dumps(chunk)) == [[], ["from call 2 of 2 of /m/2"]]


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (1, "exit code 7"),
        (
            4,
            "exit code 7; none of the 4 calls of this task has a result, not even those that had returned",
        ),
    ],
)
def test_the_death_of_a_process_says_whose_results_are_lost(calls: int, words: str) -> None:
    """With `chunksize` results are stored together, and nothing said that the earlier ones were
    lost as well.
    """
    error = death_of("/m/2", DIED, calls)
    assert (error.exit_code, str(error)) == (7, f"/m/2 failed: {words}")


def test_the_death_of_a_process_says_what_its_host_knows_of_it() -> None:
    """A call over its memory limit was "killed by signal 9", and only `iris why` said for what."""
    limit = "memory limit 100MiB reached, peak 100MiB"
    killed = msgspec.structs.replace(DIED, exit_code=None, signal=9, error=limit)
    assert str(death_of("/m/2", killed, 1)) == f"/m/2 failed: {limit}"
    stopped = msgspec.structs.replace(
        DIED, cause="timeout", signal=15, error="killed by signal 15 (SIGTERM)"
    )
    assert str(death_of("/m/2", stopped, 1)) == "/m/2 killed: timeout"


def ended(error: str | None, attempts: list[Any], cause: str | None = None) -> TaskView:
    return TaskView(
        task="/m/2",
        job="/m",
        index=2,
        state="killed",
        pending_reason=None,
        failure_count=0,
        preemption_count=0,
        worker=None,
        attempts=attempts,
        error=error,
        cause=cause,
    )


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            ended("/a (j1) is failed, and this job waited for its success", []),
            "/a (j1) is failed, and this job waited",
        ),
        (ended(None, [], "job_ended"), "job ended"),
    ],
)
def test_a_call_that_never_started_says_why(task: TaskView, words: str) -> None:
    assert str(ending_of("/m/2", task, 1)).startswith(f"/m/2 killed: {words}")


def test_a_result_that_is_not_kept_is_no_failure_of_its_call() -> None:
    task = msgspec.structs.replace(ended(None, []), state="succeeded")
    error = ending_of("/m/2", task, 1)
    assert isinstance(error, RemoteError)
    assert "/m/2 succeeded, and its result is not kept any more" in str(error)


def test_the_last_line_of_stderr_is_said_once() -> None:
    line = "ModuleNotFoundError: No module named 'x'"
    last = msgspec.structs.replace(attempt_of(0), stderr_tail=f"Traceback\n{line}\n")
    assert (
        str(ending_of("/m/2", ended(f"preloading: {line}", [last]), 1))
        == f"/m/2 killed: preloading: {line}"
    )


def test_a_call_that_was_stopped_has_no_signal_whoever_tells_its_end_first() -> None:
    """How its process took the signal may be known before its future ends, or later, or never."""
    stopped = msgspec.structs.replace(DIED, cause="timeout", exit_code=None, signal=15)
    last = msgspec.structs.replace(attempt_of(0), cause="timeout", exit_code=3, signal=None)
    by_result, by_record = (
        death_of("/m/2", stopped, 1),
        ending_of("/m/2", ended("ran longer than 5 s", [last]), 1),
    )
    for error in (by_result, by_record, ending_of("/m/2", ended("ann", []), 1, stopped)):
        assert (type(error), error.exit_code, error.signal) == (JobKilled, None, None)
    died = death_of("/m/2", msgspec.structs.replace(DIED, exit_code=None, signal=11), 1)
    assert (type(died), died.exit_code, died.signal) == (JobFailed, None, 11)
