"""Which slots attempts get."""

from __future__ import annotations

from iris_worker.attempt.slots.numbers import SHARED_BY, SlotNumbers

JOB, OTHER = 7, 8


def test_attempts_of_one_job_share_a_slot_until_it_is_full():
    numbers = SlotNumbers()
    assert [numbers.reserve(JOB) for _ in range(SHARED_BY + 1)] == [0] * SHARED_BY + [1]
    numbers.give(0)
    assert numbers.reserve(JOB) == 0


def test_nobody_else_gets_a_slot_that_is_shared():
    numbers = SlotNumbers()
    assert [
        numbers.reserve(JOB),
        numbers.reserve(),
        numbers.reserve(OTHER),
        numbers.reserve(OTHER),
    ] == [0, 1, 2, 2]
    numbers.give(2)
    assert numbers.reserve() == 3


def test_a_job_finds_the_slot_that_its_last_attempt_has_left():
    numbers = SlotNumbers()
    assert [numbers.reserve(JOB), numbers.reserve()] == [0, 1]
    numbers.give(1)
    numbers.give(0)
    assert [numbers.reserve(), numbers.reserve(JOB)] == [1, 0]


def test_a_slot_of_a_job_that_has_left_it_is_given_rather_than_a_new_one():
    numbers = SlotNumbers()
    numbers.give(numbers.reserve(JOB))
    assert numbers.reserve(OTHER) == 0
    assert not numbers.is_free(0)
    assert numbers.reserve(JOB) == 1


def test_jobs_that_follow_one_another_have_the_slot_that_was_left_last():
    """It is warm, and what the job before has left in its sandbox ends first there."""
    numbers = SlotNumbers()
    for number in (numbers.reserve(JOB), numbers.reserve(OTHER)):
        numbers.give(number)
    for job in range(20, 23):
        assert numbers.reserve(job) == 1
        numbers.give(1)


def test_a_slot_is_early_for_the_job_that_shares_it_also_when_it_is_spoilt():
    numbers = SlotNumbers()
    numbers.reserve(JOB)
    assert [numbers.is_shared(0, JOB), numbers.is_shared(0, OTHER)] == [True, False]
    numbers.spoil(0)
    assert numbers.is_shared(0, JOB)


def test_a_spoilt_slot_is_given_to_nobody_also_not_to_its_job():
    numbers = SlotNumbers()
    assert [numbers.reserve(JOB), numbers.reserve(JOB)] == [0, 0]
    numbers.spoil(0)
    assert numbers.reserve(JOB) == 1
    numbers.give(0)
    numbers.give(0)
    assert numbers.reserve() == 2


def test_a_free_slot_can_be_spoilt():
    numbers = SlotNumbers()
    numbers.give(numbers.reserve())
    numbers.spoil(0)
    assert numbers.reserve() == 1


def test_slots_of_an_earlier_worker_are_given_when_its_attempts_have_left():
    numbers = SlotNumbers()
    numbers.begin({1})
    numbers.join(1)
    assert [numbers.reserve(JOB), numbers.reserve()] == [0, 2]
    numbers.give(1)
    assert numbers.reserve() == 1


def test_a_retired_slot_is_free_when_its_last_attempt_has_ended():
    numbers = SlotNumbers()
    assert [numbers.reserve(JOB), numbers.reserve(JOB)] == [0, 0]
    numbers.retire(0)
    assert numbers.reserve(JOB) == 1
    numbers.give(0)
    assert numbers.reserve(JOB) == 1
    numbers.give(0)
    assert numbers.reserve(OTHER) == 0
