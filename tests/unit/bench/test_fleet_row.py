"""B15: what the oracle pays, and that a day's tasks all run."""

import pytest

from benchmarks.b15_fleet import Arrival, DayWorld, PlainWorld, day_of, oracle_s

BOOT_S = 120.0


@pytest.mark.parametrize(
    ("intervals", "host_s"),
    [
        ([(0.0, 100.0, 1000)], BOOT_S + 100),
        ([(0.0, 100.0, 1000), (0.0, 100.0, 3000)], BOOT_S + 100),  # both on one host
        ([(0.0, 100.0, 1000), (0.0, 100.0, 4000)], 2 * (BOOT_S + 100)),
        ([(0.0, 100.0, 4000), (150.0, 250.0, 4000)], BOOT_S + 250),  # kept for 50 s
        ([(0.0, 100.0, 4000), (900.0, 1000.0, 4000)], 2 * (BOOT_S + 100)),  # booted again
    ],
)
def test_an_oracle_pays_for_work_and_for_boots(intervals, host_s):
    assert oracle_s(intervals, BOOT_S) == host_s


@pytest.mark.parametrize("kind", [DayWorld, PlainWorld])
def test_all_tasks_of_a_day_run_and_cost_more_than_the_oracle(kind):
    arrivals = [Arrival(at_s=10 * number, cpu_millis=1000, runs_s=60) for number in range(12)]
    world = kind(7)
    day = world.live(arrivals)
    assert len(day.waits_s) == len(world.intervals) == len(arrivals)
    assert day.host_s > oracle_s(world.intervals, boot_s=60.0)
    assert day.wait_s(0.5) <= day.wait_s(1.0)


def test_a_day_is_the_same_for_the_same_seed():
    assert day_of(3, 2_000) == day_of(3, 2_000) != day_of(4, 2_000)
