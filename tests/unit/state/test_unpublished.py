"""Events that may be unpublished: a new leader publishes all of them, or reports that some are
missing.
"""

import pytest

from iris_core.spec.jobs import JobSpec
from iris_state.records.apply import apply
from iris_state.records.changes import JobAdmitted
from iris_state.records.ledger import Ledger
from iris_state.replication import unpublished
from iris_state.replication.unpublished import UnpublishedEvents


def facts():
    """What the admission of a job of two tasks makes: three events."""
    ledger = Ledger()
    apply(
        ledger,
        JobAdmitted(1, "/a", JobSpec(name="/a", command=("true",), replicas=2), "ann", 1, 1),
        1,
    )
    return ledger.facts


def ids(events):
    return None if events is None else [event.message_id for event in events]


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(unpublished, "KEPT", 1)
    kept = UnpublishedEvents()
    for sequence in (1, 2, 3):
        kept.add(sequence, facts())
    kept.note_published("3.0")
    return kept


def test_what_stands_behind_the_last_event_told_is_worded(few):
    assert ids(few.behind("3.0")) == ["3.1", "3.2"]
    assert ids(few.behind("2.2")) == ["3.0", "3.1", "3.2"]


def test_events_that_fell_back_into_a_commit_let_go_are_missed(few):
    """The stream forgot the end of a commit in a crash: its last two events would never have been
    told again.
    """
    assert few.behind("2.0") is None


def test_events_that_fell_back_into_a_commit_of_the_snapshot_are_missed():
    """Between the look at the stream and the take-over it forgot an event that the snapshot takes
    for told.
    """
    recovered = UnpublishedEvents(10, "5.3")
    assert ids(recovered.behind("5.3")) == []
    assert recovered.behind("5.2") is None
