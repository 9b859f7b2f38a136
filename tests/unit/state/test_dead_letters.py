"""A command that cannot be read is counted and can be looked at; it never stops the ones behind it."""

from iris_core import codec, subjects
from iris_core.messages import Answer, Caller, Query, SubmitJob
from iris_core.spec import JobSpec
from iris_state.machine import Command, Machine, Request
from iris_state.policy import Policy
from iris_state.reads import answer


def letters(machine: Machine) -> dict[str, object]:
    data = answer(machine.ledger, Query("dead_letters", {}, Caller("root", "admin")), machine.sequence)
    return codec.from_json(codec.unpack(data, Answer).body, dict)


def test_what_cannot_be_read_is_kept_with_its_place_and_reason():
    machine = Machine(Policy(), "m")
    poison = [Command(7, subjects.CMD_SUBMIT, b"\xc1"), Command(8, "iris.cmd.nonsense", b"\x90")]
    machine.step(poison, 1_000)
    found = letters(machine)
    assert found["total"] == 2
    assert [letter["command"] for letter in found["items"]] == [7, 8]
    assert found["items"][1]["detail"] == "no command on iris.cmd.nonsense"
    assert machine.cursor == 8


def submission(**fields: object) -> list[object]:
    """A command as another release may write it, by position."""
    command = SubmitJob(JobSpec(name="/a", command=("true",)), Caller("ann"), "r1", 1, answer_to="_INBOX.me")
    words = codec.unpack(codec.pack(command), list)
    for field, value in fields.items():
        words[SubmitJob.__struct_fields__.index(field)] = value
    return words


def answers_to(words: list[object]) -> list[tuple[str, str]]:
    output = Machine(Policy(), "m").step([Command(1, subjects.CMD_SUBMIT, codec.pack(words))], 1_000)
    return [(subject, codec.unpack(data, Answer).status) for subject, data in output.replies]


def test_who_asks_for_what_only_a_later_release_knows_is_told_to_try_again():
    spec = {"name": "/a", "command": ["true"], "colour": "green"}
    assert answers_to(submission(spec=spec)) == [("_INBOX.me", "unavailable")]


def test_what_a_later_release_adds_at_the_end_is_passed_over():
    assert answers_to([*submission(), "what is this", 7]) == [("_INBOX.me", "created")]


def test_what_an_earlier_release_did_not_have_is_its_default():
    assert answers_to(submission()[:-1]) == [("_INBOX.me", "created")]
    assert answers_to(submission()[: SubmitJob.__struct_fields__.index("idempotency_key")]) == []


def test_a_subject_or_header_that_would_break_its_line_is_a_dead_letter():
    """Sent on, it would end the leader, and the one after it, for ever."""
    assert answers_to(submission(answer_to="_INBOX.me 5\r\nPING")) == []
    assert answers_to(submission(traceparent="00\r\nNats-Msg-Id: 1.0")) == [("_INBOX.me", "unavailable")]


def test_nothing_is_dead_at_first():
    assert letters(Machine(Policy(), "m")) == {"total": 0, "items": []}


def test_what_cannot_be_read_and_was_not_stored_waits_for_its_stored_copy():
    machine = Machine(Policy(), "m")
    output = machine.step([Request(subjects.direct_subject(subjects.CMD_SUBMIT), b"\xc1", "me")], 1_000)
    assert (output.replies, output.commit, letters(machine)["total"]) == ([], None, 0)
