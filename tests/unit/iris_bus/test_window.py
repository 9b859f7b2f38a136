"""Each event is published once and in order, despite losses, refusals, duplicates and other
publishers.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_bus.contract import Fenced, Publication, Unavailable
from iris_bus.streams.window import KEPT, Window


def tellings(first: int, last: int) -> list[Publication]:
    return [Publication("task.state.running", b"", f"{n}-0") for n in range(first, last + 1)]


def ids(events) -> list[str]:
    return [event.message_id for event in events]


class ChainedStream:
    """A stream that stores an event only behind the sequence it names."""

    def __init__(self) -> None:
        self.stored: list[str] = []

    def offer(self, after: int, event: Publication) -> None:
        if after == len(self.stored):
            self.stored.append(event.message_id)

    def place(self) -> tuple[int, str]:
        return len(self.stored), self.stored[-1] if self.stored else ""


STEP = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 9)),
    st.tuples(st.just("send"), st.integers(1, 9), st.sets(st.integers(0, 8))),
    st.tuples(st.just("answer")),
    st.tuples(st.just("look")),
    st.tuples(st.just("forget"), st.integers(0, 5)),
    st.tuples(st.just("other"), st.integers(1, 5)),
)


class Story:
    """A writer, a stream, and everything that can come between them."""

    def __init__(self) -> None:
        self.window, self.stream, self.last_published = Window(20), ChainedStream(), 0
        self.window.start(0, "")

    def publish(self, count: int) -> None:
        self.window.add(tellings(self.last_published + 1, self.last_published + count))
        self.last_published += count

    def send(self, limit: int, lost: frozenset[int] | set[int]) -> None:
        after, events = self.window.next(limit)
        for at, event in enumerate(events):
            if at not in lost:
                self.stream.offer(after + at, event)

    def answer(self) -> None:
        end = len(self.stream.stored)
        if self.window.confirmed < end <= self.window.confirmed + self.window.in_flight:
            self.window.confirm(end)

    def look(self) -> None:
        self.window.go_on(*self.stream.place())

    def forget(self, count: int) -> None:
        del self.stream.stored[max(0, len(self.stream.stored) - count) :]
        self.look()

    def other(self, count: int) -> None:
        end = len(self.stream.stored)
        self.stream.stored += ids(tellings(end + 1, min(self.last_published, end + count)))
        self.look()

    def finish(self) -> None:
        self.look()
        while self.window.backlog:
            self.send(7, set())
            self.answer()


@settings(max_examples=400)
@given(st.lists(STEP, max_size=40))
def test_every_event_is_stored_once_and_in_order_in_the_end(steps):
    story = Story()
    for name, *arguments in steps:
        getattr(story, name)(*arguments)
    story.finish()
    assert story.stream.stored == ids(tellings(1, story.last_published))
    assert (story.window.confirmed, story.window.last_published) == (
        story.last_published,
        f"{story.last_published}-0" if story.last_published else "",
    )


def test_no_more_is_under_way_than_the_window_holds():
    window = Window(10)
    window.start(5, "5-0")
    window.add(tellings(6, 30))
    sent = [window.next(4) for _ in range(5)]
    assert [(after, len(events)) for after, events in sent] == [
        (5, 4),
        (9, 4),
        (13, 2),
        (15, 0),
        (15, 0),
    ]
    window.confirm(9)
    assert (window.next(100)[0], window.last_published, window.backlog) == (15, "9-0", 21)


def test_an_unknown_last_event_means_that_somebody_else_writes():
    window = Window(10)
    window.start(3, "3-0")
    window.add(tellings(4, 5))
    with pytest.raises(Fenced, match="9-0"):
        window.go_on(9, "9-0")


def test_a_stream_that_forgot_more_than_is_kept_cannot_be_told_again():
    window = Window(2 * KEPT)
    window.start(0, "")
    window.add(tellings(1, KEPT + 10))
    window.next(2 * KEPT)
    window.confirm(KEPT + 10)
    with pytest.raises(Unavailable, match="fell back"):
        window.go_on(5, "5-0")
