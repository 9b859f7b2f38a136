"""Short calls wait behind one another on their worker; a long one holds nobody up, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from iris.client.problems import JobFailed
from tests.support.cluster import Cluster, cluster_on, until

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one worker with 8 cores."""
    with cluster_on(tmp_path_factory.mktemp("chains") / "data", "--workers", "1") as running:
        yield running


def test_calls_in_one_place_run_one_after_the_other_and_are_placed_ahead(one_host):
    def timed(number: int) -> tuple[int, float, float]:
        """The item, and from when until when its call has run."""
        import time

        begun = time.monotonic()
        time.sleep(0.005)
        return number, begun, time.monotonic()

    mapped = one_host.client.map(timed, range(60), cpu=8, name="m-ahead")
    found = mapped.results(WITHIN_S)
    assert [number for number, _, _ in found] == list(range(60))
    spans = sorted((begun, ended) for _, begun, ended in found)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    mapped.job.wait(WITHIN_S)
    made = one_host.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)["items"]
    assert {(len(task["attempts"]), task["state"]) for task in made} == {(1, "succeeded")}
    runs = sorted((task["attempts"][0] for task in made), key=lambda one: one["started_at"])
    ahead = [after for before, after in pairwise(runs) if after["assigned_at"] < before["finished_at"]]
    assert ahead, "every call was placed after the end of the one before it"


def test_a_call_that_takes_long_holds_nobody_up(one_host, tmp_path):
    gate = tmp_path / "gate"

    def call(number: int) -> int:
        import os
        import time

        while number == 20 and not os.path.exists(gate):
            time.sleep(0.01)
        return number

    mapped = one_host.client.map(call, range(80), cpu=4, name="m-long")
    others = [future for number, future in enumerate(mapped.futures) if number != 20]
    assert [future.result(WITHIN_S) for future in others] == [number for number in range(80) if number != 20]
    assert not mapped.futures[20].done()
    gate.touch()
    assert mapped.futures[20].result(WITHIN_S) == 20
    mapped.job.wait(WITHIN_S)
    made = one_host.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)["items"]
    assert {(task["failure_count"], task["preemption_count"]) for task in made} == {(0, 0)}
    ends = {attempt["cause"] for task in made for attempt in task["attempts"]}
    assert ends <= {"exited", "handed_back"}


def test_a_call_that_kills_itself_fails_alone(one_host):
    def call(number: int) -> int:
        import os
        import signal

        if number == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    mapped = one_host.client.map(call, range(60), cpu=8, name="m-kill")
    assert [f.result(WITHIN_S) for i, f in enumerate(mapped.futures) if i != 30] == [i for i in range(60) if i != 30]
    error = mapped.futures[30].exception(WITHIN_S)
    assert isinstance(error, JobFailed)
    assert error.signal == 9


def test_what_waits_says_so_and_ends_with_its_job(one_host, tmp_path):
    gate = tmp_path / "gate"

    def call(number: int) -> int:
        import os
        import time

        while number == 12 and not os.path.exists(gate):
            time.sleep(0.01)
        return number

    mapped = one_host.client.map(call, range(40), cpu=8, name="m-says")
    notes = until(
        lambda: [
            task["note"]
            for task in one_host.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)["items"]
            if task["note"] and task["note"].startswith("waits on ")
        ],
        "a call waits behind another",
    )
    assert " behind " in notes[0]
    mapped.job.cancel()
    assert mapped.job.wait(WITHIN_S).state == "killed"
    assert mapped.futures[-1].exception(WITHIN_S) is not None
