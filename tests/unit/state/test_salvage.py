"""A damaged journal is split into readable commits and losses, and yields consistent records."""

import pytest

from iris_bus.journal.framing import split
from iris_core import codec
from iris_core.messages.state_worker import Ended
from iris_core.quota import Quota
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, Initiator, JobState, KernelStatus, TaskState
from iris_state.admin.salvage import NUMBERS, salvage
from iris_state.admin.survey import Lost, survey
from iris_state.machine.machine import Machine
from iris_state.policy import Policy
from iris_state.records.changes import (
    Assigned,
    Change,
    Commit,
    JobAdmitted,
    JobMoved,
    Led,
    Moved,
    QuotaSet,
    Staged,
    WorkerRegistered,
)
from iris_state.snapshots import snapshot

HOST = WorkerRegistered("w0", "i0", {"zone": "a"}, Amount(4000))


def job(number: int) -> JobAdmitted:
    spec = JobSpec(name=f"/n{number}", command=("true",), resources=ResourceRequest(cpu_millis=100))
    return JobAdmitted(number, spec.name, spec, "ann", 10, 10)


def placed(number: int) -> list[Change]:
    return [
        Assigned(number, 0, 0, "w0"),
        Staged(number, 0, 0, KernelStatus.RUNNING),
        JobMoved(number, JobState.RUNNING),
    ]


def done(number: int) -> list[Change]:
    how = (TaskState.SUCCEEDED, TaskState.SUCCEEDED, Cause.EXITED, Initiator.WORKER)
    ended = Moved(number, 0, 0, *how, closed=True, ended=Ended(Cause.EXITED, 0))
    return [ended, JobMoved(number, JobState.SUCCEEDED, Cause.EXITED)]


def journal(*commits: list[Change], part_bytes: int = 1 << 20) -> dict[int, bytes]:
    """Messages by sequence, one commit after the other, each a second later."""
    messages: dict[int, bytes] = {}
    for serial, changes in enumerate(commits):
        commit = Commit(1, serial, 1000 * (serial + 1), changes)
        for part in split(codec.pack(commit), part_bytes):
            messages[len(messages) + 1] = part
    return messages


def without(messages: dict[int, bytes], *gone: int) -> dict[int, bytes]:
    return {sequence: data for sequence, data in messages.items() if sequence not in gone}


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


STORY = journal(
    [Led("a", 1), HOST], [job(1)], placed(1), [job(2)], done(1), [*placed(2), job(3)], done(2)
)


def test_a_whole_journal_has_nothing_lost():
    found = survey(STORY, 0, 7)
    assert [one.sequence for one in found.commits] == [1, 2, 3, 4, 5, 6, 7]
    assert found.lost == []


@pytest.mark.parametrize("sequence", range(1, 8))
def test_a_missing_message_is_lost_with_the_times_around_it(sequence: int):
    found = survey(without(STORY, sequence), 0, 7)
    before, behind = 1000 * (sequence - 1), 1000 * (sequence + 1) if sequence < 7 else 0
    assert found.lost == [Lost(sequence, sequence, before, behind)]


@pytest.mark.parametrize("at", [0, 5, 9, 14, 20, -1])
def test_a_message_with_a_flipped_bit_anywhere_is_lost(at: int):
    found = survey({**STORY, 4: flipped(STORY[4], at % len(STORY[4]))}, 0, 7)
    assert found.lost == [Lost(4, 4, 3000, 5000)]


def test_a_journal_that_ends_before_a_known_entry_has_lost_its_end():
    assert survey(STORY, 0, 9).lost == [Lost(8, 9, 7000, 0)]


def test_neighbouring_losses_are_one():
    assert survey(without(STORY, 3, 4, 5), 0, 7).lost == [Lost(3, 5, 2000, 6000)]


def test_a_commit_of_which_a_part_is_missing_is_lost_whole():
    parts = journal([Led("a", 1), HOST], [job(1)], [job(2)], part_bytes=16)
    whole = [one.sequence for one in survey(parts, 0, len(parts)).commits]
    assert len(whole) == 3
    found = survey(without(parts, whole[0] + 2), 0, len(parts))
    assert [one.sequence for one in found.commits] == [whole[0], whole[2]]
    assert [(lost.first, lost.last) for lost in found.lost] == [(whole[0] + 1, whole[1])]


