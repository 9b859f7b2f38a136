"""Splitting output into lines, however it is chunked."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from iris_core.messages.gateway_worker import LogChunk
from iris_gateway.streams.log_formats import PIECE, PlainText, Shown
from iris_gateway.streams.log_lines import (
    HELD_BYTES,
    LONGEST,
    Block,
    LastLines,
    LogLine,
    Splitter,
)

SOURCE = (0, 0, "stdout")


def chunks_of(text: bytes, cuts: list[int]) -> list[LogChunk]:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    return [LogChunk("stdout", 1, start, text[start:end]) for start, end in pairwise(places)]


def lines_of(chunks: list[LogChunk], first: int = 1) -> list[tuple[int, bytes]]:
    splitter = Splitter()
    blocks = [
        block
        for number, chunk in enumerate(chunks, first)
        for block in splitter.feed(SOURCE, chunk, number)
    ]
    return [(line.offset, line.data) for line in lines_in([*blocks, *splitter.rest()])]


def lines_in(blocks: Iterable[Block]) -> list[LogLine]:
    return [line for block in blocks for line in block.lines()]


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
        blocks = splitter.feed(SOURCE, chunk, number)
        seen += [(line.offset, line.data) for line in lines_in(blocks)]
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
    assert [(line.source[0], line.data) for line in lines_in(lines)] == [(1, b"x"), (0, b"hello")]


def test_a_line_without_end_is_let_out_when_it_is_longer_than_anyone_reads():
    assert len(list(Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"x" * LONGEST)))) == 1


def test_the_last_line_needs_no_end():
    assert [
        line.text
        for line in lines_in(Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"end", 0, True)))
    ] == ["end"]


def test_a_carriage_return_before_the_end_is_no_part_of_the_line():
    blocks = Splitter().feed(SOURCE, LogChunk("stdout", 1, 0, b"a\r\n"))
    assert [line.text for line in lines_in(blocks)] == ["a"]


def test_after_a_hole_the_line_that_was_open_is_not_joined_to_what_follows():
    splitter = Splitter()
    first = list(splitter.feed(SOURCE, LogChunk("stdout", 1, 0, b"cut")))
    second = list(splitter.feed(SOURCE, LogChunk("stdout", 1, 10, b"next\n", 7)))
    assert [(line.data, line.dropped) for line in lines_in(first + second)] == [
        (b"cut", 0),
        (b"next", 7),
    ]


def block_of(text: bytes, offset: int = 0) -> Block:
    return Block(SOURCE, 1, offset, text)


lists_of_lines = st.lists(st.sampled_from([b"", b"a", b"ab", b"a\r", b"abcdefgh"]), min_size=1)


@given(lists_of_lines, st.integers(1, 9))
def test_the_pieces_of_a_block_have_the_same_lines(lines: list[bytes], size: int):
    block = block_of(b"".join(line + b"\n" for line in lines), offset=5)
    pieces = list(block.pieces(size))
    assert lines_in(pieces) == list(block.lines())
    assert all(len(piece.data) < size + 10 for piece in pieces)


@given(lists_of_lines, st.integers(0, 9))
def test_the_last_lines_are_those_of_all_blocks_together(lines: list[bytes], number: int):
    kept = LastLines(number)
    expected = []
    for at, line in enumerate(lines):
        block = block_of((line + b"\n") * 2, offset=100 * at)
        kept.extend([block])
        expected += block.lines()
    assert lines_in(kept.blocks()) == expected[len(expected) - min(number, len(expected)) :]


def test_last_lines_that_are_long_are_fewer_and_that_is_said():
    kept = LastLines(10, most_bytes=100)
    kept.extend(block_of(b"x" * 39 + b"\n", offset=40 * at) for at in range(10))
    blocks = list(kept.blocks())
    assert [block.offset for block in blocks] == [320, 360]
    assert blocks[0].notice == (
        "[iris: 10 lines asked for; of lines this long the last 2 lines are shown]"
    )


def test_incomplete_lines_of_many_sources_are_bounded():
    splitter = Splitter()
    size = LONGEST - 1
    number = HELD_BYTES // size + 3
    blocks = [
        block
        for index in range(number)
        for block in splitter.feed((index, 0, "stdout"), LogChunk("stdout", 1, 0, b"x" * size))
    ]
    assert [block.source[0] for block in blocks] == [0, 1, 2]  # the oldest are let out
    assert all(block.continued for block in blocks)
    rest = [block for block in splitter.rest() if block.data != b"\n"]  # and the ends of those
    assert len(rest) == number - len(blocks)


@given(lists_of_lines)
def test_text_is_written_as_its_lines_are(lines: list[bytes]):
    block = block_of(b"".join(line + b"\n" for line in lines))
    texts = [line.data for line in block.lines()]
    assert b"".join(PlainText(prefixed=False).write([block])) == b"".join(
        text + b"\n" for text in texts
    )
    prefixed = b"".join(b"0| " + text + b"\n" for text in texts)
    assert b"".join(PlainText(prefixed=True).write([block])) == prefixed


def test_each_form_of_a_flood_is_made_in_small_pieces():
    """However short the lines are, no piece is much larger than the others: it is made at once."""
    flood = block_of(b"y\n" * 20_000)
    shown = Shown("/a")
    texts = [PlainText(prefixed=prefixed).write for prefixed in (False, True)]
    for write in (*texts, shown.write_json_lines, shown.write_frames):
        sizes = [len(piece) for piece in write([flood], 7)]
        assert max(sizes) < 2 * PIECE
        assert sum(sizes) >= len(flood.data)


def test_only_the_last_event_of_a_batch_has_the_place_to_resume_from():
    frames = b"".join(Shown("/a").write_frames([block_of(b"1\n2\n"), block_of(b"3\n")], 9))
    assert frames.count(b"id: 9\n") == 1
    assert frames.rpartition(b"id: 9\n")[2].count(b"event: log") == 1


def open_block(data: bytes, index: int = 0) -> Block:
    return Block((index, 0, "stdout"), 1, 0, data, continued=True)


def test_a_part_of_a_line_is_written_at_once_and_goes_on():
    text = PlainText(prefixed=True)
    said = [
        b"".join(text.write([one]))
        for one in (open_block(b"a\n10 %\r"), open_block(b"20 %"), block_of(b"\nend\n"))
    ]
    assert said == [b"0| a\n0| 10 %\r", b"20 %", b"\n0| end\n"]


def test_another_source_ends_a_line_that_has_not_ended():
    text = PlainText(prefixed=True)
    other = Block((1, 0, "stdout"), 1, 0, b"x\n")
    said = [b"".join(text.write([one])) for one in (open_block(b"10 %"), other, block_of(b"\n"))]
    assert said == [b"0| 10 %", b"\n1| x\n", b""]


def test_a_long_line_is_given_in_parts_that_say_so():
    splitter = Splitter()
    whole = b"x" * LONGEST
    parts = [
        block
        for offset, data in ((0, whole), (LONGEST, b"y\nz\n"))
        for block in splitter.feed(SOURCE, LogChunk("stdout", 1, offset, data), 1)
    ]
    lines = [(line.data, line.continued) for line in lines_in(parts)]
    assert lines == [(whole, True), (b"y", False), (b"z", False)]


def test_what_has_not_ended_is_given_after_a_pause_or_a_carriage_return():
    splitter = Splitter()
    assert list(splitter.feed(SOURCE, LogChunk("stdout", 1, 0, b"a\nnow"), 1))
    assert splitter.has_unfinished
    assert list(splitter.unfinished(7.0, 0.2)) == []
    [part] = splitter.unfinished(7.2, 0.2)
    assert [(line.data, line.continued) for line in part.lines()] == [(b"now", True)]
    assert list(splitter.feed(SOURCE, LogChunk("stdout", 1, 5, b"10 %\r"), 2)) == []
    [part] = splitter.unfinished(7.2, 0.2)
    assert part.data == b"10 %\r"
    [end] = splitter.rest()
    assert [(line.data, line.continued) for line in end.lines()] == [(b"", False)]
