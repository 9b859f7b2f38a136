"""The end of a job's output: `iris run` prints it to its last line, and says what it does not
print.
"""

import signal
import threading
from datetime import UTC, datetime

import pytest

from iris.cli.follow import print_event_line
from iris.cli.output.lines import LinePrinter
from iris.client.decode import from_builtins
from iris_core.views.events import TaskEvent
from tests.support.answers import Said, answering, events, in_turn, job_view, problem

SSE = {"Content-Type": "text/event-stream"}
ENDED = {
    "job": "/train",
    "job_id": "j7",
    "state": "failed",
    "previous": "running",
    "cause": None,
    "at_ms": 1,
    "seq": 1,
}
SUMMARY = "/train submitted\n/train failed: 1 failed\n"


def line(number):
    text = f"line {number}"
    said = {
        "task": "/train/0",
        "index": 0,
        "attempt": 0,
        "stream": "stdout",
        "at": None,
        "offset": number,
    }
    return ("log", {**said, "line": text})


def end(**members):
    return ("end", {"state": "failed", **members})


def test_a_task_that_a_signal_ended_is_said_with_the_signal(capsys):
    """The event of a release that names none has the cause alone, if that says more than the
    state.
    """
    shared = {
        "task": "/a/0",
        "attempt": 0,
        "job": "/a",
        "previous": "running",
        "worker": "w0",
        "at_ms": 1,
        "seq": 1,
    }
    for end in (
        {"signal": 11},
        {},
        {"signal": 9, "cause": "worker_lost"},
        {"exit_code": 3},
        {"signal": 40},
    ):
        body = {**shared, "state": "failed", "cause": "failed", "exit_code": None, **end}
        print_event_line(from_builtins(body, TaskEvent))
    whys = [line.partition("(")[2] for line in capsys.readouterr().err.splitlines()]
    assert whys == ["signal 11, SIGSEGV)", "", "worker_lost)", "exit code 3)", "signal 40, SIG40)"]


class Ending:
    """A gateway whose job ends before its output is sent; ``followed`` is set when nobody reads
    events any more.

    Attributes:
        follow: answers the request for events.
    """

    def __init__(self, output):
        self.followed = threading.Event()
        self.follow = lambda _: Said(headers=SSE, body=self._events())
        self._output = output
        self._views = [job_view()]

    def __call__(self, request):
        if request.method == "POST":
            return Said(201, job_view())
        if request.path.endswith("/events"):
            return self.follow(request)
        if "/logs" in request.path:
            return self._output(self)
        return Said(200, self._views.pop() if self._views else job_view(state="failed"))

    def _events(self):
        yield events(("job.state.failed", ENDED))
        try:
            while True:  # until its reader closes the connection
                yield b":\n\n" * 1000
        finally:
            self.followed.set()


def test_lines_begin_with_the_time_when_they_were_written(iris):
    kind, said = line(1)
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, UTC)
    output = events((kind, {**said, "at": at.isoformat()}), line(2), end())
    with answering(lambda _: Said(headers=SSE, body=output)) as server:
        words = ("logs", "--url", server.url, "/train", "--timestamps", "--prefix")
        assert iris(*words)[:2] == (
            0,
            f"{at.astimezone().isoformat()[:23]}{at.astimezone().isoformat()[-6:]} 0| line 1\n0| line 2\n",
        )


@pytest.mark.parametrize(
    ("cause", "code", "words"),
    [("failed", None, ""), ("failed", 3, " (exit code 3)"), ("timeout", None, " (timeout)")],
)
def test_a_cause_that_only_repeats_the_state_is_not_printed(capsys, cause, code, words):
    """A task that a signal has killed was "failed (failed)"."""
    print_event_line(
        TaskEvent(
            state="failed",
            previous="running",
            at_ms=1,
            seq=1,
            task="/train/0",
            attempt=0,
            job="/train",
            cause=cause,
            exit_code=code,
            worker="w0",
        )
    )
    assert capsys.readouterr().err == f"/train/0 failed{words}\n"


def run(iris, output):
    with answering(Ending(output)) as server:
        return iris("run", "--url", server.url, "--", "true")


def test_output_that_comes_after_the_end_is_printed_to_its_last_line(iris):
    def output(gateway):
        def pieces():
            yield events(line(1))
            gateway.followed.wait(30)
            for number in range(2, 5000):
                yield events(line(number))
            yield events(end())

        return Said(headers=SSE, body=pieces())

    code, out, err = run(iris, output)
    assert (code, out) == (3, "".join(f"line {number}\n" for number in range(1, 5000)))
    assert err == SUMMARY


def test_a_token_that_expires_while_a_job_is_followed_leaves_the_job(iris):
    def output(gateway):
        return Said(headers=SSE, body=events(line(1)))

    gateway = Ending(output)
    gateway._views = [job_view(state="running")] * 9
    gateway.follow = lambda _: problem(401, "unauthenticated", "this token has expired")
    with answering(gateway) as server:
        code, _, err = iris("run", "--url", server.url, "--", "true")
    assert (code, "come back: iris logs -f j7" in err, "this token has expired" in err) == (
        9,
        True,
        True,
    )


