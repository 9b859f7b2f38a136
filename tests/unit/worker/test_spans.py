"""Spans that a worker records for the attempts of a traced job."""

import pytest

from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Order, Stage, TaskTemplate
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause, KernelStatus
from iris_worker.agent.spans import AttemptSpans, Span

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
ONE, OTHER = AttemptRef(1, 0, 1), AttemptRef(2, 0, 1)


def spans() -> tuple[AttemptSpans, list[Span]]:
    """Of a worker that was ordered to run a task of a traced job and one of another, and what it
    records.
    """
    traced = TaskTemplate(1, "/a", ("true",), {}, 1, ResourceRequest(), traceparent=TRACE)
    other = TaskTemplate(2, "/b", ("true",), {}, 1, ResourceRequest())
    recorded: list[Span] = []

    def record(span: Span) -> str:
        recorded.append(span)
        return f"below {span.name}"

    made = AttemptSpans("w0", record)
    made.ordered(Order("i", 1, templates=(traced, other), run=(ONE, OTHER)), 1000)
    return made, recorded


@pytest.mark.parametrize("at_once", [False, True])
def test_start_ends_as_the_process_runs_and_run_ends_with_it(at_once: bool):
    known, recorded = spans()
    running = Stage(ONE, KernelStatus.RUNNING, 1200)
    ended = Stage(ONE, KernelStatus.TERMINATED, 3000, Ended(Cause.EXITED, exit_code=3))
    stages = [Stage(ONE, KernelStatus.PREPARING, 1000), running, running, ended, ended]
    for part in [stages] if at_once else [[one] for one in stages]:
        known.committed(part)
    about = {"task": "/a/0", "attempt": 1, "worker": "w0"}
    assert [tuple(span) for span in recorded] == [
        ("start", TRACE, 1000, 1200, about),
        ("run", "below start", 1200, 3000, {**about, "cause": "exited", "exit_code": 3}),
    ]


def test_an_attempt_that_never_ran_has_the_start_alone():
    known, recorded = spans()
    known.committed(
        [Stage(ONE, KernelStatus.ERROR, 1100, Ended(Cause.INFRASTRUCTURE, error="no such file"))]
    )
    [span] = recorded
    assert (span.name, span.ended_ms, span.attributes["cause"]) == ("start", 1100, "infrastructure")


def test_an_attempt_that_is_adopted_has_the_span_of_its_run():
    recorded: list[Span] = []

    def record(span: Span) -> str:
        recorded.append(span)
        return ""

    known = AttemptSpans("w0", record)
    for ref, trace in ((ONE, TRACE), (OTHER, "")):
        known.adopted(ref, trace, "/a/0", 1200)
    ends = [
        Stage(ref, KernelStatus.TERMINATED, 3000, Ended(Cause.EXITED, exit_code=0))
        for ref in (ONE, OTHER)
    ]
    known.committed([Stage(ONE, KernelStatus.RUNNING, 1200), *ends])
    about = {"task": "/a/0", "attempt": 1, "worker": "w0", "cause": "exited", "exit_code": 0}
    assert [tuple(span) for span in recorded] == [("run", TRACE, 1200, 3000, about)]


def test_a_job_without_a_trace_has_no_spans():
    known, recorded = spans()
    ended = Stage(OTHER, KernelStatus.TERMINATED, 3000, Ended(Cause.EXITED, exit_code=0))
    known.committed([Stage(OTHER, KernelStatus.RUNNING, 1200), ended])
    assert recorded == []
