"""Commits split into parts: reassembled, verified without decoding, and dropped when incomplete."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_bus.contract import DamagedCommit, JournalEntry
from iris_bus.journal.framing import HEADER_BYTES, VERSION, Assembler, count, split, verify


def assembled(messages: list[bytes], after: int = 0) -> list[JournalEntry]:
    assembler = Assembler()
    found = (
        assembler.add(sequence, message) for sequence, message in enumerate(messages, after + 1)
    )
    return [entry for entry in found if entry is not None]


@given(st.lists(st.binary(max_size=100)), st.integers(1, 40))
def test_commits_of_every_size_come_back_in_order_each_at_its_last_part(
    commits: list[bytes], part_bytes: int
):
    messages = [message for commit in commits for message in split(commit, part_bytes)]
    ends = [
        sum(count(len(commit), part_bytes) for commit in commits[: at + 1])
        for at in range(len(commits))
    ]
    assert assembled(messages) == [
        JournalEntry(end, commit) for end, commit in zip(ends, commits, strict=True)
    ]
    assert all(len(message) <= HEADER_BYTES + part_bytes for message in messages)


@given(st.binary(max_size=60), st.integers(1, 20), st.data())
def test_a_flipped_bit_is_found_wherever_it_is(commit: bytes, part_bytes: int, data: st.DataObject):
    messages = list(split(commit, part_bytes))
    at = data.draw(st.integers(0, len(messages) - 1))
    bit = data.draw(st.integers(0, 8 * len(messages[at]) - 1))
    flipped = bytearray(messages[at])
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DamagedCommit) as damaged:
        verify(at + 1, bytes(flipped))
    assert damaged.value.sequence == at + 1


@given(st.binary(min_size=2, max_size=60), st.data())
def test_a_commit_that_was_not_finished_is_dropped_when_the_next_begins(
    commit: bytes, data: st.DataObject
):
    messages = list(split(commit, 1))
    begun = data.draw(st.integers(1, len(messages) - 1))
    assert assembled([*messages[:begun], *split(b"next", 10)]) == [JournalEntry(begun + 1, b"next")]


@pytest.mark.parametrize("order", [(1,), (0, 2), (0, 1, 1), (0, 1, 2, 1)])
def test_parts_in_another_order_are_damage(order: tuple[int, ...]):
    messages = list(split(b"abc", 1))
    with pytest.raises(
        DamagedCommit, match=f"damaged at {len(order)}: part {order[-1] + 1} of 3 stands behind"
    ):
        assembled([messages[part] for part in order])


def test_a_part_of_another_commit_is_damage():
    with pytest.raises(DamagedCommit):
        assembled([next(split(b"abc", 1)), list(split(b"ab", 1))[1]])


@pytest.mark.parametrize("data", [b"", b"IRSJ", b"\x95\x01\x00\x00" * 9])
def test_what_is_no_part_of_a_commit_is_damage(data: bytes):
    with pytest.raises(DamagedCommit, match="damaged at 7"):
        verify(7, data)


def test_a_later_format_is_said_by_its_version(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("iris_bus.journal.framing.VERSION", VERSION + 1)
    (later,) = split(b"x", 10)
    monkeypatch.undo()
    with pytest.raises(DamagedCommit, match=f"version {VERSION + 1}, this release knows {VERSION}"):
        verify(1, later)