def test_a_line_is_not_printed_after_its_output_is_closed(iris, monkeypatch, capfd):
    """A line that was printed late appeared in the output of the next command."""
    read, closed = threading.Event(), threading.Event()

    class Late(LinePrinter):
        def print(self, line, whose="", *, flush=True):
            read.set()
            closed.wait(0.2)  # never set: the time that a loaded machine takes
            super().print(line, whose, flush=flush)

    monkeypatch.setattr("iris.cli.follow.LinePrinter", Late)
    gateway = Ending(lambda _: Said(headers=SSE, body=events(line(1))))
    gateway._views = [job_view(state="running")] * 9

    def refuse(_):
        read.wait(30)
        return problem(401, "unauthenticated", "this token has expired")

    gateway.follow = refuse
    with answering(gateway) as server:
        _, out, _ = iris("run", "--url", server.url, "--", "true")
    printed_by_then = out
    closed.wait(0.5)
    assert (printed_by_then, capfd.readouterr().out) == ("line 1\n", "")


def test_ctrl_c_after_the_end_says_how_to_print_the_lines_left(iris):
    stopped = threading.Event()

    def interrupt(*_):
        stopped.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)

    def output(gateway):
        def pieces():
            yield events(line(1))
            gateway.followed.wait(30)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            stopped.wait(30)
            yield events(*map(line, range(2, 1236)), end())

        return Said(headers=SSE, body=pieces())

    try:
        code, out, err = run(iris, output)
    finally:
        signal.signal(signal.SIGINT, before)
    printed = out.count("\n")  # one, and those between the interrupt and its handling
    assert (code, out) == (3, "".join(f"line {number}\n" for number in range(1, printed + 1)))
    assert (
        err
        == f"{SUMMARY}  {1235 - printed:,} lines of output are not shown; print it: iris logs j7\n"
    )


def interrupting(answer):
    """What a gateway does while someone presses Ctrl-C before its answer."""

    def answered(_):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return answer

    return answered


def test_ctrl_c_before_the_first_line_says_how_to_come_back(iris):
    """The signal comes while it waits for an answer: while it connects, Python's own code would
    leave a socket open.
    """
    interrupted = Ending(lambda _: Said(headers=SSE, body=events()))
    interrupted.follow = interrupting(Said(headers=SSE, body=events()))
    with answering(interrupted) as server:
        code, out, err = iris("run", "--url", server.url, "--", "true")
    assert (code, out) == (130, "")
    assert err.startswith(
        "/train submitted\n\ndetached; /train goes on as j7\n  come back: iris logs -f j7 "
    )


def test_ctrl_c_before_a_submission_is_answered_says_what_may_be(iris):
    with answering(interrupting(Said(201, job_view()))) as server:
        code, out, err = iris("run", "--url", server.url, "--", "true")
    assert (code, out) == (130, "")
    assert (
        err == "interrupted before an answer: the job may have been submitted; `iris ls` shows it\n"
    )


def test_output_that_cannot_be_read_is_not_passed_over(iris):
    code, _, err = run(iris, lambda _: problem(410, "gone", "this output has expired"))
    assert code == 3
    assert err == SUMMARY + (
        "  the output is not shown to its end: this output has expired; print it: iris logs j7\n"
    )


def test_output_that_has_not_arrived_is_not_passed_over(iris):
    code, _, err = run(iris, lambda _: Said(headers=SSE, body=events(line(1), end(unfinished=2))))
    assert code == 3
    assert err == SUMMARY + "  not all of its output has arrived; print it: iris logs j7\n"


def test_a_gateway_that_is_away_is_followed_by_how_to_come_back(iris):
    def running(request):
        hang_up = request.path.endswith("/events")
        return (
            Said(hang_up=hang_up)
            if hang_up
            else Said(201 if request.method == "POST" else 200, job_view())
        )

    with answering(running) as server:
        for words in (
            ["run", "--url", server.url, "--", "true"],
            ["wait", "--url", server.url, "/train"],
        ):
            code, _, err = iris("--retry-for", "0s", *words)
            assert code == 8
            assert "/train goes on as j7\n  come back: iris logs -f j7 " in err
            assert err.splitlines()[-1].startswith(
                f"error: the gateway at {server.url} (from --url) does not answer"
            )
            assert "client.job" not in err


def beside_the_job(streams):
    """Answers requests for the job itself, others as ``streams`` does."""
    job = Said(200, job_view(state="running"))
    return lambda asked: job if asked.path == "/v1/jobs/%2Ftrain" else streams(asked)


def test_output_of_a_gateway_that_goes_away_is_followed_by_how_to_go_on(iris):
    streams = in_turn(Said(headers=SSE, body=events(line(1))), Said(hang_up=True))
    with answering(beside_the_job(streams)) as server:
        code, out, err = iris("--retry-for", "0s", "logs", "-f", "--url", server.url, "/train")
    assert (code, out) == (8, "line 1\n")
    first, last = err.splitlines()
    assert first == "/train goes on unless it has ended; come back: iris logs -f /train"
    assert last.startswith(f"error: the gateway at {server.url} (from --url) does not answer")


def test_following_output_says_once_that_the_gateway_is_away_and_back(iris):
    refused = problem(503, "unavailable", "the gateway is about to restart")
    refused.headers = {**refused.headers, "Retry-After": "1"}
    streams = in_turn(
        Said(headers=SSE, body=events(line(1))), refused, Said(headers=SSE, body=events(end()))
    )
    with answering(beside_the_job(streams)) as server:
        code, out, err = iris("logs", "-f", "--url", server.url, "/train")
    away = "waiting: the gateway is about to restart; jobs go on; trying again for up to 90 s"
    assert (code, out, err) == (0, "line 1\n", f"{away}\nthe request was answered\n")
