"""Queries are served fairly: callers in turn, one slice of work at a time, and each gets an
answer.
"""

import itertools

import pytest

from iris_core import codec
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_state.records.ledger import Ledger
from iris_state.views.reads import SLICE_S, WAITING, WRITING_S, Reads
from tests.unit.state.test_snapshot import Story, job

POSITION = 7


class Clock:
    """Every look at it takes a while."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def question(user: str, what: str = "overview") -> bytes:
    return codec.pack(Query(what, {}, Caller(user)))


def served(reads: Reads) -> list[str]:
    """Where the answers of one slice went."""
    return [reply for reply, _ in reads.answers(Ledger(), POSITION)]


def statuses(reads: Reads) -> list[str]:
    return [codec.unpack(data, Answer).status for _, data in reads.answers(Ledger(), POSITION)]


def test_one_question_of_another_caller_does_not_wait_for_a_hundred():
    reads = Reads(2.0, lambda: 0.0)
    for number in range(100):
        reads.ask(question("ann"), f"ann {number}")
    reads.ask(question("bob"), "bob 0")
    reads.ask(question("bob"), "bob 1")
    assert served(reads)[:5] == ["ann 0", "bob 0", "ann 1", "bob 1", "ann 2"]


def test_what_there_is_no_time_for_is_answered_in_the_next_slice():
    reads = Reads(2.0, Clock(SLICE_S / 4))
    for number in range(6):
        reads.ask(question("ann"), f"{number}")
    slices = list(itertools.takewhile(bool, (served(reads) for _ in range(100))))
    assert len(slices) > 1
    assert list(itertools.chain(*slices)) == [str(number) for number in range(6)]
    assert not reads


def test_a_question_that_waited_too_long_is_refused_and_may_be_repeated():
    clock = Clock(0.0)
    reads = Reads(2.0, clock)
    reads.ask(question("ann"), "a")
    clock.now_s = 2.5
    reads.ask(question("ann"), "b")
    assert statuses(reads) == ["unavailable", "ok"]


def answered_in(reads: Reads, clock: Clock, seconds: float) -> float:
    """How much of the next seconds, each with as many questions as there is time for, went into
    answers.
    """
    began_s, answering_s = clock.now_s, 0.0
    while clock.now_s < began_s + seconds:
        for number in range(10):
            reads.ask(question("ann"), f"{number}")
        before_s = clock.now_s
        list(reads.answers(Ledger(), POSITION))
        answering_s += clock.now_s - before_s
        clock.now_s += max(reads.wait_s(), 0.001)
        reads.rest()
    return answering_s / seconds


@pytest.mark.parametrize(
    ("is_writing", "in_the_way", "least", "most"),
    [(True, True, 0.1, 0.3), (True, False, 0.5, 1), (False, True, 0.5, 1)],
)
def test_reads_have_their_share_of_the_time_beside_commits(is_writing, in_the_way, least, most):
    clock = Clock(SLICE_S / 10)
    reads = Reads(2.0, clock, 0.2, lambda: in_the_way)
    found = []
    for _ in range(20):
        if is_writing:
            reads.note_commit()
        found.append(answered_in(reads, clock, WRITING_S / 2))
    assert least < sum(found) / len(found) <= most


def jobs(count: int) -> Ledger:
    story = Story()
    story.tell(*(job(number, f"/job-{number}", 1) for number in range(1, count + 1)))
    return story.ledger


def listing(user: str, **arguments: object) -> bytes:
    return codec.pack(Query("jobs", arguments, Caller(user)))


def test_a_short_read_does_not_wait_for_the_rest_of_a_long_one():
    ledger = jobs(450)
    reads = Reads(2.0, lambda: 0.0)
    reads.ask(listing("ann", limit=500), "long")
    for number in range(2):
        reads.ask(listing("bob", limit=1), f"short {number}")
    answers = dict(reads.answers(ledger, POSITION))
    assert list(answers) == ["short 0", "short 1", "long"]
    page = codec.from_json(codec.unpack(answers["long"], Answer).body, dict)
    assert [one["id"] for one in page["items"]] == [f"j{n}" for n in range(450, 0, -1)]
    assert page["next_cursor"] is None


def test_a_long_read_goes_on_in_the_next_slice():
    ledger = jobs(450)
    reads = Reads(60.0, Clock(SLICE_S / 4))
    reads.ask(listing("ann", limit=500), "long")
    slices = []
    while reads:
        slices.append([reply for reply, _ in reads.answers(ledger, POSITION)])
    assert len(slices) > 1
    assert slices == [[]] * (len(slices) - 1) + [["long"]]


@pytest.mark.parametrize("order", ["-submitted", "name", "-duration"])
def test_what_is_deleted_while_a_read_is_made_is_missing_in_it_alone(order):
    ledger = jobs(450)
    reads = Reads(60.0, Clock(SLICE_S / 4))
    reads.ask(listing("ann", limit=500, order=order), "long")
    gone = list(range(1, 451, 3))
    found = dict(reads.answers(ledger, POSITION))
    assert found == {}
    for number in gone:
        ledger.forget_job(ledger.jobs[number])
    while reads:
        found |= dict(reads.answers(ledger, POSITION + 1))
    answer = codec.unpack(found["long"], Answer)
    shown = {one["id"] for one in codec.from_json(answer.body, dict)["items"]}
    assert (answer.status, answer.position) == ("ok", POSITION + 1)
    assert shown >= {f"j{number}" for number in ledger.jobs}
    assert len(shown) < 450


def test_a_read_begins_again_from_another_ledger():
    reads = Reads(60.0, Clock(SLICE_S / 4))
    reads.ask(listing("ann", limit=500), "long")
    assert dict(reads.answers(jobs(450), POSITION)) == {}
    found = {}
    while reads:
        found |= dict(reads.answers(jobs(3), POSITION + 1))
    body = codec.unpack(found["long"], Answer).body
    assert len(codec.from_json(body, dict)["items"]) == 3


def test_only_a_caller_with_too_many_questions_is_refused():
    reads = Reads(2.0, lambda: 0.0)
    for number in range(WAITING + 1):
        reads.ask(question("ann"), f"{number}")
    reads.ask(question("bob"), "bob")
    found = [
        (reply, codec.unpack(data, Answer).status)
        for reply, data in reads.answers(Ledger(), POSITION)
    ]
    assert found[:3] == [(str(WAITING), "unavailable"), ("0", "ok"), ("bob", "ok")]


def test_every_question_gets_one_answer_that_says_as_of_when():
    reads = Reads(2.0, lambda: 0.0)
    reads.ask(question("ann", "no such view"), "a")
    reads.ask(b"\xc1", "b")
    reads.ask(question("ann"), "c")
    found = {reply: codec.unpack(data, Answer) for reply, data in reads.answers(Ledger(), POSITION)}
    said = {reply: (answer.status, answer.position) for reply, answer in found.items()}
    assert said == {"a": ("not_found", POSITION), "b": ("invalid", 0), "c": ("ok", POSITION)}


def test_an_answer_that_no_server_takes_is_refused_instead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("iris_state.views.reads.MESSAGE_BYTES", 100)
    reads = Reads(2.0, lambda: 0.0)
    reads.ask(question("ann"), "a")
    assert statuses(reads) == ["unavailable"]
