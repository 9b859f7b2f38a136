"""Why a job failed, wherever its end is told; texts are compared whole."""

import pickle

import pytest

from iris import Client, JobFailed
from iris.client.problems import Unreachable
from tests.support.answers import Said, answering, events, job_view

LAST = "Traceback (most recent call last):\nRuntimeError: loss is nan"
SSE = {"Content-Type": "text/event-stream"}
COUNTS = {"succeeded": 4, "failed": 6}
CAUSES = [
    "/night: 6 x RuntimeError: loss is nan (tasks 5, 6, 7, 8, 9, ...)",
    "last lines of /night/5:",
    "  Traceback (most recent call last):",
    "  RuntimeError: loss is nan",
]
OWN = [CAUSES[0].removeprefix("/night: "), *CAUSES[1:]]


def failed(index):
    task = {
        "task": f"/night/{index}",
        "job": "/night",
        "index": index,
        "id": f"j8/{index}",
        "state": "failed",
    }
    counts = {"exit_code": 1, "failure_count": 1, "preemption_count": 0}
    attempt = {"stderr_tail": LAST, "error": "exit code 1", "number": 0}
    nothing = dict.fromkeys(("pending_reason", "worker", "note", "error", "signal"))
    return {**task, **counts, **nothing, "attempts": [attempt]}


def sweep(**members):
    error = "task 5 failed: exit code 1"
    return job_view("/night", "failed", replicas=10, task_counts=COUNTS, error=error, **members) | {
        "id": "j8"
    }


def gateway(job):
    """A cluster with a sweep that has failed, and perhaps a parent of it; ``job`` is what names are
    answered with.
    """

    def answer(request):
        path, ended = (
            request.path,
            {
                "job": job["name"],
                "job_id": job["id"],
                "state": "failed",
                "previous": "running",
                "at_ms": 1,
                "seq": 1,
            },
        )
        if "/logs" in path:
            return Said(headers=SSE, body=events(("end", {"state": "failed"})))
        if "/events" in path:
            return Said(headers=SSE, body=events(("job.state.failed", {**ended, "cause": None})))
        if "/tasks" in path:
            tasks = [failed(index) for index in range(5, 11)] if "/j8/" in path else []
            return Said(200, {"items": tasks, "next_cursor": None})
        if "/history" in path:
            return Said(200, {"items": [], "next_cursor": None})
        if "/tree" in path:
            return Said(200, {"job": job, "children": [{"job": sweep(), "children": []}]})
        if "/why" in path:
            facts = {
                "job": job["name"],
                "task": job["name"] + "/5",
                "state": "failed",
                "job_state": "failed",
            }
            return Said(
                200, {**facts, "error": job["error"], "replicas": 10, "task_counts": COUNTS}
            )
        return Said(201 if request.method == "POST" else 200, job)

    return answer


PARENT = job_view(
    "/pipeline",
    "failed",
    children=1,
    task_counts={"killed": 1},
    error="task 0 killed: child failed",
)


@pytest.mark.parametrize(("job", "causes"), [(sweep(), OWN), (PARENT, CAUSES)])
def test_why_names_the_causes_down_through_child_jobs(iris, job, causes):
    with answering(gateway(job)) as server:
        _, out, _ = iris("why", "--url", server.url, job["name"])
    assert out.splitlines() == [
        f"{job['name']} has ended: failed",
        *(f"  {line}" for line in (job["error"], *causes)),
    ]


def test_show_names_the_causes(iris):
    with answering(gateway(sweep())) as server:
        _, out, _ = iris("show", "--url", server.url, "night")
    assert out.splitlines()[-5:] == ["why tasks failed:", *OWN]


@pytest.mark.parametrize("words", [("run", "true"), ("rerun", "night"), ("wait", "night")])
def test_the_closing_lines_name_the_causes(iris, words):
    with answering(gateway(sweep())) as server:
        code, _, err = iris(words[0], "--url", server.url, *words[1:])
    lines = err.splitlines()
    assert code == 3
    assert lines[-6:] == [
        "/night failed: 4 succeeded, 6 failed",
        "  task 5 failed: exit code 1",
        *(f"  {one}" for one in OWN),
    ]


@pytest.mark.parametrize(("job", "causes"), [(sweep(), OWN), (PARENT, CAUSES)])
def test_the_exception_of_a_failed_job_names_the_causes(job, causes):
    with (
        answering(gateway(job)) as server,
        Client(server.url) as client,
        pytest.raises(JobFailed) as raised,
    ):
        client.job(job["name"]).result()
    assert str(raised.value) == "\n  ".join([f"{job['name']} failed: {job['error']}", *causes])
    assert [(cause.job, cause.count) for cause in raised.value.causes] == [("/night", 6)]


def test_exceptions_of_the_client_come_through_pickling():
    error = pickle.loads(pickle.dumps(JobFailed("/a", "failed", "exit code 1")))
    assert (str(error), error.name, error.state) == ("/a failed: exit code 1", "/a", "failed")
    assert str(pickle.loads(pickle.dumps(Unreachable("gone")))) == "gone"
