"""Jobs whose tasks are cloned from a process that has preloaded modules, on a whole cluster."""

from __future__ import annotations

import re

import pytest

from tests.support.cluster import until

pytestmark = pytest.mark.integration

SHOWS = "import os, sys; print(os.environ['IRIS_TASK_INDEX'], 'slow' in sys.modules, sys.argv[1:])"
SLOW = "import time\nprint('preloads')\ntime.sleep(1)\n"


@pytest.fixture
def code(tmp_path):
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "slow.py").write_text(SLOW)
    (directory / "show.py").write_text(SHOWS)
    (directory / "broken.py").write_text("raise RuntimeError('no such device')")
    (directory / "busy.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    return directory


def test_the_tasks_of_a_job_have_its_modules_preloaded_once(cluster, code):
    options = (
        "--name",
        "warm",
        "--workdir",
        code,
        "--replicas",
        6,
        "--cpu",
        0.1,
        "--preload",
        "json,slow",
    )
    run = cluster.iris("run", *options, "--", "python3", "show.py", "a")
    assert run.code == 0, run.err
    assert sorted(map(int, re.findall(r"(\d+) True \['a'\]", run.out))) == list(range(6))
    assert 1 <= run.out.count("preloads") <= len(list(cluster.client.workers()))


def test_a_module_that_cannot_be_imported_is_the_owners_failure(cluster, code):
    options = ("--name", "cold", "--workdir", code, "--preload", "broken")
    run = cluster.iris("run", *options, "--", "python3", "show.py")
    assert run.code == 3
    assert "preloading: RuntimeError: no such device" in run.err
    [task] = cluster.tasks(cluster.client.job("/cold"))
    [attempt] = task.attempts
    assert (attempt.cause, attempt.exit_code) == ("failed", 1)
    assert "Traceback" in (attempt.stderr_tail or "")


def test_show_says_why_a_task_is_not_cloned(cluster, code):
    options = ("--name", "busy", "--workdir", code, "--preload", "busy")
    (code / "wait.py").write_text("import time; time.sleep(100)")
    cluster.iris("run", "-d", *options, "--", "python3", "wait.py")
    until(lambda: "preloading left 2 threads" in cluster.iris("why", "/busy/0").out, "why says it")
    [task] = cluster.tasks(cluster.client.job("/busy"))
    assert task.note == "it is not cloned: preloading left 2 threads"
    cluster.client.job("/busy").cancel("seen")


def test_the_calls_of_a_map_are_clones_with_its_modules(cluster):
    def looks(number):
        import sys

        with open("/proc/self/cmdline") as file:
            return "iris_template" in file.read(), "decimal" in sys.modules

    mapped = cluster.client.map(looks, range(6), preload=["decimal"], cpu=0.1)
    assert mapped.results() == [(True, True)] * 6
