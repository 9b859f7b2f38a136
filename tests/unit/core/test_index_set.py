"""The indexes of a job's tasks: text, membership, positions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.spec.index_set import IndexSet, indexes_of


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("7", [7]),
        ("1,3,5", [1, 3, 5]),
        ("0-3", [0, 1, 2, 3]),
        ("0-15:4,20", [0, 4, 8, 12, 20]),
        (" 20, 0-1 ", [0, 1, 20]),
        ("0-8:4,1-9:4", [0, 1, 4, 5, 8, 9]),
    ],
)
def test_a_text_names_indexes_and_ranges(text: str, members: list[int]) -> None:
    assert list(IndexSet.parse(text)) == members


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("5,3,1", "1,3,5"),
        ("0,1,2", "0-2"),
        ("0,1", "0,1"),
        ("0-15:4,20", "0-12:4,20"),
        ("0-9:1", "0-9"),
        ("9,1,2,3,5", "1-3,5,9"),
    ],
)
def test_the_text_of_a_set_is_the_shortest(text: str, canonical: str) -> None:
    assert str(IndexSet.parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is neither an index nor a range: 7, 0-9, or 0-15:4"),
        ("1,,2", "'' is neither an index nor a range: 7, 0-9, or 0-15:4"),
        ("-1", "'-1' is neither an index nor a range: 7, 0-9, or 0-15:4"),
        ("a-b", "'a-b' is neither an index nor a range: 7, 0-9, or 0-15:4"),
        ("5-3", "'5-3' is an empty range"),
        ("0-9:0", "'0-9:0' is an empty range"),
        ("0-3,2", "index 2 appears twice"),
        ("0-10000", "10001 indexes; the limit is 10000"),
        ("0-999999999,7", "1000000001 indexes; the limit is 10000"),
    ],
)
def test_a_wrong_text_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        IndexSet.parse(text)


@given(st.sets(st.integers(0, 300), max_size=120), st.integers(0, 310))
def test_a_set_agrees_with_a_sorted_list(members: set[int], index: int) -> None:
    found, wanted = IndexSet.of(members), sorted(members)
    assert (list(found), len(found)) == (wanted, len(wanted))
    assert [found.position(one) for one in wanted] == list(range(len(wanted)))
    assert [found[at] for at in range(len(wanted))] == wanted
    assert (index in found) is (index in members)
    assert list(found.since(index)) == [one for one in wanted if one >= index]
    assert [one for start, stop in found.ranges for one in range(start, stop)] == wanted
    if members:
        assert IndexSet.parse(str(found)) == found


def test_a_job_without_a_text_has_all_its_indexes() -> None:
    assert list(indexes_of("", 3)) == [0, 1, 2]
    assert list(indexes_of("1,2", 3)) == [1, 2]
    with pytest.raises(KeyError):
        IndexSet.parse("1,3").position(2)
    with pytest.raises(IndexError):
        IndexSet.parse("1,3")[2]
