"""A snapshot equals the ledger, however it is split; damaged or too new ones are refused with a
reason.
"""

import gc

import msgspec
import pytest

from iris_core.messages.state_worker import Ended
from iris_core.spec.jobs import JobSpec
from iris_core.spec.resources import Amount, ResourceRequest
from iris_core.states import Cause, Initiator, JobState, KernelStatus, TaskState, WorkerState
from iris_state.check.records import check
from iris_state.decide.retention import Retention
from iris_state.records.apply import apply
from iris_state.records.changes import (
    Assigned,
    Avoided,
    Change,
    Closed,
    JobAdmitted,
    JobMoved,
    JobPruned,
    Moved,
    Staged,
    WorkerForgotten,
    WorkerMoved,
    WorkerRegistered,
)
from iris_state.records.compacted import CompactedTasks, encoder, is_compacted
from iris_state.records.ledger import Ledger
from iris_state.records.reactions import bind
from iris_state.snapshots import snapshot


def job(number: int, name: str, replicas: int = 2, parent: int = 0) -> JobAdmitted:
    spec = JobSpec(
        name=name, command=("true",), replicas=replicas, resources=ResourceRequest(cpu_millis=100)
    )
    return JobAdmitted(
        number,
        name,
        spec,
        "ann",
        10 + number,
        10 + (parent or number),
        parent,
        idempotency_key=f"k{number}",
    )


HOST = WorkerRegistered("w0", "i0", {"zone": "a"}, Amount(4000))


def done(number: int, index: int) -> list[Change]:
    return [
        Assigned(number, index, 0, "w0"),
        Staged(number, index, 0, KernelStatus.RUNNING),
        Moved(
            number,
            index,
            0,
            TaskState.SUCCEEDED,
            TaskState.SUCCEEDED,
            Cause.EXITED,
            Initiator.WORKER,
            closed=True,
            ended=Ended(Cause.EXITED, 0),
        ),
    ]


def requeued(number: int, index: int) -> list[Change]:
    """Preempted, still being stopped, and waiting for another place."""
    return [
        Assigned(number, index, 0, "w0"),
        Staged(number, index, 0, KernelStatus.RUNNING),
        Moved(
            number,
            index,
            0,
            TaskState.PENDING,
            TaskState.PREEMPTED,
            Cause.PREEMPTED,
            Initiator.SCHEDULER,
            closed=False,
        ),
    ]


