"""Commands are answered to their sender and executed once, however often they arrive."""

import pytest

from iris_core import codec, subjects
from iris_core.messages.gateway_state import (
    AdminCommand,
    AmendJob,
    Answer,
    Caller,
    CancelJob,
    Query,
    RerunJob,
    SubmitJob,
)
from iris_core.spec.jobs import JobSpec
from iris_state.effects.kinds import Output, ReplyTo
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.inputs import Request

ANN = Caller("ann")
SUBMISSION = SubmitJob(JobSpec(name="/a", command=("true",)), ANN, "r1", 1)


def sent(subject: str, message: object, reply: str = "me") -> Request:
    return Request(subject, codec.pack(message), reply)


def answers(output: Output) -> list[tuple[str, str]]:
    return [(one.to, codec.unpack(one.data, Answer).status) for one in output.of(ReplyTo)]


@pytest.mark.parametrize("together", [True, False])
def test_what_two_gateways_repeat_is_one_job_and_one_answer(together: bool):
    machine = Machine(Policy(), "m")
    ways = [sent(subjects.CMD_SUBMIT, SUBMISSION, reply) for reply in ("one", "another", "one")]
    rounds = [ways] if together else [[way] for way in ways]
    replies = [reply for inputs in rounds for reply in machine.step(inputs, 1_000).of(ReplyTo)]
    assert [reply.to for reply in replies] == ["one", "another", "one"]
    assert len({reply.data for reply in replies}) == 1
    assert list(machine.ledger.jobs) == [1]


def test_a_repetition_changes_nothing_and_is_not_committed():
    machine = Machine(Policy(), "m")
    machine.step([sent(subjects.CMD_SUBMIT, SUBMISSION)], 1_000)
    outputs = [machine.step([sent(subjects.CMD_SUBMIT, SUBMISSION)], 1_000) for _ in range(3)]
    assert [(output.commit, answers(output)) for output in outputs] == [
        (None, [("me", "created")])
    ] * 3


def test_every_kind_of_command_can_be_sent():
    machine = Machine(Policy(), "m")
    machine.step([sent(subjects.CMD_SUBMIT, SUBMISSION)], 1_000)
    rest = {
        subjects.CMD_CANCEL: CancelJob("/a", ANN, "r2", 2),
        subjects.CMD_RERUN: RerunJob("/a", ANN, "r3", 3),
        subjects.CMD_AMEND: AmendJob("/a", ANN, "r5", 3, hold=True),
        subjects.CMD_ADMIN: AdminCommand("set_quota", "ann", Caller("root", "admin"), "r4", 4, {}),
    }
    for subject, command in rest.items():
        [(_, status)] = answers(machine.step([sent(subject, command)], 2_000))
        assert status in ("accepted", "created"), subject


@pytest.mark.parametrize(
    ("subject", "data"),
    [
        (subjects.CMD_SUBMIT, b"\xc1"),
        ("iris.state.command.nonsense", codec.pack(Query("jobs", {}, ANN))),
    ],
)
def test_who_sends_what_this_release_cannot_read_is_told_to_try_again(subject: str, data: bytes):
    output = Machine(Policy(), "m").step([Request(subject, data, "me")], 1_000)
    assert (answers(output), output.commit) == ([("me", "unavailable")], None)
    assert (
        b"this release of the state service cannot read the command" in output.of(ReplyTo)[0].data
    )


def submission(**fields: object) -> list[object]:
    """A command as another release may write it, by position."""
    words = codec.unpack(codec.pack(SUBMISSION), list)
    for field, value in fields.items():
        words[SubmitJob.__struct_fields__.index(field)] = value
    return words


def answer_to(words: list[object]) -> str:
    [(_, status)] = answers(Machine(Policy(), "m").step([sent(subjects.CMD_SUBMIT, words)], 1_000))
    return status


def test_who_asks_for_what_only_a_later_release_knows_is_told_to_try_again():
    assert (
        answer_to(submission(spec={"name": "/a", "command": ["true"], "colour": "green"}))
        == "unavailable"
    )


def test_what_a_later_release_adds_at_the_end_is_passed_over():
    assert answer_to([*submission(), "what is this", 7]) == "created"


def test_what_an_earlier_release_did_not_have_is_its_default():
    assert answer_to(submission()[:-1]) == "created"
    assert (
        answer_to(submission()[: SubmitJob.__struct_fields__.index("idempotency_key")]) == "created"
    )


def test_a_header_that_would_break_its_line_is_refused():
    """Sent on, it would end the leader, and the one after it, for ever."""
    assert answer_to(submission(traceparent="00\r\nNats-Msg-Id: 1.0")) == "unavailable"
