"""`iris up --sandbox` as root without bubblewrap: the users of tasks pass the directories that it
makes, see nothing there but their own, and those that somebody else has closed are named.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from iris.cluster.local import LocalCluster
from tests.support.cluster import cluster_on, iris, settings
from tests.support.hosts import open_directory

pytestmark = [
    pytest.mark.integration,
    pytest.mark.bare,
    pytest.mark.needs("root", "control groups"),
]
LOOKS = """
while IFS= read -r path; do
  case $path in */attempts/*) continue ;; esac
  if [ -d "$path" ]; then ls "$path" >/dev/null 2>&1 && echo "lists $path"
  elif cat "$path" >/dev/null 2>&1; then echo "reads $path"; fi
  [ -w "$path" ] && echo "writes $path"
done < "$LISTED"
echo "looked as $(id -u)"
"""


@contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as made:
        yield made


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_tasks_of_users_of_their_own_run_in_a_directory_that_iris_has_made(place: Path, umask: int):
    data = place / "data"
    listed = place / "listed"
    work = place / "work"
    work.mkdir()
    (work / "code.sh").write_text("echo from code > out/result")
    with masked(umask), cluster_on(data, "--workers", "1", "--sandbox", fresh=True) as cluster:
        options = ("--workdir", work, "--output", "out", "--name", "before")
        before = cluster.iris("run", *options, "--", "sh", "code.sh")
        assert before.code == 0, before.err
        fetched = cluster.iris("fetch", "before", place / "fetched")
        assert fetched.code == 0, fetched.err
        cluster.kill("scheduler")  # which is noted in a file
        listed.write_text("".join(f"{path}\n" for path in (data, *data.rglob("*"))))
        listed.chmod(0o644)
        names = {path.name for path in data.iterdir()}
        assert names >= {"cluster.json", "failure.txt", "log", "nats", "token", "workers"}

        given = ("--name", "looks", "--env", f"LISTED={listed}")
        looked = cluster.iris("run", *given, "--", "sh", "-c", LOOKS)

        assert looked.code == 0, looked.err
        seen, user = cluster.iris("logs", "looks").out.split("looked as ")
        assert int(user) > 0
        assert seen == ""


def test_a_directory_that_somebody_else_has_closed_is_named_and_kept_so(place: Path):
    closed = [place / "closed", place / "closed" / "data"]
    for path in closed:
        path.mkdir(mode=0o700)
    done = iris("up", "--data", closed[1], "--http", "127.0.0.1:0", "--workers", "1", "--sandbox")
    assert done.code != 0
    assert f"cannot pass {closed[0]}, {closed[1]};" in done.err
    assert f"`chmod o+x {closed[0]} {closed[1]}` lets them pass" in done.err
    assert [stat.S_IMODE(path.stat().st_mode) for path in closed] == [0o700, 0o700]


def test_a_local_cluster_confines_tasks_in_its_temporary_directory(place: Path):
    _, config = settings(place / "data", "[cluster]\nsandbox = true\n")
    with LocalCluster(workers=1, config=Path(config)) as cluster:
        job = cluster.client.run(["sh", "-c", "test $(id -u) -ne 0"], name="user").wait(60)
        assert job.state == "succeeded", job
        assert stat.S_IMODE((cluster.data / "up.log").stat().st_mode) == 0o600
