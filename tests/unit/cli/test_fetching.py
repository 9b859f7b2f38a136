"""What `iris fetch` prints of a job of several tasks."""

import io
import tarfile
from pathlib import Path

import pytest

from iris.cli import main
from tests.support.answers import Asked, Said, answering, job_view, problem


def artifact(text: str, at: int) -> Said:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("model.pt")
        member.size, member.mtime = len(text), at
        archive.addfile(member, io.BytesIO(text.encode()))
    return Said(200, body=packed.getvalue(), headers={"Content-Type": "application/gzip"})


def test_files_of_another_job_are_not_replaced_without_a_word(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    """The tasks of both arrays have the same indexes: those of the first were gone."""
    texts = {"first": ("one", 1_000_000_000), "second": ("two", 1_000_000_060)}

    def answer(request: Asked) -> Said:
        of = "second" if "second" in request.path else "first"
        if "/tasks/" in request.path:
            return artifact(*texts[of])
        spec = job_view()["spec"]
        return Said(
            200,
            job_view(
                id=of, name=f"/{of}", replicas=7, spec={**spec, "replicas": 7, "output": "out"}
            ),
        )

    said = []
    with answering(answer) as server:
        for name in ("first", "first", "second"):
            assert main(["fetch", f"/{name}", str(tmp_path), "--url", server.url]) == 0
            said.append(capfd.readouterr().err)
    names = ", ".join(str(tmp_path / str(index) / "model.pt") for index in range(5))
    assert said == ["", "", f"warning: replaced 7 files that differed: {names}, ...\n"]
    assert (tmp_path / "6" / "model.pt").read_text() == "two"


def test_a_problem_of_several_tasks_is_printed_once(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
):
    """A restored cluster has no artifacts: 300 tasks printed 600 lines, none of which named a
    task.
    """

    def answer(request: Asked) -> Said:
        if "/tasks/" not in request.path:
            spec = job_view()["spec"]
            return Said(200, job_view(replicas=6, spec={**spec, "replicas": 6, "output": "out"}))
        index = request.path.split("%2F")[-1].partition("/")[0]
        if index in ("1", "3"):
            return problem(
                404, "not_found", f"attempt 0 of /train/{index} has no artifact: it was lost"
            )
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
