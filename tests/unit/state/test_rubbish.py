"""Malformed and malicious messages get an answer and leave the journal readable."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core import subjects
from iris_core.messages.gateway_state import Answer, Caller, Query
from iris_core.quota import Quota
from iris_state.views import KINDS
from tests.support.script import Script

STATUSES = {"ok", "accepted", "created", "invalid", "not_found", "conflict", "forbidden"}
TEXTS = st.one_of(
    st.sampled_from(
        [
            "/a",
            "/a/0",
            "/g",
            "j1",
            "j1-0",
            "j2/0",
            "w0",
            "ann",
            "0",
            "-1",
            "0-0",
            "²",
            "j²",
            "9" * 5000,
        ]
    ),
    st.text(alphabet="/j-_0129² wa\0\n", max_size=8),
)
ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.binary(max_size=4),
        TEXTS,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=3,
)
NAMES = st.fixed_dictionaries(
    {"job": TEXTS, "task": TEXTS, "id": TEXTS, "cursor": st.one_of(st.none(), TEXTS)}
)
QUESTIONS = (
    "job",
    "task",
    "id",
    "cursor",
    "limit",
    "state",
    "status",
    "user",
    "band",
    "name_prefix",
    "worker",
    "order",
)
LIMITS = (*Quota.__struct_fields__, "reason")
CALLERS = st.sampled_from([Caller("ann"), Caller("root", "admin"), Caller()])


def given_some(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), ANYTHING, max_size=3)


def furnished() -> Script:
    """With something of everything that can be asked for."""
    script = Script()
    script.play("""
        worker w0 cpu=2
        worker a0 rack=a
        worker a1 rack=a
        submit /a replicas=3
        submit /g replicas=2 gang=rack
        place /a/0 w0
        /a/0 exit 0
        quota ann max_pending_tasks=9
    """)
    return script


@pytest.fixture(scope="module")
def house() -> Script:
    return furnished()


@pytest.mark.parametrize("what", [*KINDS, "nothing", ""])
@given(names=NAMES, others=given_some(QUESTIONS))
def test_every_question_is_answered(
    house: Script, what: str, names: dict[str, Any], others: dict[str, Any]
):
    answer = house.world.ask(subjects.STATE_QUERY, Query(what, {**names, **others}), Answer)
    assert answer.status in STATUSES


@given(
    st.sampled_from(["drain", "undrain", "mark_lost", "set_quota", "", "\0"]),
    TEXTS,
    CALLERS,
    given_some(LIMITS),
)
def test_every_command_of_an_operator_is_answered(
    action: str, target: str, caller: Caller, arguments: dict[str, Any]
):
    world = furnished().world
    assert world.admin(action, target, caller, **arguments).status in STATUSES
    assert world.replayed().sequence == world.machine.sequence


@given(TEXTS, CALLERS, st.booleans())
def test_every_command_about_a_job_is_answered(name: str, caller: Caller, failed_only: bool):
    world = furnished().world
    assert world.cancel(name, caller).status in STATUSES
    assert world.rerun(name, caller, failed_only=failed_only).status in STATUSES
    assert world.replayed().sequence == world.machine.sequence
