"""A command may reach the leader itself, by the inbox, or by both: it has its effect once, and the same answer."""

import pytest

from iris_core import codec, subjects
from iris_core.messages import AdminCommand, Answer, Caller, CancelJob, Query, RerunJob, SubmitJob
from iris_core.spec import JobSpec
from iris_state.machine import Command, Machine, Request
from iris_state.policy import Policy

SUBMIT = subjects.CMD_SUBMIT
INBOX = "_INBOX.stored"
ANN = Caller("ann")


def submission() -> bytes:
    return codec.pack(SubmitJob(JobSpec(name="/a", command=("true",)), ANN, "r1", 1, answer_to=INBOX))


def said(subject: str, data: bytes, by: str = "straight") -> Request:
    return Request(subjects.direct_subject(subject), data, by)


def test_it_is_answered_to_who_said_it():
    output = Machine(Policy(), "m").step([said(SUBMIT, submission())], 1_000)
    [(subject, answer)] = output.replies
    assert (subject, codec.unpack(answer, Answer).status) == ("straight", "created")


STRAIGHT, STORED = said(SUBMIT, submission()), Command(1, SUBMIT, submission())


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("ways", [[STRAIGHT, STORED], [STORED, STRAIGHT]])
def test_what_comes_both_ways_is_one_job_and_one_answer(ways, together: bool):
    machine = Machine(Policy(), "m")
    rounds = [ways] if together else [[way] for way in ways]
    replies = dict(reply for inputs in rounds for reply in machine.step(inputs, 1_000).replies)
    assert replies.keys() == {"straight", INBOX}
    assert len(set(replies.values())) == 1
    assert list(machine.ledger.jobs) == [1]
    assert machine.cursor == 1


def test_every_kind_of_command_can_be_said():
    machine = Machine(Policy(), "m")
    machine.step([said(SUBMIT, submission())], 1_000)
    rest = {
        subjects.CMD_CANCEL: CancelJob("/a", ANN, "r2", 2, "", ""),
        subjects.CMD_RERUN: RerunJob("/a", ANN, "r3", 3),
        subjects.CMD_ADMIN: AdminCommand("set_quota", "ann", Caller("root", "admin"), "r4", 4, {}),
    }
    for subject, command in rest.items():
        [(_, answer)] = machine.step([said(subject, codec.pack(command))], 2_000).replies
        assert codec.unpack(answer, Answer).status in ("accepted", "created"), subject


def test_what_this_release_has_no_name_for_is_left_to_the_inbox():
    machine = Machine(Policy(), "m")
    output = machine.step([said("iris.cmd.nonsense", codec.pack(Query("jobs", {}, ANN)))], 1_000)
    assert (output.replies, output.commit) == ([], None)
