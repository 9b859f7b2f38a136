"""Spans that a worker records for the attempts of a traced job."""

from iris_core.messages import AttemptRef, Ended, Order, Stage, TaskTemplate
from iris_core.resources import ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.spans import AttemptSpans

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
ONE, OTHER = AttemptRef(1, 0, 1), AttemptRef(2, 0, 1)


def spans() -> AttemptSpans:
    """Of a worker that was ordered to run a task of a traced job and one of another."""
    traced = TaskTemplate(1, "/a", ("true",), {}, 1, ResourceRequest(), traceparent=TRACE)
    other = TaskTemplate(2, "/b", ("true",), {}, 1, ResourceRequest())
    made = AttemptSpans("w0")
    made.ordered(Order("i", 1, templates=(traced, other), run=(ONE, OTHER)), 1000)
    return made


def test_start_ends_as_the_process_runs_and_run_ends_with_it():
    known = spans()
    running = Stage(ONE, KernelStatus.RUNNING, 1200)
    ended = Stage(ONE, KernelStatus.TERMINATED, 3000, Ended(Cause.EXITED, exit_code=3))
    assert list(known.committed([Stage(ONE, KernelStatus.PREPARING, 1000)])) == []
    assert [tuple(span) for span in known.committed([running])] == [
        ("start", TRACE, 1000, 1200, {"task": "/a/0", "attempt": 1, "worker": "w0"})
    ]
    assert list(known.committed([running])) == []
    assert [tuple(span) for span in known.committed([running, ended])] == [
        (
            *("run", TRACE, 1200, 3000),
            {"task": "/a/0", "attempt": 1, "worker": "w0", "cause": "exited", "exit_code": 3},
        )
    ]
    assert list(known.committed([ended])) == []


def test_an_attempt_that_never_ran_has_the_start_alone():
    failed = Stage(ONE, KernelStatus.ERROR, 1100, Ended(Cause.INFRASTRUCTURE, error="no such file"))
    [span] = spans().committed([failed])
    assert (span.name, span.ended_ms, span.attributes["cause"]) == ("start", 1100, "infrastructure")


def test_a_job_without_a_trace_has_no_spans():
    ended = Stage(OTHER, KernelStatus.TERMINATED, 3000, Ended(Cause.EXITED, exit_code=0))
    assert list(spans().committed([Stage(OTHER, KernelStatus.RUNNING, 1200), ended])) == []
