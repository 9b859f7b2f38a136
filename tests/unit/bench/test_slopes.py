"""Whether the soak sees what grows."""

import pytest

from tests.soak.slopes import MIB, fitted, judge


def grows(name: str, by: float, jobs: float = 0) -> bool:
    """Whether a figure that grows by so much while it is warm, with noise, is let through."""
    samples = [(at, {name: 50 * MIB + by * max(0, at - 30) / 60 + (at % 3) * 1000}) for at in range(91)]
    [verdict] = judge(samples, jobs)
    return verdict.holds


def test_a_line_is_fitted():
    assert fitted([(0, 1), (1, 2), (2, 3)]) == (1, 3)
    assert fitted([(5, 7)]) == (7, 7)


@pytest.mark.parametrize(("name", "fine", "bad"), [("x memory", 5 * MIB, 7 * MIB), ("disk of workers", 0, 2 * MIB)])
def test_what_grows_more_than_it_may_is_seen(name, fine, bad):
    assert (grows(name, fine), grows(name, bad)) == (True, False)


def test_what_fills_before_it_is_warm_is_let_through_and_jobs_pay_for_their_own():
    samples = [(at, {"x memory": min(at, 30) * MIB}) for at in range(91)]
    assert judge(samples, 0)[0].holds
    assert not grows("disk of nats", 40 * MIB)
    assert grows("disk of nats", 40 * MIB, jobs=6000)
