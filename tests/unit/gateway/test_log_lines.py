"""Splitting output into lines, however it is chunked."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from iris_core.messages.gateway_worker import LogChunk
from iris_gateway.streams.log_lines import LONGEST, Splitter

SOURCE = (0, 0, "stdout")


def chunks_of(text: bytes, cuts: list[int]) -> list[LogChunk]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [LogChunk("stdout", 1, start, text[start:end]) for start, end in pairwise(places)]


def lines_of(chunks: list[LogChunk], first: int = 1) -> list[tuple[int, bytes]]:
    splitter = Splitter()
    lines = [
        line
        for number, chunk in enumerate(chunks, first)
        for line in splitter.feed(SOURCE, chunk, number)
    ]
    return [(line.offset, line.data) for line in [*lines, *splitter.rest()]]


texts = st.text("ab\n", max_size=40).map(str.encode)
cuts = st.lists(st.integers(0, 40), max_size=8)


@given(texts, cuts)
def test_however_output_is_cut_its_lines_are_the_same(text: bytes, where: list[int]):
    assert lines_of(chunks_of(text, where)) == lines_of(chunks_of(text, []))


@given(texts, cuts)
def test_a_lines_offset_is_its_place_in_the_output(text: bytes, where: list[int]):
    assert all(
        text[offset : offset + len(data)] == data
        for offset, data in lines_of(chunks_of(text, where))
    )


@given(texts, cuts, st.integers(0, 8))
def test_resuming_behind_a_safe_place_misses_no_line(
    text: bytes, where: list[int], broke_after: int
):
    chunks = chunks_of(text, where)
    splitter, seen, safe = Splitter(), [], 0
    for number, chunk in enumerate(chunks[:broke_after], 1):
        seen += [(line.offset, line.data) for line in splitter.feed(SOURCE, chunk, number)]
        safe = splitter.complete_to(number)
    resumed = lines_of(chunks[safe:], safe + 1)
    assert set(seen) | set(resumed) >= set(lines_of(chunks))


@given(texts, cuts, st.data())
def test_what_a_worker_told_twice_counts_once(text: bytes, where: list[int], data: st.DataObject):
    told: list[LogChunk] = []
    for chunk in chunks_of(text, where):
        told.append(chunk)
        back = data.draw(st.integers(0, len(chunk.data)))
        if data.draw(st.booleans()):  # its answer was lost: told again, and in other pieces
            end = chunk.offset + len(chunk.data)
            told.append(LogChunk("stdout", 1, end - back, text[end - back : end]))
    assert lines_of(told) == lines_of(chunks_of(text, []))


def test_sources_are_kept_apart():
    splitter = Splitter()
    lines = [*splitter.feed((0, 0, "stdout"), LogChunk("stdout", 1, 0, b"he"))]
    lines += splitter.feed((1, 0, "stdout"), LogChunk("stdout", 1, 0, b"x\n"))
    lines += splitter.feed((0, 0, "stdout"), LogChunk("stdout", 2, 2, b"llo\n"))
    assert [(line.source[0], line.data) for line in lines] == [(1, b"x"), (0, b"hello")]


def test_a_line_without_end_is_let_out_when_it_is_longer_than_anyone_reads():
    assert len(list(Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"x" * LONGEST)))) == 1


def test_the_last_line_needs_no_end():
    assert [
        line.text for line in Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"end", 0, True))
    ] == ["end"]


def test_a_carriage_return_before_the_end_is_no_part_of_the_line():
    assert [line.text for line in Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"a\r\n"))] == [
        "a"
    ]


def test_after_a_hole_the_line_that_was_open_is_not_joined_to_what_follows():
    splitter = Splitter()
    first = list(splitter.feed(SOURCE, LogChunk("stdout", 1, 0, b"cut")))
    second = list(splitter.feed(SOURCE, LogChunk("stdout", 1, 10, b"next\n", 7)))
    assert [(line.data, line.dropped) for line in first + second] == [(b"cut", 0), (b"next", 7)]
