"""The soak test detects growth."""

import pytest

from iris_worker.agent import seen
from tests.soak.slopes import (
    ARENAS,
    JOURNAL_BYTES,
    MIB,
    NATS_BLOCK,
    WARM_JOBS,
    Sample,
    after_warm_up,
    fitted,
    judge,
)

FULL = 2 * NATS_BLOCK // JOURNAL_BYTES
"""Jobs by which the journal has begun another block."""


def grows(name: str, by: float, jobs: float = 0, since: int = FULL) -> bool:
    """Whether a figure that grows by so much while it is warm, ``since`` so many jobs, with noise,
    is let through.
    """
    samples = [
        Sample(at, since + round(jobs * at / 60), {name: 50 * MIB + by * at / 60 + (at % 3) * 1000})
        for at in range(61)
    ]
    [verdict] = judge(samples)
    return verdict.holds


def test_a_line_is_fitted():
    assert fitted([(0, 1), (1, 2), (2, 3)]) == (1, 3)
    assert fitted([(5, 7)]) == (7, 7)


@pytest.mark.parametrize(
    ("name", "most"),
    [("x memory", ARENAS), ("nats-0 memory", 2 * NATS_BLOCK), ("disk of workers", MIB / 4)],
)
def test_what_grows_more_than_it_may_is_seen(name, most):
    assert (grows(name, most * 0.9), grows(name, most * 1.1)) == (True, False)


@pytest.mark.parametrize(
    ("since", "blocks"), [(0, 4), (NATS_BLOCK // JOURNAL_BYTES // 2, 3), (FULL, 2)]
)
def test_the_server_may_fill_the_journals_first_block_and_as_much_garbage(since, blocks):
    most = blocks * NATS_BLOCK
    assert grows("nats-0 memory", most * 0.9, since=since)
    assert not grows("nats-0 memory", most * 1.1, since=since)
    assert not grows("gateway-0 memory", 2 * ARENAS, since=since)


def test_what_fills_before_it_is_warm_is_let_through():
    samples = [Sample(at, 200 * at, {"x memory": min(at, 30) * MIB}) for at in range(91)]
    assert after_warm_up(samples)[0].at == 30
    assert judge(after_warm_up(samples))[0].holds


def test_a_worker_may_remember_its_tasks_and_nobody_else():
    by = 0.9 * seen.LIMIT * seen.TASK_BYTES
    assert not grows("worker-0 memory", by)
    assert grows("worker-0 memory", by, jobs=seen.LIMIT)
    assert not grows("state-0 memory", by, jobs=seen.LIMIT)


def test_too_few_jobs_to_be_warm_are_not_judged():
    samples = [Sample(at, 10 * at, {"x memory": 0}) for at in range(91)]
    assert samples[-1].jobs < WARM_JOBS
    assert after_warm_up(samples) == []
