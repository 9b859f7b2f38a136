"""`iris run --output DIR` and `iris fetch`, through a whole cluster and its services."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris import Job
from iris.client.problems import Conflict, NotFound, Problem
from tests.support.cluster import Cluster, cluster_on, settings, until

pytestmark = pytest.mark.integration

MIB = 1 << 20
TREE = """
import os, pathlib
out = pathlib.Path(os.environ["IRIS_OUTPUT"])
(out / "empty").mkdir()
(out / "sub").mkdir(mode=0o750)
(out / "sub" / "noise").write_bytes(os.urandom(3 << 20))
(out / "run.sh").write_text("#!/bin/sh\\n")
(out / "run.sh").chmod(0o755)
(out / "latest").symlink_to("sub/noise")
(out / "bad").symlink_to("/etc/passwd")
import hashlib
print(hashlib.sha256((out / "sub" / "noise").read_bytes()).hexdigest())
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    data = tmp_path_factory.mktemp("artifacts") / "data"
    limits = settings(data, f"[worker]\nartifact_bytes = {8 * MIB}\n")
    with cluster_on(data, "--workers", "1", *limits) as running:
        yield running


def ended(cluster: Cluster, *command: str, **options: object) -> Job:
    job = cluster.submit(*command, output="out", **options)
    job.wait(60)
    return job


def tree(root: Path) -> dict[str, str]:
    """What is below a directory: kind, permissions and content."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if path.is_symlink():
            found[path.relative_to(root).as_posix()] = f"-> {os.readlink(path)}"
        else:
            content = (
                hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
            )
            found[path.relative_to(root).as_posix()] = f"{mode:o} {content}"
    return found


def test_what_a_task_leaves_comes_back_bit_for_bit(cluster: Cluster, tmp_path: Path):
    job = ended(cluster, "python3", "-c", TREE)
    printed = next(line.line for line in cluster.client.logs(f"{job.name}/0", follow=False))
    fetched = cluster.iris("fetch", job.name, tmp_path / "new" / "here")
    assert (fetched.code, fetched.out) == (0, f"{tmp_path}/new/here  3 files\n")
    assert tree(tmp_path / "new" / "here") == {
        "empty": "755 directory",
        "latest": "-> sub/noise",
        "run.sh": f"755 {hashlib.sha256(b'#!/bin/sh' + os.linesep.encode()).hexdigest()}",
        "sub": "750 directory",
        "sub/noise": f"644 {printed}",
    }
    shown = cluster.iris("show", f"{job.name}/0").out
    assert "artifact  3 files in 3.0" in shown
    assert "left out: bad (a link out of the directory)" in shown


def test_each_task_has_its_own_output_directory_also_when_it_fails(
    cluster: Cluster, tmp_path: Path
):
    job = ended(
        cluster,
        *("sh", "-c", "echo $IRIS_TASK_INDEX > out/index; exit $IRIS_TASK_INDEX"),
        replicas=2,
        max_task_failures=2,
    )
    assert cluster.iris("fetch", job.name, tmp_path).code == 0
    assert [(tmp_path / str(index) / "index").read_text() for index in range(2)] == ["0\n", "1\n"]
    assert [task.state for task in job.tasks()] == ["succeeded", "failed"]


def test_each_attempt_keeps_its_own(cluster: Cluster, tmp_path: Path):
    job = ended(
        cluster,
        "sh",
        "-c",
        "echo $IRIS_ATTEMPT > out/a; exit $((1 - IRIS_ATTEMPT))",
        max_retries_failure=1,
    )
    assert job.state == "succeeded"
    for attempt, words in ((None, "1\n"), (1, "1\n"), (0, "0\n")):
        assert cluster.client.fetch(f"{job.name}/0", tmp_path, attempt=attempt) == 1
        assert (tmp_path / "a").read_text() == words
    with pytest.raises(NotFound, match="has no attempt 2"):
        cluster.client.fetch(f"{job.name}/0", tmp_path, attempt=2)


def test_what_is_too_large_is_not_kept_and_a_sentence_says_so(cluster: Cluster, tmp_path: Path):
    job = ended(cluster, "sh", "-c", f"truncate -s {9 * MIB} out/x")
    assert job.state == "succeeded"
    fetched = cluster.iris("fetch", job.name, tmp_path)
    assert fetched.code == 10
    assert "its files have more than 8MiB, the limit of this worker (artifact_bytes)" in fetched.err
    plain = cluster.submit("true")
    plain.wait(60)
    with pytest.raises(NotFound, match="its job has no output directory"):
        cluster.client.fetch(f"{plain.name}/0", tmp_path)


def test_before_its_end_there_is_none(cluster: Cluster, tmp_path: Path):
    job = cluster.submit("sleep", "1000", output="out")
    until(lambda: cluster.client.task(f"{job.name}/0").state == "running", "it runs")
    with pytest.raises(Conflict, match="has not ended"):
        cluster.client.fetch(f"{job.name}/0", tmp_path)
    job.cancel()


def test_a_path_that_leads_out_is_refused_before_anything_runs(cluster: Cluster):
    for path in ("../out", "/out", ".", "a//b"):
        with pytest.raises(Problem, match="/output"):
            cluster.submit("true", output=path)


def test_the_page_of_a_task_links_to_it_and_the_api_names_it(cluster: Cluster):
    job = ended(cluster, "sh", "-c", "echo x > out/x")
    [attempt] = json.loads(cluster.iris("show", f"{job.name}/0", "-o", "json").out)["attempts"]
    assert attempt["artifact"].pop("upload")
    assert {**attempt["artifact"], "bytes": 0} == {"bytes": 0, "files": 1, "note": None}
