"""Which work is within a guarantee, and what may give way for it, as arithmetic.

Source: docs/design/team.md#guarantee-and-share.
"""

from __future__ import annotations

import random

import pytest

from iris_core.placement.guarantees import GuaranteedAmount, Guarantees, way_of


def cores(count: int, chips: int = 0) -> GuaranteedAmount:
    return (count, 0, chips)


def team(**held: int) -> Guarantees:
    """/a and its /a/x, and /b, are guaranteed 4, 2 and 2 cores."""
    found = Guarantees({"/a": cores(4), "/a/x": cores(2), "/b": cores(2), "/none": cores(0)})
    for name, count in held.items():
        found.add(name.replace("_", "/"), cores(count))
    return found


def test_what_is_near_keeps_within_each_guarantee_on_its_way():
    found = team(_a=3)
    assert found.near("/a/x", cores(1), 5) == 1
    assert found.near("/a", cores(2), 5) == 0
    assert found.near("/b/deep", cores(1), 5) == 2
    assert found.near("/c", cores(1), 5) == 0
    assert found.near("/a", cores(0, chips=1), 5) == 0
    assert found.near("", cores(1), 5) == 0


@pytest.mark.parametrize(
    ("held", "project", "unit", "gives_way"),
    [
        ({"_c": 2}, "/b", ("/c", 2), True),
        ({"_a": 5}, "/b", ("/a", 1), True),
        ({"_a": 5}, "/b", ("/a", 2), False),  # then /a would hold less than it is guaranteed
        ({"_a_x": 3}, "/b", ("/a/x", 1), False),  # /a holds less than it is guaranteed
        ({"_a": 4, "_b": 2}, "/b", ("/c", 1), False),  # /b is at its guarantee
        ({"_b": 3}, "/b", ("/b/y", 1), False),
        ({"_a_y": 4}, "/a/x", ("/a/y", 1), True),  # one takes the place of the other in /a
        ({"_a_y": 4}, "/a/x", ("/c", 1), False),  # /a would hold more than it is guaranteed
        ({"_a_y": 4}, "/a/z", ("/a/y", 1), False),  # nothing is guaranteed to /a/z
    ],
)
def test_who_gives_way_for_a_task_of_one_core(
    held: dict[str, int], project: str, unit: tuple[str, int], gives_way: bool
):
    found = team(**held)
    part = (unit[0], cores(unit[1]))
    assert found.is_just(project, cores(1), [part]) is gives_way


def test_what_has_been_told_to_stop_is_not_counted_on_twice():
    found = team(_a=6)
    assert found.is_just("/b", cores(1), [("/a", cores(2))])
    found.stop("/a", cores(1))
    assert not found.is_just("/b", cores(1), [("/a", cores(2))])
    assert found.held["/a"] == cores(6)


def test_what_gives_way_together_leaves_each_project_its_guarantee():
    paths = ("/a", "/a/x", "/a/y", "/b", "/c")
    for seed in range(300):
        rng = random.Random(seed)
        found = Guarantees(
            {"/a": (6, 0, 4), "/a/x": (rng.randint(0, 6), 0, 0), "/b": (3, 0, rng.randint(0, 3))}
        )
        units = [(rng.choice(paths), (rng.randint(0, 3), 0, rng.randint(0, 2))) for _ in range(12)]
        for unit in units:
            found.add(*unit)
        project, need = rng.choice(paths), (rng.randint(1, 2), 0, rng.randint(0, 1))
        left = found.copy()
        going = []
        for unit in rng.sample(units, len(units)):
            if left.gives_way(project, need, unit):
                left.stop(*unit)
                going.append(unit)
        for path, most in found.amounts.items():
            if path in way_of(project):
                continue
            before, after = found.staying[path], left.staying[path]
            for amount, had, has in zip(most, before, after, strict=True):
                assert has == had or not amount or has >= amount or had < amount, (seed, path)
