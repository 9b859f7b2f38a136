"""joblib on a whole cluster: its calls are tasks, and scikit-learn runs unchanged."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from iris_core.spec.resources import CPU
from tests.house.repository import ROOT
from tests.support.cluster import Cluster
from tests.support.frameworks import FRAMEWORKS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.needs("sklearn"),
]
WITHIN_S = 120

CALLS = """
import os, time, joblib, iris.joblib
from joblib import Parallel, delayed

def where(x):
    return x, os.environ.get("IRIS_JOB", "here")

def odd(x):
    if x == 1:
        raise KeyError("gone")
    time.sleep(1000)

options = {"cpu": 0.1, "env": {"PYTHONPATH": %r}}
with joblib.parallel_config(backend="iris", name="j-list", **options):
    print(Parallel(pre_dispatch="all")(delayed(where)(x) for x in range(3)))
    print(Parallel()(delayed(where)(x) for x in [5]))
    print(Parallel(n_jobs=1)([delayed(where)(7)]))
with joblib.parallel_config(backend="iris", **options):
    print(len(Parallel(n_jobs=2)(delayed(where)(x) for x in range(6))))
    print(sorted(x for x, _ in Parallel(n_jobs=2, return_as="generator_unordered")(delayed(where)(x) for x in "abc")))
    with Parallel(n_jobs=2) as parallel:
        print([sum(x for x, _ in parallel(delayed(where)(x) for x in range(n))) for n in (2, 3)])
try:
    Parallel(n_jobs=3, backend="iris", name="j-odd", **options)(delayed(odd)(x) for x in range(3))
except KeyError as error:
    print(repr(error), "in odd" in str(error.__cause__))
try:
    Parallel(n_jobs=2, backend="iris", cups=1)(delayed(where)(x) for x in range(2))
except TypeError as error:
    print(error)
"""


ROOM = """
import joblib, iris.joblib
from joblib import Parallel, delayed

options = {"cpu": 0.5, "env": {"PYTHONPATH": %r}}
with joblib.parallel_config(backend="iris", **options):
    print([joblib.effective_n_jobs(count) for count in (-1, -2, -1000, 1, 7)])
    try:
        Parallel(n_jobs=0)(delayed(abs)(x) for x in range(3))
    except ValueError as error:
        print(error)
with joblib.parallel_config(backend="iris", name="j-reuse", reuse=50, n_jobs=2, **options):
    print(Parallel(batch_size=2)(delayed(abs)(x) for x in range(-5, 0)))
try:
    Parallel(n_jobs=2, backend="iris", reuse=0, **options)(delayed(abs)(x) for x in range(2))
except iris.Rejected as error:
    print(error)
"""


@pytest.fixture
def cluster(map_cluster: Cluster) -> Cluster:
    """Of both kinds of calls with fresh memory."""
    return map_cluster


def said(cluster: Cluster, program: str) -> list[str]:
    """The lines that a program printed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**cluster.environ, "PYTHONPATH": str(FRAMEWORKS)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def test_calls_of_joblib_are_tasks(cluster: Cluster):
    listed, second, alone, count, unordered, reused, failed, refused = said(
        cluster, CALLS % str(FRAMEWORKS)
    )

    assert listed == str([(x, "/j-list-1") for x in range(3)])
    assert second == "[(5, '/j-list-2')]"
    assert alone == "[(7, 'here')]"
    assert (count, unordered, reused) == ("6", "['a', 'b', 'c']", "[1, 3]")
    assert failed == "KeyError('gone') True"
    assert "cups" in refused
    assert cluster.client.job("/j-odd-1").wait(WITHIN_S).state == "killed"


def test_joblib_fills_the_cluster_and_reuses_processes(cluster: Cluster):
    room = sum(host.total[CPU.name] for host in cluster.client.workers()) // 500
    counts, nothing, values, refused = said(cluster, ROOM % str(FRAMEWORKS))

    assert counts == str([room, room - 1, 2, 1, 7])
    assert nothing == "n_jobs == 0 in Parallel has no meaning"
    assert values == "[5, 4, 3, 2, 1]"
    assert refused == "/calls/reuse: 0 is not between 1 and 10000"
    job = cluster.client.job("/j-reuse-1").wait(WITHIN_S)
    assert (job.replicas, job.spec.calls.reuse) == (3, 50)


def test_a_grid_search_of_scikit_learn_runs_as_its_page_says(cluster: Cluster):
    page = (ROOT / "docs/howto/functions.md").read_text()
    program = re.search(
        r"^## scikit-learn and joblib$.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    )
    assert program is not None

    assert said(cluster, program[1].replace("/shared/packages", str(FRAMEWORKS))) == [
        "{'alpha': 0.01}"
    ]
