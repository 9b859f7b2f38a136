"""Protocol lines built by Iris conform to the NATS protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_bus.connection import wire
from iris_bus.contract import Publication


def test_each_message_names_the_one_before_and_the_last_asks_for_an_answer():
    events = [
        Publication("task.state.a", b"one", "7-0", {"Iris-Task": "/a/0"}),
        Publication("job.state.b", b"", "7-1"),
    ]
    first = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 41\r\nNats-Msg-Id: 7-0\r\nIris-Task: /a/0\r\n\r\n"
    second = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 42\r\nNats-Msg-Id: 7-1\r\n\r\n"
    assert wire.chained(events, 41, "inbox.1") == (
        b"HPUB task.state.a %d %d\r\n%bone\r\n" % (len(first), len(first) + 3, first)
        + b"HPUB job.state.b inbox.1 %d %d\r\n%b\r\n" % (len(second), len(second), second)
    )


NAMES = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters=":"),
    min_size=1,
    max_size=9,
)
VALUES = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=9)


@given(
    st.lists(
        st.tuples(st.binary(max_size=40), st.dictionaries(NAMES, VALUES, max_size=3)),
        min_size=1,
        max_size=5,
    )
)
def test_lengths_are_right_for_any_text(rows):
    events = [
        Publication("a.b.c", data, f"{n}-0", headers) for n, (data, headers) in enumerate(rows)
    ]
    rest, found = wire.chained(events, 0, "r"), []
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        head, size = (int(word) for word in line.split()[-2:])
        found.append((rest[:head].count(b"\r\n"), rest[head:size], rest[size : size + 2]))
        rest = rest[size + 2 :]
    assert [(data, end) for _, data, end in found] == [(data, b"\r\n") for data, _ in rows]


@pytest.mark.parametrize(
    "event",
    [
        Publication("a b", b"", "1"),
        Publication("a\r\nPUB x 0", b"", "1"),
        Publication("a", b"", "1\r\nX: y"),
        Publication("a", b"", "1", {"K": "v\r\nX: y"}),
        Publication("a", b"", "1", {"K\n": "v"}),
    ],
)
def test_what_would_break_a_line_is_refused(event):
    with pytest.raises(ValueError, match="not one line each"):
        wire.chained([event], 0, "r")


def test_a_message_is_one_line_and_its_body():
    assert wire.one("a.b", b"hi") == b"PUB a.b 2\r\nhi\r\n"
    assert wire.one("a.b", b"", "r") == b"PUB a.b r 0\r\n\r\n"
    assert (
        wire.one("a", b"hi", "r", {"K": "v"}) == b"HPUB a r 18 20\r\nNATS/1.0\r\nK: v\r\n\r\nhi\r\n"
    )


@pytest.mark.parametrize(
    ("subject", "reply"),
    [("", ""), ("a b", ""), ("a\r\nPUB", ""), ("a", "b c"), ("a", "b\n"), ("a" * 2001, "b" * 2000)],
)
def test_a_subject_that_would_break_the_line_is_refused(subject, reply):
    with pytest.raises(ValueError, match="not a subject"):
        wire.one(subject, b"", reply)


@pytest.mark.parametrize("headers", [{"K": "v\r\nX: y"}, {"K\n": "v"}, {"K": "v\r"}])
def test_a_header_that_would_break_the_line_is_refused(headers):
    with pytest.raises(ValueError, match="not one line each"):
        wire.one("a", b"", "", headers)
