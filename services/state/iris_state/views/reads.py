"""Answers queued reads, callers in turn, in slices of time. Pure; the clock is an argument.

Used by the leader and by followers. While commits compete with reads, reads have a share of the
time: after each slice of answers commits have theirs. An answer of many records is made in pieces,
in several slices when there is no time for all of them. Out of scope: the content of views.
Sources: docs/adr/0017-reads-beside-the-writer.md, docs/adr/0161-reads-are-made-in-pieces.md.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from iris_core import codec
from iris_core.codec import Undecodable
from iris_core.errors import Code, Invalid, InvariantBroken, Refused
from iris_core.limits import MESSAGE_BYTES
from iris_core.messages.gateway_state import Answer, Query
from iris_state import views
from iris_state.records.ledger import Ledger
from iris_state.views.pages import Pieces

SLICE_S = 0.005
"""How long reads are answered in one slice, in seconds; the last piece may take longer."""
WRITING_S = 0.1
"""Seconds after a commit during which another one is expected."""
WAITING = 1000
"""Queued reads of one caller, at most; further ones are refused at once."""
TOO_LARGE = "the answer is too large for one message; request fewer items"


@dataclass(slots=True)
class Question:
    """A query, its reply subject, and its arrival by the clock of `Reads`.

    Attributes:
        begun: what is left of its answer, and the ledger from which that is made.
    """

    query: Query
    reply: str
    at_s: float
    begun: tuple[Ledger, Pieces[bytes]] | None = None


def always() -> bool:
    """For the leader: its reads always compete with commits."""
    return True


class Reads:
    """Queued reads by caller.

    Args:
        timeout_s: how long a read may wait; then it is refused as unavailable.
        clock: monotonic seconds.
        share: share of time for reads while commits compete with them.
        in_the_way: whether they compete now.
    """

    def __init__(
        self,
        timeout_s: float,
        clock: Callable[[], float],
        share: float = 1.0,
        in_the_way: Callable[[], bool] = always,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._share = share
        self._in_the_way = in_the_way
        self._writing_until_s = self._again_s = 0.0
        self._lines: OrderedDict[str, deque[Question]] = OrderedDict()
        self._refused: list[tuple[str, bytes]] = []
        self._raised: list[Exception] = []

    def __bool__(self) -> bool:
        """Whether any read is queued."""
        return bool(self._lines or self._refused)

    def note_commit(self) -> None:
        """A commit was written now."""
        self._writing_until_s = self._clock() + WRITING_S

    def wait_s(self) -> float:
        """Seconds until reads may be answered again; 0 for now."""
        return max(0.0, self._again_s - self._clock())

    def ask(self, data: bytes, reply: str) -> None:
        """Queue a read."""
        try:
            query = codec.unpack(data, Query)
        except Undecodable as error:
            self._refused.append((reply, refusal(Code.INVALID, str(error))))
            return
        line = self._lines.setdefault(query.caller.user, deque())
        if len(line) < WAITING:
            line.append(Question(query, reply, self._clock()))
        else:
            words = f"{WAITING} questions of {query.caller.user or 'one caller'} wait already"
            self._refused.append((reply, refusal(Code.UNAVAILABLE, words)))

    def answers(self, ledger: Ledger, position: int) -> Iterator[tuple[str, bytes]]:
        """The answers for which there is time now, with their reply subjects, from a ledger at a
        position of the journal.
        """
        refused = self._refused
        self._refused = []
        yield from refused
        began_s = self._clock()
        if not self._lines or began_s < self._again_s:
            return
        while self._lines and self._clock() < began_s + SLICE_S:
            caller, line = self._lines.popitem(last=False)
            question = line.popleft()
            if self._clock() - question.at_s > self._timeout_s:
                words = f"not answered within {self._timeout_s:g} s"
                data: bytes | None = refusal(Code.UNAVAILABLE, words)
            else:
                data = self._go_on(ledger, question, position)
            if data is None:
                line.appendleft(question)
            if line:
                self._lines[caller] = line  # after all other callers
            if data is not None:
                yield question.reply, data
        now_s = self._clock()
        if now_s < self._writing_until_s and self._in_the_way():
            self._again_s = now_s + (now_s - began_s) * (1 / self._share - 1)

    def _go_on(self, ledger: Ledger, question: Question, position: int) -> bytes | None:
        """Make one piece of an answer; returns the answer when that was the last one."""
        if question.begun is None or question.begun[0] is not ledger:
            question.begun = ledger, views.read(ledger, question.query)
        try:
            return _next(ledger, question.query, question.begun[1], position)
        except InvariantBroken:
            raise
        except Exception as error:  # noqa: BLE001 - an error is the answer to this read only
            self._raised.append(error)
            return refusal(
                Code.INTERNAL, f"the state service could not answer: {type(error).__name__}"
            )

    def take_raised(self) -> list[Exception]:
        """The exceptions of queries since the last call."""
        raised = self._raised
        self._raised = []
        return raised

    def rest(self) -> list[str]:
        """Remove every unanswered read; returns their reply subjects."""
        lines = self._lines
        self._lines = OrderedDict()
        return [question.reply for line in lines.values() for question in line]


def answer(ledger: Ledger, query: Query, position: int) -> bytes:
    """The `Answer` to one query, made without a pause."""
    steps = views.read(ledger, query)
    while (data := _next(ledger, query, steps, position)) is None:
        pass
    return data


def _next(ledger: Ledger, query: Query, steps: Pieces[bytes], position: int) -> bytes | None:
    """Make one more piece; returns the `Answer` when there are no more."""
    try:
        next(steps)
    except StopIteration as end:
        data = codec.pack(Answer("ok", end.value, position, views.note_of(ledger, query)))
        return data if len(data) <= MESSAGE_BYTES else refusal(Code.UNAVAILABLE, TOO_LARGE)
    except Refused as error:
        mistakes = error.mistakes if isinstance(error, Invalid) else ()
        return codec.pack(Answer(error.code.value, views.refusal(error.detail, mistakes), position))
    return None


def refusal(code: Code, detail: str) -> bytes:
    """The `Answer` to a read that is refused unread."""
    return codec.pack(Answer(code.value, views.refusal(detail)))
