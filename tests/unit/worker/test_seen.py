"""The bounded set of attempts that a worker has seen."""

from __future__ import annotations

import tracemalloc

from iris_core.messages.message import AttemptRef
from iris_worker.agent.seen import TASK_BYTES, SeenAttempts


def test_an_attempt_and_all_before_it_are_remembered():
    past = SeenAttempts()
    past.add(AttemptRef(1, 0, 2))
    assert [AttemptRef(1, 0, n) in past for n in range(4)] == [True, True, True, False]


def test_an_older_attempt_does_not_make_it_forget_a_newer_one():
    past = SeenAttempts()
    past.add(AttemptRef(1, 0, 2))
    past.add(AttemptRef(1, 0, 1))
    assert AttemptRef(1, 0, 2) in past


def test_the_oldest_task_is_forgotten_first():
    past = SeenAttempts(limit=10)
    for job in range(3):
        for index in range(5):
            past.add(AttemptRef(job, index, 0))
    assert [AttemptRef(job, 4, 0) in past for job in range(3)] == [False, True, True]


def test_no_more_tasks_are_remembered_than_the_limit():
    past = SeenAttempts(limit=1000)
    for job in range(5000):
        past.add(AttemptRef(job, 0, 0))
        past.add(AttemptRef(job, 0, 1))
    assert len(past) <= 1000
    assert all(AttemptRef(job, 0, 1) in past for job in range(4010, 5000))


def test_a_task_that_is_remembered_takes_little_memory():
    tracemalloc.start()
    past, before = SeenAttempts(), tracemalloc.get_traced_memory()[0]
    for job in range(10_000):
        past.add(AttemptRef(1_000_000 + job, 0, 0))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert taken / 10_000 < TASK_BYTES
