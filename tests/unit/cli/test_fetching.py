"""What `iris fetch` prints of a job of several tasks."""

from pathlib import Path

import pytest

from iris.cli import main
from tests.support.answers import Asked, Said, answering, job_view, problem


def test_a_problem_of_several_tasks_is_printed_once(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    """A restored cluster has no artifacts: 300 tasks printed 600 lines, none of which named a task."""

    def answer(request: Asked) -> Said:
        if "/tasks/" not in request.path:
            spec = job_view()["spec"]
            return Said(200, job_view(replicas=6, spec={**spec, "replicas": 6, "output": "out"}))
        index = request.path.split("%2F")[-1].partition("/")[0]
        if index in ("1", "3"):
            return problem(404, "not_found", f"attempt 0 of /train/{index} has no artifact: it was lost")
        return problem(410, "gone", "this artifact is kept no longer", type="/problems/gone")

    with answering(answer) as server:
        assert main(["fetch", "/train", str(tmp_path), "--url", server.url]) == 11
    assert capfd.readouterr().err.splitlines() == [
        "error: not fetched: 4 tasks, 0,2,4,5",
        "error: this artifact is kept no longer",
        f"  see {server.url}/problems/gone",
        "error: not fetched: 2 tasks, 1,3",
        "error: attempt 0 of /train/1 has no artifact: it was lost",
    ]
