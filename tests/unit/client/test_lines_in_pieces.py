"""Lines that come in pieces are joined to those that were printed, wherever a connection is lost."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from iris.client.decode import from_json
from iris.client.http.event_stream import SseParser
from iris.client.http.events import read_lines, whole_lines
from iris_core.messages.gateway_worker import LogChunk
from iris_core.views.streams import LogLineView
from iris_gateway.streams.log_formats import PlainText, Shown
from iris_gateway.streams.log_lines import LONGEST, Block, Splitter

OUT, ERR = (0, 0, "stdout"), (0, 0, "stderr")
Feed = tuple[tuple[int, int, str], LogChunk, bool]
texts = st.text("ab\rü\n", max_size=30)


@st.composite
def outputs(draw: st.DrawFn) -> list[Feed]:
    """Chunks of two streams as a worker sends them, which end with whole letters; and whether a
    pause follows.
    """
    feeds: list[list[Feed]] = []
    for source in (OUT, ERR):
        text = draw(texts)
        cuts = draw(st.sets(st.integers(0, len(text))))
        parts = [text[a:b] for a, b in pairwise(sorted({0, len(text), *cuts}))]
        own: list[Feed] = []
        offset = 0
        for number, part in enumerate(parts, 1):
            data, final = part.encode(), number == len(parts)
            chunk = LogChunk(source[2], 1, offset, data, 0, final)
            own.append((source, chunk, draw(st.booleans())))
            offset += len(data)
        feeds.append(own)
    order = draw(st.permutations([0] * len(feeds[0]) + [1] * len(feeds[1])))
    return [feeds[which].pop(0) for which in order]


def json_lines(blocks: Iterable[Block]) -> list[bytes]:
    return b"".join(Shown("/a").write_json_lines(blocks)).splitlines()


def printed(feeds: list[Feed]) -> dict[str, list[str]]:
    """The lines of each stream, as they were printed."""
    texts = {
        source: b"".join(chunk.data for whose, chunk, _ in feeds if whose == source)
        for source in (OUT, ERR)
    }
    return {
        source[2]: [line.rstrip("\r") for line in text.decode().split("\n")][
            : -1 if text.endswith(b"\n") or not text else None
        ]
        for source, text in texts.items()
    }


def frames_of(feeds: list[Feed], after: int) -> list[bytes]:
    """What a gateway sends of the chunks behind a position, frame by frame."""
    splitter, shown, frames = Splitter(), Shown("/a"), b""
    for number, (source, chunk, pause) in enumerate(feeds[after:], after + 1):
        lines = list(splitter.feed(source, chunk, number))
        if pause:
            lines += splitter.unfinished(float(number), 0.0)
        frames += b"".join(shown.write_frames(lines, splitter.complete_to(number)))
    frames += b"".join(shown.write_frames(splitter.rest(), len(feeds)))
    return [frame + b"\n\n" for frame in frames.split(b"\n\n") if frame]


@given(outputs(), st.lists(st.integers(0, 12), max_size=5))
def test_no_lost_connection_changes_a_line(feeds: list[Feed], breaks: list[int]):
    parser, events = SseParser(), []
    for arrived in [*breaks, None]:
        parser.restart()
        after = int(parser.last_id or 0)
        for frame in frames_of(feeds, after)[:arrived]:
            events += parser.feed(frame)
    found: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for line in whole_lines(read_lines(events)):
        assert not line.continued
        found[line.stream].append(line.line.rstrip("\r"))
    assert found == printed(feeds)


def test_what_is_no_text_is_joined_from_its_bytes():
    splitter = Splitter()
    lines = [*splitter.feed(OUT, LogChunk("stdout", 1, 0, b"a\x80"))]
    lines += splitter.unfinished(1.0, 0.0)
    lines += splitter.feed(OUT, LogChunk("stdout", 1, 2, b"b\n"))
    views = [from_json(line, LogLineView) for line in json_lines(lines)]
    assert [view.continued for view in views] == [True, False]
    [whole] = whole_lines(views)
    assert (whole.printed, whole.line) == (b"a\x80b", "a\ufffdb")


def test_a_long_line_is_marked_and_whole():
    splitter, text = Splitter(), b"z" * (3 * LONGEST + 7) + b"\n"
    lines: list[Block] = []
    for start in range(0, len(text), LONGEST):
        chunk = LogChunk("stdout", 1, start, text[start : start + LONGEST])
        lines += splitter.feed(OUT, chunk)
    assert [line.continued for line in lines] == [True] * 3 + [False]
    assert b"".join(PlainText(prefixed=False).write(lines)) == text
    assert b"".join(PlainText(prefixed=True).write(lines)) == b"0| " + text
    views = [from_json(line, LogLineView) for line in json_lines(lines)]
    assert [line.printed + b"\n" for line in whole_lines(views)] == [text]


def test_a_progress_bar_is_given_out_at_once_and_a_prompt_after_a_pause():
    splitter = Splitter()
    assert not list(splitter.feed(OUT, LogChunk("stdout", 1, 0, b"name? ")))
    assert not list(splitter.feed(ERR, LogChunk("stderr", 1, 0, b"\r 1%")))
    assert [line.data for line in splitter.unfinished(1.0, 0.2)] == [b"\r 1%"]
    assert not list(splitter.unfinished(1.1, 0.2))
    assert [line.data for line in splitter.unfinished(1.25, 0.2)] == [b"name? "]
    assert not list(splitter.unfinished(9.0, 0.2))


def test_text_of_several_tasks_begins_each_piece_of_a_line_anew():
    splitter = Splitter()
    other = (1, 0, "stdout")
    lines = [*splitter.feed(OUT, LogChunk("stdout", 1, 0, b"he"))]
    lines += splitter.unfinished(1.0, 0.0)
    lines += splitter.feed(other, LogChunk("stdout", 1, 0, b"x\n"))
    lines += splitter.feed(OUT, LogChunk("stdout", 1, 2, b"llo\n"))
    lines += splitter.feed(OUT, LogChunk("stdout", 1, 6, b"bye"))
    lines += splitter.unfinished(1.0, 0.0)
    lines += splitter.feed(OUT, LogChunk("stdout", 1, 9, b"", 0, True))
    assert b"".join(PlainText(prefixed=True).write(lines)) == b"0| he\n1| x\n0| llo\n0| bye\n"
