"""Remembering what was here."""

from __future__ import annotations

from iris_core.messages import AttemptRef
from iris_worker.past import Past


def test_an_attempt_and_all_before_it_are_remembered():
    past = Past()
    past.add(AttemptRef(1, 0, 2))
    assert [AttemptRef(1, 0, n) in past for n in range(4)] == [True, True, True, False]


def test_an_older_attempt_does_not_make_it_forget_a_newer_one():
    past = Past()
    past.add(AttemptRef(1, 0, 2))
    past.add(AttemptRef(1, 0, 1))
    assert AttemptRef(1, 0, 2) in past


def test_the_oldest_job_is_forgotten_first():
    past = Past(limit=10)
    for job in range(3):
        for index in range(5):
            past.add(AttemptRef(job, index, 0))
    assert [AttemptRef(job, 0, 0) in past for job in range(3)] == [False, True, True]


def test_one_huge_job_is_remembered_whole():
    past = Past(limit=10)
    for index in range(100):
        past.add(AttemptRef(1, index, 0))
    assert all(AttemptRef(1, index, 0) in past for index in range(100))