class Story:
    """A ledger that lives through changes, and what a service would do beside it."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.retention = Retention(self.ledger)
        self.reactions = bind(self.retention)
        self.at_ms = 100

    def tell(self, *changes: Change) -> list[Change]:
        for change in changes:
            self.at_ms += 1
            apply(self.ledger, change, self.at_ms)
            for react in self.reactions[type(change)]:
                react(change)
        self.ledger.facts.clear()
        self.retention.settle()
        return list(changes)


@pytest.fixture
def story() -> Story:
    story = Story()
    story.tell(
        HOST, job(1, "/a"), *done(1, 0), *done(1, 1), JobMoved(1, JobState.SUCCEEDED, Cause.EXITED)
    )
    story.tell(
        job(2, "/b", 3), *done(2, 0), *requeued(2, 1), job(3, "/b/c", 1, parent=2), *requeued(3, 0)
    )
    return story


def records(ledger: Ledger) -> bytes:
    return encoder.encode(
        [
            sorted(ledger.jobs.items()),
            sorted(ledger.workers.items()),
            ledger.idempotency,
            ledger.names,
            ledger.spent_keys,
        ]
    )


def restored(data: bytes) -> Ledger:
    ledger = Ledger()
    snapshot.restore(ledger, snapshot.read(data))
    return ledger


def finished(cutter: snapshot.Cutter, story: Story) -> bytes:
    draft = cutter.finish(8, story.at_ms, "")
    while not draft.work(1):
        pass
    return draft.data()


def test_what_is_cut_is_what_is_restored(story):
    again = restored(snapshot.cut(story.ledger, 7, story.at_ms, "7.1"))
    check(again)
    assert records(again) == records(story.ledger)


def test_garbage_is_not_collected_while_a_snapshot_is_read_and_restored(story, monkeypatch):
    data = snapshot.cut(story.ledger, 7, story.at_ms)
    collects: list[bool] = []
    decode, index_job = snapshot._decode_open, Ledger.index_job

    def note_decoding(body):
        collects.append(gc.isenabled())
        return decode(body)

    def note_indexing(*words):
        collects.append(gc.isenabled())
        index_job(*words)

    monkeypatch.setattr(snapshot, "_decode_open", note_decoding)
    monkeypatch.setattr(Ledger, "index_job", note_indexing)
    ledger = Ledger()
    snapshot.restore(ledger, snapshot.read(data))
    assert len(collects) > 1
    assert not any(collects)
    assert gc.isenabled()
    with pytest.raises(snapshot.Damaged):
        snapshot.read(data[:-1])
    assert gc.isenabled()


def test_what_owners_wrote_is_measured_once_and_restored(story, monkeypatch):
    data = snapshot.cut(story.ledger, 7, story.at_ms)
    monkeypatch.setattr("iris_state.records.ledger.written", lambda spec, index: 1 << 30)
    again = restored(data)
    assert again.written == story.ledger.written
    assert again.live_bytes == story.ledger.live_bytes


def test_what_owners_wrote_is_measured_where_an_earlier_release_has_not(story):
    image = snapshot.read(snapshot.cut(story.ledger, 7, story.at_ms))
    image.rest.written = {}
    ledger = Ledger()
    snapshot.restore(ledger, image)
    assert ledger.written == story.ledger.written


def test_a_host_avoided_by_one_task_leaves_nothing_when_forgotten(story):
    lost = (
        WorkerRegistered("w1", "i1", {"zone": "a"}, Amount(4000)),
        WorkerMoved("w1", WorkerState.LOST, "gone"),
    )
    story.tell(*lost, Avoided(2, 2, "w1", 10_000), WorkerForgotten("w1"))
    assert (
        restored(snapshot.cut(story.ledger, 7, story.at_ms)).avoided == story.ledger.avoided == {}
    )


def test_a_waiting_task_keeps_the_place_of_an_attempt_being_stopped(story):
    again = restored(snapshot.cut(story.ledger, 7, story.at_ms))
    assert (
        again.presence["w0"].open.keys()
        == story.ledger.presence["w0"].open.keys()
        == {(2, 1, 0), (3, 0, 0)}
    )


def test_what_changes_while_a_snapshot_is_cut_is_in_it(story):
    cutter = snapshot.Cutter(story.ledger)
    while not cutter.work(1):
        pass
    cutter.note(story.tell(Closed(2, 1, 0, Ended(Cause.CANCELLED)), job(4, "/d"), *done(2, 2)))
    assert records(restored(finished(cutter, story))) == records(story.ledger)


def test_a_job_forgotten_while_a_snapshot_is_cut_is_not_in_it(story):
    cutter = snapshot.Cutter(story.ledger)
    while not cutter.work(1):
        pass
    cutter.note(story.tell(JobPruned(1)))
    assert 1 not in restored(finished(cutter, story)).jobs


def test_a_job_forgotten_before_the_cutter_comes_back_to_it_is_not_in_it(story):
    cutter = snapshot.Cutter(story.ledger)
    while not cutter.work(1):
        pass
    cutter.note(story.tell(JobPruned(1)))
    while not cutter.work(1):
        pass
    assert 1 not in restored(finished(cutter, story)).jobs


def test_a_finished_job_is_kept_as_bytes_and_read_like_any_other(story):
    tasks = story.ledger.jobs[1].tasks
    assert isinstance(tasks, CompactedTasks)
    assert [task.state for task in tasks] == [TaskState.SUCCEEDED] * 2
    assert (len(tasks), tasks[1].attempts[0].worker, len(tasks[0:1])) == (2, "w0", 1)
    assert not is_compacted(story.ledger.jobs[2])


@pytest.mark.parametrize("version", [snapshot.VERSION - 1, snapshot.VERSION + 1])
def test_a_snapshot_of_another_version_is_refused(story, version):
    data = bytearray(snapshot.cut(story.ledger, 7, story.at_ms))
    data[8] = version
    with pytest.raises(
        snapshot.OtherVersion, match=f"version {version}, this release knows {snapshot.VERSION}"
    ):
        snapshot.read(bytes(data))


@pytest.mark.parametrize("at", [0, 12, 40, -1])
def test_one_wrong_byte_is_noticed(story, at):
    data = bytearray(snapshot.cut(story.ledger, 7, story.at_ms))
    data[at] ^= 0x55
    with pytest.raises((snapshot.Damaged, snapshot.OtherVersion)):
        snapshot.read(bytes(data))


@pytest.mark.parametrize("length", [0, 10, 38, 100])
def test_a_torn_snapshot_is_noticed(story, length):
    with pytest.raises(snapshot.Damaged):
        snapshot.read(snapshot.cut(story.ledger, 7, story.at_ms)[:length])


def test_names_say_where_a_snapshot_stands():
    assert snapshot.commit_of(snapshot.name_of(123)) == 123
    assert snapshot.commit_of("something-else") is None
    assert max(snapshot.name_of(99), snapshot.name_of(1000)) == snapshot.name_of(1000)


def test_a_finished_task_costs_less_than_a_kilobyte(story):
    story.tell(
        job(9, "/many", 1000), *(change for index in range(1000) for change in done(9, index))
    )
    story.tell(JobMoved(9, JobState.SUCCEEDED, Cause.EXITED))
    tasks = story.ledger.jobs[9].tasks
    assert isinstance(tasks, CompactedTasks)
    assert len(tasks.data) / 1000 < 150
    assert len(msgspec.msgpack.decode(tasks.data)) == 1000
