"""Calls that have the directories of the call before them, on a host whose tasks are another
user's.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cluster import cluster_on, settings

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("root", "bwrap"),
]

LEAVES = """import os, time
if not os.fork():
    while not os.path.exists("SHARED/go"):
        time.sleep(0.005)
    os.write(1, b"of the module")
    open("SHARED/printed", "w").close()
    os._exit(0)
"""


def test_what_a_module_has_left_prints_into_no_call(place: Path):
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "leaves.py").write_text(LEAVES.replace("SHARED", str(shared)))

    def call(number: int) -> int:
        import time

        if number == 3:
            open(f"{shared}/go", "w").close()
            while not os.path.exists(f"{shared}/printed"):
                time.sleep(0.005)
        return os.stat(".").st_ino

    options = settings(place / "data", f"[worker]\nbinds = '{shared}'\n")
    with cluster_on(place / "data", "--workers", "1", "--sandbox", *options) as cluster:
        mapped = cluster.client.map(
            call, range(5), cpu=8, preload=["leaves"], env={"PYTHONPATH": str(shared)}
        )
        directories = mapped.results(60)
        assert len(set(directories)) < 5, "no call had the directory of the call before"
        mapped.job.wait(60)
        assert [cluster.iris("logs", f"{mapped.job.name}/{number}").out for number in range(5)] == [
            ""
        ] * 5
