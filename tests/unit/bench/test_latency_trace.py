"""The latency trace takes a job's steps from its messages in order, and assigns each to the right
step.
"""

import pytest

from benchmarks.latency_trace import STEPS, _in_order


def test_each_step_is_the_first_of_its_subject_behind_the_one_before():
    subjects = [subject for _, subject in STEPS]
    seen = [
        (float(at), subject)
        for at, subject in enumerate(["iris.journal", *subjects, "iris.journal"])
    ]
    assert _in_order(seen) == [float(at) for at in range(1, len(STEPS) + 1)]


def test_a_way_with_a_step_missing_is_none():
    with pytest.raises(ValueError, match="not in list"):
        _in_order([(0.0, subject) for _, subject in STEPS[:-1]])
