"""People are told of jobs on a real cluster, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, cluster_on, settings, until
from tests.support.hook import Hook
from tests.support.suspend import suspend

pytestmark = pytest.mark.integration

LOCAL = """
[notifier]
allow = ["127.0.0.0/8"]
retry_first_s = 0.2
retry_longest_s = 1
"""


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("notified")
    with cluster_on(directory / "data", "--workers", "1", *settings(directory, LOCAL)) as running:
        yield running


@pytest.fixture
def target(cluster: Cluster, hook: Hook, tmp_path: Path) -> Iterator[str]:
    secret = tmp_path / "secret"
    secret.write_text("sixteen bytes and more\n")
    words = ("--webhook", hook.url, "--secret-file", secret)
    added = cluster.iris("notify", "target", "add", "ops", *words)
    assert (added.code, "ops is active" in added.err) == (0, True), added
    yield "ops"
    assert cluster.iris("notify", "target", "rm", "ops").code == 0


def test_a_job_tells_its_target_and_a_subscription_all_of_ones_jobs(
    cluster: Cluster, hook: Hook, target: str
) -> None:
    failed = cluster.iris(
        *("run", "--name", "f1", "--notify", f"{target}:started,failed"), "--", "sh", "-c", "exit 7"
    )
    assert failed.code == 3
    until(lambda: hook.jobs("failed") == {"/f1"}, "its end is told", 30)
    assert hook.jobs("started") == {"/f1"}
    data = next(event["data"] for event in hook.events if event["type"] == "iris.job.failed")
    assert (data["exit_code"], data["tasks"], data["state"]) == (7, {"failed": 1}, "failed")
    assert data["url"] == f"{cluster.url}/jobs/{data['job_id']}"
    words = ("--to", target, "--on", "succeeded", "--all-mine")
    subscription = cluster.iris("notify", "add", *words).out.strip()
    assert cluster.iris("run", "--name", "s1", "--", "true").code == 0
    until(lambda: hook.jobs("succeeded") == {"/s1"}, "the other end is told", 30)
    assert cluster.iris("notify", "rm", subscription).code == 0
    listed = cluster.iris("notify", "log", "-o", "json")
    rows = [(row["job"], row["on"], row["status"]) for row in json.loads(listed.out)["items"]]
    assert rows[:2] == [("/s1", "succeeded", "delivered"), ("/f1", "failed", "delivered")]


def test_an_unknown_target_is_refused_with_the_nearest_one(cluster: Cluster, target: str) -> None:
    found = cluster.iris("run", "--notify", "opps:failed", "--", "true")
    assert (found.code, "did you mean ops?" in found.err) == (2, True), found
    words = cluster.iris("run", "--notify", "ops:now", "--", "true")
    assert (words.code, "one of started, succeeded" in words.err) == (2, True), words


def test_nothing_is_lost_when_services_are_killed(
    cluster: Cluster, hook: Hook, target: str
) -> None:
    """Each of ten jobs ends while its receiver, the notifier or the leader is away."""
    names = [f"k{number}" for number in range(10)]
    hook.is_away = True
    jobs = []
    for number, name in enumerate(names):
        word = "succeeded" if number % 2 else "ended"
        jobs.append(cluster.submit("true", name=name, notify=[f"{target}:{word}"]))
        if number == 3:
            cluster.kill("notifier")
        if number == 6:
            cluster.kill("state")
    for job in jobs:
        assert job.wait(60).state == "succeeded"
    cluster.kill("notifier")
    hook.is_away = False
    wanted = {f"/{name}" for name in names}
    until(lambda: heard_of(hook) >= wanted, "all are told of", 20)
    ids = [event["id"] for event in hook.events if event.get("subject") in wanted]
    assert len(ids) == len(set(ids)), "a message that was delivered is not sent again"


def heard_of(hook: Hook) -> set[str]:
    """The jobs that were told of one by one or in a summary."""
    summed_up = {
        name
        for event in hook.events
        if event["type"] == "iris.job.summary"
        for name in event["data"]["examples"]
    }
    return hook.jobs("ended") | hook.jobs("succeeded") | summed_up


def test_jobs_are_taken_while_no_notifier_answers(
    cluster: Cluster, hook: Hook, target: str
) -> None:
    """A frozen one answers nothing, as one that is away."""
    [pid] = cluster.pids("notifier")
    suspend(pid)
    try:
        found = cluster.iris("run", "--name", "n1", "--notify", "ops:ended", "--", "true")
        assert (found.code, "was not checked" in found.err) == (0, True), found
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: hook.jobs("ended") == {"/n1"}, "its end is told", 30)
