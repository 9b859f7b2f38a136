"""The NATS parser delivers each message once and whole however the bytes are split, and passes on
all other lines.
"""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_bus.connection.intake import Garbled, Intake


class Before(asyncio.Protocol):
    """Who read before: notes the lines it is handed."""

    def __init__(self, seen):
        self.seen = seen

    def data_received(self, data):
        self.seen.append(data)


def read(pieces):
    """What an intake makes of these pieces, in order."""
    seen = []
    intake = Intake(Before(seen), lambda *message: seen.append(message))
    for piece in pieces:
        while piece:
            room = intake.get_buffer(-1)
            now = piece[: len(room)]
            room[: len(now)] = now
            intake.buffer_updated(len(now))
            piece = piece[len(now) :]
    return seen


BODIES = st.one_of(
    st.binary(max_size=40), st.binary(min_size=1, max_size=9).map(lambda b: b * 30_000)
)
MESSAGES = st.builds(
    lambda number, reply, body: (
        b"MSG a.b %d%b %d\r\n%b\r\n" % (number, b" r.1" if reply else b"", len(body), body),
        (number, b"a.b", b"r.1" if reply else b"", body, None),
    ),
    st.integers(1, 99),
    st.booleans(),
    BODIES,
)
HEADED = st.builds(
    lambda number, reply, headers, body: (
        b"HMSG a %d%b %d %d\r\n%b%b\r\n"
        % (number, b" r" if reply else b"", len(headers), len(headers) + len(body), headers, body),
        (number, b"a", b"r" if reply else b"", body, headers),
    ),
    st.integers(1, 99),
    st.booleans(),
    st.binary(max_size=30).map(lambda b: b"NATS/1.0\r\n" + b + b"\r\n\r\n"),
    BODIES,
)
LINES = st.sampled_from(
    [b"PING\r\n", b"PONG\r\n", b"-ERR 'no'\r\n", b'INFO {"a": "MSG b 1 3"}\r\n', b"+OK\r\n"]
)
SAID = st.lists(st.one_of(MESSAGES, HEADED, LINES.map(lambda line: (line, line))), max_size=8)


@given(SAID, st.data())
def test_any_cut_of_the_bytes_gives_the_same_messages_and_lines(chosen, data):
    whole = b"".join(sent for sent, _ in chosen)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert read(pieces) == [seen for _, seen in chosen]


def test_byte_by_byte_is_no_different():
    chosen = b"PING\r\nHMSG a 1 r 14 16\r\nNATS/1.0\r\n\r\n\r\nhi\r\nMSG b 2 0\r\n\r\n"
    assert read(chosen[n : n + 1] for n in range(len(chosen))) == [
        b"PING\r\n",
        (1, b"a", b"r", b"hi", b"NATS/1.0\r\n\r\n\r\n"),
        (2, b"b", b"", b"", None),
    ]


@pytest.mark.parametrize(
    "line", [b"MSG\r\n", b"MSG a one 3\r\nabc\r\n", b"MSG a 1 many\r\nabc\r\n", b"x" * 9000]
)
def test_what_is_no_protocol_ends_the_connection(line):
    with pytest.raises(Garbled):
        read([line])


def test_a_large_message_leaves_no_large_buffer_behind():
    intake = Intake(Before([]), lambda *_: None)
    for piece in (b"MSG a 1 900000\r\n", *[b"x" * 9000] * 100, b"\r\n", b"PING\r\n"):
        room = intake.get_buffer(-1)
        room[: len(piece)] = piece
        intake.buffer_updated(len(piece))
    assert len(intake.get_buffer(-1)) == 1 << 16