def test_parts_that_a_leader_did_not_finish_are_no_loss():
    parts = journal([Led("a", 1), HOST], part_bytes=20)
    begun = list(parts.values())[:1]
    messages = dict(enumerate([*parts.values(), *begun, *parts.values()], 1))
    found = survey(messages, 0, len(messages))
    assert found.lost == []
    assert [one.sequence for one in found.commits] == [len(parts), len(messages)]


def ledger_of(
    messages: dict[int, bytes], end: int = 7, image: bytes | None = None, after: int = 0
) -> Machine:
    return salvage(Policy(), image, survey(messages, after, end)).machine


def states(machine: Machine) -> dict[str, JobState]:
    return {job.name: job.state for job in machine.ledger.jobs.values()}


def test_a_whole_journal_makes_the_records_that_a_replay_makes():
    replayed = Machine(Policy(), "replica")
    for one in survey(STORY, 0, 7).commits:
        replayed.replay(one.sequence, codec.pack(one.commit))
    salvaged = ledger_of(STORY)
    assert snapshot.cut(salvaged.ledger, 7, 0) == snapshot.cut(replayed.ledger, 7, 0)
    assert salvaged.sequence == 7


def test_a_job_whose_end_is_lost_still_runs_and_others_are_unchanged():
    machine = ledger_of(without(STORY, 5))
    assert states(machine) == {
        "/n1": JobState.RUNNING,
        "/n2": JobState.SUCCEEDED,
        "/n3": JobState.PENDING,
    }


def test_a_job_whose_placement_is_lost_stays_as_it_was_and_is_named():
    outcome = salvage(Policy(), None, survey(without(STORY, 3), 0, 7))
    assert states(outcome.machine) == {
        "/n1": JobState.PENDING,
        "/n2": JobState.SUCCEEDED,
        "/n3": JobState.PENDING,
    }
    assert outcome.stopped == {1: "/n1"}
    assert outcome.left_out == 2
    assert outcome.wrong == []


def test_a_job_whose_admission_is_lost_is_known_by_its_number_only():
    outcome = salvage(Policy(), None, survey(without(STORY, 4), 0, 7))
    assert states(outcome.machine) == {"/n1": JobState.SUCCEEDED, "/n3": JobState.PENDING}
    assert outcome.stopped == {2: ""}


@pytest.mark.parametrize("sequence", range(1, 8))
def test_every_readable_job_survives_any_loss_and_the_records_agree(sequence: int):
    outcome = salvage(Policy(), None, survey(without(STORY, sequence), 0, 7))
    admitted = {2: "/n1", 4: "/n2", 6: "/n3"}
    assert set(states(outcome.machine)) == {"/n1", "/n2", "/n3"} - {admitted.get(sequence)}
    assert [wrong for wrong in outcome.wrong if "w0" not in wrong] == []


def test_numbers_and_epochs_of_lost_commits_are_not_used_again():
    machine = ledger_of(without(STORY, 4, 5))
    assert machine.ledger.epoch == 3
    assert machine.ledger.next_number == 4 + NUMBERS


def test_damage_that_a_snapshot_covers_costs_nothing():
    whole = ledger_of(STORY)
    image = snapshot.cut(ledger_of(dict(list(STORY.items())[:5]), 5).ledger, 5, 5000)
    salvaged = ledger_of(without(STORY, 1, 2, 3, 4, 5), 7, image, 5)
    assert states(salvaged) == states(whole)
    assert salvaged.ledger.next_number == whole.ledger.next_number


def test_a_snapshot_ahead_of_a_journal_that_was_cut_off_is_taken_as_it_is():
    image = snapshot.cut(ledger_of(STORY).ledger, 7, 7000)
    found = survey({sequence: data for sequence, data in STORY.items() if sequence < 4}, 7, 7)
    assert found.lost == []
    assert states(salvage(Policy(), image, found).machine) == states(ledger_of(STORY))


def test_a_quota_behind_the_loss_is_kept():
    quota = Quota("ann", 5)
    machine = ledger_of(without(journal([Led("a", 1)], [job(1)], [QuotaSet(quota)]), 2), 3)
    assert machine.ledger.quotas == {"ann": quota}
