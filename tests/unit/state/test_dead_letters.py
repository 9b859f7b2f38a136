"""A command that cannot be read is counted and can be looked at; it never stops the ones behind it."""

from iris_core import codec, subjects
from iris_core.messages import Answer, Caller, Query
from iris_state.machine import Asked, Command, Machine
from iris_state.policy import Policy


def letters(machine: Machine) -> dict[str, object]:
    question = codec.pack(Query("dead_letters", {}, Caller("root", "admin")))
    output = machine.step([Asked(subjects.STATE_QUERY, question, "me")], 2_000)
    [(_, data)] = output.replies
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


def test_nothing_is_dead_at_first():
    assert letters(Machine(Policy(), "m")) == {"total": 0, "items": []}
