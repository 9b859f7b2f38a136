"""Who has stored as much today as the quota allows: what runs is told so, and goes on."""

import random
import re
from pathlib import Path

import pytest

from iris.client.problems import Problem
from tests.support.cluster import Ended, cluster_on, settings, until

pytestmark = pytest.mark.integration

MB = 1_000_000
FLOOD = (
    "head -c 1200000 /dev/zero | tr '\\0' x; echo; while ! test -e {go}; do sleep 0.05; done; "
    "yes 123456789 | head -c 2000000; mkdir out; echo kept > out/file"
)


def test_a_task_that_stores_more_than_allowed_goes_on_without(tmp_path: Path):
    data, go = tmp_path / "data", tmp_path / "go"
    bound = f"[state]\nmax_stored_today = {MB}\n[worker]\nheartbeat_interval_s = 0.5\n"
    with cluster_on(data, *settings(data, bound)) as cluster:
        command = ("sh", "-c", FLOOD.format(go=go))
        job = cluster.submit(*command, name="flood", output="out")
        until(
            lambda: "only the end is stored" in (cluster.client.task("/flood/0").note or ""),
            "the task is told that its output is not stored",
        )
        go.touch()
        assert job.wait(60).state == "succeeded"
        [attempt] = cluster.tasks(job)[0].attempts
        out = cluster.iris("logs", "flood/0").out
        with pytest.raises(Problem, match="and has stored 1") as refused:
            cluster.submit("true", name="more")
        shown = cluster.iris("quota", "show", job.view.user).out
        stored = cluster.iris("usage", "--stored").out
    assert out.splitlines()[0] == "x" * 1_200_000
    assert "of output dropped here: limit max_stored_today of the quota]\n" in out
    assert out.endswith("123456789\n")
    assert attempt.output_dropped_bytes > MB
    assert attempt.artifact is not None
    assert attempt.artifact.note is not None
    assert attempt.artifact.note.startswith("not kept: its user has stored as much today")
    assert refused.value.code == "over_quota"
    assert re.search(r"stored today +1\.\d+MiB of 976\.6KiB", shown)
    assert stored.splitlines()[1].split()[0] == job.view.user


def test_code_that_is_sent_is_counted_for_its_sender_and_bounded(tmp_path: Path):
    code = tmp_path / "code"
    code.mkdir()
    bound = f"[state]\nmax_stored_today = {MB}\n"
    data = tmp_path / "data"
    with cluster_on(data, *settings(data, bound)) as cluster:

        def send(size: int) -> Ended:
            (code / "model").write_bytes(random.Random(size).randbytes(size))
            return cluster.iris("run", "--workdir", str(code), "--", "true")

        def held() -> int:
            return sum(row.bundle_bytes for row in cluster.client.stored())

        first = send(MB - 100_000)
        until(lambda: held() > MB - 200_000, "what was sent is counted")
        more = send(200_000)
        shown = cluster.iris("usage", "--stored").out.splitlines()
    assert first.code == 0
    assert more.code != 0
    assert "of bundles, artifacts, output and results a day and has stored" in more.err
    assert shown[0].split()[-1] == "BUNDLES"
    assert shown[1].split()[-1].endswith("KiB")
