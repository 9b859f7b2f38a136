"""Which of the things that a host keeps go first."""

from __future__ import annotations

from iris_worker.attempt.kept import Kept, surplus


def of(user: str, *sizes: int, used: frozenset[int] = frozenset(), first_ns: int = 0) -> list[Kept]:
    """Things of a user from the one unused for longest; ``used``: the places of those in use."""
    return [
        Kept(f"{user}-{place}", user, size, first_ns + place, in_use=place in used)
        for place, size in enumerate(sizes)
    ]


def test_nothing_goes_while_there_is_room():
    assert surplus(of("eve", 1, 2, 3), 3, 6) == []


def test_the_one_unused_for_longest_goes_first():
    assert surplus(reversed(of("eve", 1, 1, 1, 1)), 2) == ["eve-0", "eve-1"]


def test_it_goes_from_the_user_who_has_most_though_hers_are_newer():
    kept = of("ada", 1, 1) + of("eve", 1, 1, 1, 1, first_ns=100)
    assert surplus(kept, 5) == ["eve-0"]
    assert surplus(kept, 3) == ["eve-0", "eve-1", "ada-0"]


def test_most_is_told_by_what_there_is_too_much_of():
    kept = of("ada", 1, 1, 1) + of("eve", 50, first_ns=100)
    assert surplus(kept, 3) == ["ada-0"]
    assert surplus(kept, 10, 20) == ["eve-0"]


def test_what_is_in_use_stays_and_others_do_not_pay_for_it():
    kept = of("ada", 1, 1) + of("eve", 1, 1, 1, 1, used=frozenset(range(4)), first_ns=100)
    assert surplus(kept, 4) == []
    assert surplus([*kept, *of("bob", 1)], 4) == ["ada-0"]  # an equal share of four is one
    assert surplus(kept, 1) == ["ada-0", "ada-1"]
