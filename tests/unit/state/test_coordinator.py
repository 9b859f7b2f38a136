"""One round of a handler: outcomes are judged, then applied.
docs/design/semantics.md#rules-and-judgement.
"""

import pytest

from iris_core.states import SchedulingResult, SessionStatus
from iris_core.tables.session import PREPARE, TERMINATE
from iris_state.decide import coordinator
from iris_state.records.changes import GANG, Judged, SessionMoved
from iris_state.records.handlers import (
    REPORTS,
    Report,
    SessionFacts,
    prepare_sessions,
    start_sessions,
    terminate_sessions,
)

RACK = """
    worker a0 rack=a
    worker a1 rack=a
    worker b0 rack=b
    worker b1 rack=b
    orders a0 held
    orders a1 held
    orders b0 held
    orders b1 held
    submit /g replicas=2 gang=rack
    submit /h replicas=2 gang=rack
    schedule        -> placed 4
"""
G, H = (1, GANG), (2, GANG)


def view(script, session, **words):
    status, version = coordinator.seen(script.world.ledger, session)
    return SessionFacts(session, status, 2, version=version, **words)


def round_of(script, handler, *views, rule=PREPARE):
    world = script.world
    return coordinator.run(world.ledger, world.policy, rule, handler, views, world.now_ms)


def test_a_cancel_between_claim_and_judgement_wins(script):
    script.play(RACK)
    steps = round_of(script, prepare_sessions, view(script, G), view(script, H))
    first = next(steps)
    assert isinstance(first, SessionMoved)
    assert (first.job, first.status) == (1, SessionStatus.PREPARING)
    script.play("cancel /h")
    assert list(steps) == []
    rows = script.world.query("history", job="/h")["items"]
    assert [(row["handler"], row["from"], row["to"]) for row in rows] == [
        ("ScheduleNewSessions", "pending", "scheduled"),
        ("DetectTermination", "scheduled", "terminating"),
    ]


def test_a_view_of_another_version_is_not_judged(script):
    script.play(RACK)
    old = view(script, G)
    script.play("""
        orders a0 fail
        session /g      -> SCHEDULED tries=PrepareSessions:1
    """)
    assert list(round_of(script, prepare_sessions, old)) == []
    assert list(round_of(script, prepare_sessions, view(script, G)))


def test_a_handler_that_raises_has_failed_for_its_whole_batch(script):
    script.play(RACK)

    def broken(sessions):
        raise ZeroDivisionError("oh")

    steps = list(round_of(script, broken, view(script, G), view(script, H)))
    assert [type(step) for step in steps] == [Judged, Judged]
    assert [(step.job, step.result, step.tries) for step in steps] == [
        (1, SchedulingResult.NEED_RETRY, 1),
        (2, SchedulingResult.NEED_RETRY, 1),
    ]
    assert "ZeroDivisionError('oh')" in steps[0].reason


def test_a_handler_that_cannot_fail_and_raises_has_said_nothing(script):
    script.play(RACK)
    script.play("cancel /g")

    def broken(sessions):
        raise ZeroDivisionError("oh")

    assert list(round_of(script, broken, view(script, G), rule=TERMINATE)) == []


def test_what_a_handler_leaves_out_was_not_touched(script):
    script.play(RACK)
    assert list(round_of(script, lambda sessions: Report(), view(script, G))) == []
    script.world.now_ms += 60_001
    (*_, moved) = list(round_of(script, lambda sessions: Report(), view(script, G)))
    assert moved.result is SchedulingResult.EXPIRED


def test_a_session_named_by_nobody_is_nobodys(script):
    script.play(RACK)
    stray = SessionFacts((99, GANG), SessionStatus.SCHEDULED, 2)
    assert list(round_of(script, prepare_sessions, stray)) == []


def test_a_skip_neither_counts_nor_resets(script):
    script.play(RACK)
    script.play("""
        orders a0 fail
        session /g      -> SCHEDULED tries=PrepareSessions:1
    """)
    skip = lambda sessions: Report(skipped=[s.id for s in sessions])  # noqa: E731
    assert list(round_of(script, skip, view(script, G))) == []
    script.play("session /g -> SCHEDULED tries=PrepareSessions:1")


def test_a_duplicate_tick_changes_nothing(script):
    script.play(RACK)
    script.play("""
        orders a0 arrive
        orders a1 arrive
        session /g      -> PREPARING
    """)
    before = script.world.machine.sequence
    for _ in range(3):
        script.world.step()
    assert script.world.machine.sequence == before
    assert list(round_of(script, prepare_sessions, view(script, G))) == []


def test_a_judgement_of_a_status_the_handler_does_not_answer_for_is_none(script):
    script.play(RACK)
    assert list(round_of(script, terminate_sessions, view(script, G), rule=TERMINATE)) == []


# ── the handlers themselves: shown entities in, words out ─────────────────────────────────────────


def shown(status, **words):
    return SessionFacts((1, GANG), status, 2, **words)


@pytest.mark.parametrize(
    ("handler", "seen", "said"),
    [
        (prepare_sessions, shown(SessionStatus.SCHEDULED), "successes"),
        (prepare_sessions, shown(SessionStatus.SCHEDULED, wanting=(1,)), "skipped"),
        (
            prepare_sessions,
            shown(SessionStatus.SCHEDULED, wanting=(1,), undelivered="deaf"),
            "failures",
        ),
        (prepare_sessions, shown(SessionStatus.PREPARING), "skipped"),
        (prepare_sessions, shown(SessionStatus.PREPARING, undelivered="deaf"), "failures"),
        (start_sessions, shown(SessionStatus.PREPARED), "successes"),
        (start_sessions, shown(SessionStatus.PREPARED, wanting=(0,)), "skipped"),
        (
            start_sessions,
            shown(SessionStatus.PREPARED, wanting=(0,), undelivered="deaf"),
            "failures",
        ),
        (start_sessions, shown(SessionStatus.CREATING), "skipped"),
        (terminate_sessions, shown(SessionStatus.TERMINATING), "skipped"),
    ],
)
def test_what_each_handler_says(handler, seen, said):
    report = handler([seen])
    assert {name: list(getattr(report, name)) for name in ("successes", "failures", "skipped")} == {
        name: [seen.id] if name == said else [] for name in ("successes", "failures", "skipped")
    }


def test_every_handler_but_the_schedulers_has_its_function():
    from iris_core.tables.session import HANDLERS, SCHEDULE

    assert set(REPORTS) == {rule.name for rule in HANDLERS} - {SCHEDULE.name}
