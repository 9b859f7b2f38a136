"""Short calls wait behind one another on their worker; a long one holds nobody up, and nothing is
lost or doubled.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from iris import Executor
from iris.client.maps.mapping import Mapped
from iris.client.problems import JobFailed
from iris_core.views.spec_facts import facts_of
from tests.support.cluster import Cluster, cluster_on, until

pytestmark = pytest.mark.integration
WITHIN_S = 60


@pytest.fixture(scope="module")
def one_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one worker with 8 cores."""
    with cluster_on(tmp_path_factory.mktemp("chains") / "data", "--workers", "1") as running:
        yield running


def made_of(cluster: Cluster, mapped: Mapped[object]) -> list[list[dict[str, object]]]:
    """The attempts of each call that were not handed back unbegun, as they are when the machine
    stands still.
    """
    made = cluster.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)["items"]
    return [[one for one in task["attempts"] if one["cause"] != "handed_back"] for task in made]


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
    made = made_of(one_host, mapped)
    assert {tuple(one["cause"] for one in attempts) for attempts in made} == {("exited",)}
    runs = sorted((attempt for [attempt] in made), key=lambda one: one["started_at"])
    ahead = [
        after for before, after in pairwise(runs) if after["assigned_at"] < before["finished_at"]
    ]
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
    assert [future.result(WITHIN_S) for future in others] == [
        number for number in range(80) if number != 20
    ]
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
    assert [f.result(WITHIN_S) for i, f in enumerate(mapped.futures) if i != 30] == [
        i for i in range(60) if i != 30
    ]
    error = mapped.futures[30].exception(WITHIN_S)
    assert isinstance(error, JobFailed)
    assert error.signal == 9


def test_calls_that_share_a_process_are_attempts_of_their_own(one_host):
    def call(number: int) -> tuple[int, int, str]:
        import math
        import os
        import signal

        if number == 30:
            os.kill(os.getpid(), signal.SIGKILL)
        math.calls = getattr(math, "calls", 0) + 1
        print(f"call {number}")
        return os.getpid(), math.calls, os.environ["IRIS_TASK_INDEX"]

    mapped = one_host.client.map(call, range(60), cpu=8, reuse=20, name="m-reuse")
    ended = [future.exception(WITHIN_S) or future.result() for future in mapped.futures]
    assert isinstance(ended[30], JobFailed)
    assert ended.pop(30).signal == 9
    assert [int(index) for _, _, index in ended] == [number for number in range(60) if number != 30]
    calls = Counter(pid for pid, _, _ in ended)
    assert sorted((pid, number) for pid, number, _ in ended) == sorted(
        (pid, number + 1) for pid, count in calls.items() for number in range(count)
    )
    assert max(calls.values()) <= 20
    assert len(calls) < 20, "hardly any process was reused"
    mapped.job.wait(WITHIN_S)
    assert {len(attempts) for attempts in made_of(one_host, mapped)} == {1}
    assert ("reuse", "a process takes up to 20 calls") in facts_of(mapped.job.view.spec)
    for number in (3, 40):
        until(
            lambda number=number: (
                one_host.iris("logs", f"/m-reuse/{number}").out == f"call {number}\n"
            ),
            "its own output",
        )


def test_results_of_every_size_come_from_a_reused_process(one_host):
    def call(size: int) -> bytes:
        return b"x" * size

    sizes = [0, 1, 60_000, 65_500, 65_535, 65_536, 70_000, 2_000_000, 2]
    mapped = one_host.client.map(call, sizes, cpu=8, reuse=20, name="m-sizes")
    assert [len(result) for result in mapped.results(WITHIN_S)] == sizes


def test_results_come_from_processes_that_are_not_reused_after_all(one_host):
    def call(number: int) -> int:
        import subprocess

        subprocess.Popen(["sleep", "60"])
        return number

    mapped = one_host.client.map(call, range(6), cpu=8, reuse=20, name="m-leaves")
    assert mapped.results(WITHIN_S) == list(range(6))


def test_an_executor_reuses_processes_for_what_comes_later(one_host):
    with Executor(one_host.client, cpu=8, reuse=10, name="m-later") as executor:
        pids = [executor.submit(os.getpid).result(WITHIN_S) for _ in range(6)]
    assert len(set(pids)) < len(pids)


def test_why_says_what_of_the_call_before_has_ended_its_process(one_host):
    def call(number: int) -> int:
        import os
        import threading
        import time

        if number == 0:
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        if number == 1:
            time.sleep(60)
        return os.getpid()

    mapped = one_host.client.map(call, range(2), cpu=8, reuse=10, name="m-leaves")
    mapped.futures[0].result(WITHIN_S)
    said = "a new process: that of an earlier call was not reused: it left 1 thread"
    until(lambda: said in one_host.iris("why", "/m-leaves/1").out, "why says it")
    mapped.job.cancel()


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
            for task in one_host.client.get(f"/v1/jobs/{mapped.job.id}/tasks?limit=100", dict)[
                "items"
            ]
            if task["note"] and task["note"].startswith("waits on ")
        ],
        "a call waits behind another",
    )
    assert " behind " in notes[0]
    mapped.job.cancel()
    assert mapped.job.wait(WITHIN_S).state == "killed"
    assert mapped.futures[-1].exception(WITHIN_S) is not None
