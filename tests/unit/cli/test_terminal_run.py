"""`iris run` on a real pseudo-terminal: placement, progress and prefixes of lines."""

import os
import pty
import subprocess
import sys

from tests.support.answers import Said, answering, events, job_view

SSE = {"Content-Type": "text/event-stream"}
ENDED = {
    "job": "/train",
    "job_id": "j7",
    "state": "succeeded",
    "previous": "running",
    "cause": None,
    "at_ms": 1,
    "seq": 2,
}
STARTED = {
    "task": "/train/1",
    "attempt": 0,
    "job": "/train",
    "state": "running",
    "previous": "building",
    "cause": None,
    "exit_code": None,
    "worker": "w7",
    "at_ms": 1,
    "seq": 1,
}
LINE = {
    "task": "/train/1",
    "index": 1,
    "attempt": 0,
    "stream": "stdout",
    "at": None,
    "offset": 0,
    "line": "hello",
}


def at_a_terminal(*words):
    """Everything a command line prints on a terminal."""
    ours, theirs = pty.openpty()
    environ = {key: value for key, value in os.environ.items() if not key.startswith("IRIS_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "iris.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**environ, "XDG_CONFIG_HOME": "/nowhere"},
    )
    os.close(theirs)
    given = b""
    try:
        while chunk := os.read(ours, 4096):
            given += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(30) == 0, given
    return given.decode()


def test_run_at_a_terminal_shows_progress_and_whose_each_line_is():
    views = [job_view(replicas=2, task_counts={"running": 1, "pending": 1})] * 3

    def answer(request):
        if request.method == "POST":
            return Said(201, job_view(replicas=2))
        if request.path.endswith("/events"):
            more = [("job.state.succeeded", ENDED)] if not views else []
            return Said(headers=SSE, body=events(("task.state.running", STARTED), *more))
        if "/logs" in request.path:
            return Said(headers=SSE, body=events(("log", LINE), ("end", {"state": "succeeded"})))
        return Said(200, views.pop() if views else job_view(state="succeeded", replicas=2))

    with answering(answer) as server:
        given = at_a_terminal("run", "--url", server.url, "-r", "2", "--", "true")

    assert f"{server.url}/jobs/j7" in given
    assert "/train/1 runs on w7" in given
    assert "1| hello" in given
    assert "0/2" in given
