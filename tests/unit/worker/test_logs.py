"""Shipping of task output to the log stream."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from iris_core import codec, subjects
from iris_core.messages.gateway_worker import CallResult, CallResults, LogChunk, TaskOutput
from iris_core.messages.message import AttemptRef
from iris_core.states import Cause
from iris_worker.attempt.output.logs import Batch, OutputLogs
from iris_worker.attempt.output.quota import CHUNK
from iris_worker.attempt.output.tail import last_lines
from iris_worker.attempt.slots.workspaces import Workspace, Workspaces
from iris_worker.limits import LogLimits

REF = AttemptRef(1, 2, 3)


@pytest.fixture
def slot(tmp_path: Path) -> Iterator[Workspace]:
    slots = Workspaces(tmp_path, memory=str(tmp_path))
    made = slots.take(REF)
    yield made
    slots.give(made)
    slots.close()


def following(slot: Workspace, limits: LogLimits | None = None) -> OutputLogs:
    logs = OutputLogs("w0", limits)
    logs.follow(slot, 0.0)
    return logs


def chunks(batch: Batch) -> list[LogChunk]:
    return [chunk for _, data in batch.messages for chunk in codec.unpack(data, TaskOutput).chunks]


def configured(batch: Batch) -> list[tuple[str, int, bytes, bool]]:
    return [(chunk.stream, chunk.offset, chunk.data, chunk.final) for chunk in chunks(batch)]


def test_both_outputs_are_told_with_their_offsets(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"one\n")
    first = logs.collect(1.0, 1000)
    logs.stored(first)
    os.write(slot.out, b"two\n")
    os.write(slot.err, b"oh\n")
    assert configured(first) == [("stdout", 0, b"one\n", False)]
    assert configured(logs.collect(2.0, 2000)) == [
        ("stdout", 4, b"two\n", False),
        ("stderr", 0, b"oh\n", False),
    ]
    assert first.messages[0][0] == f"iris.log.w0.j{REF.job}.s0"
    assert codec.unpack(first.messages[0][1], TaskOutput).ref == REF


def test_much_output_is_stored_beside_that_of_neighbours(slot: Workspace):
    """So who reads a neighbour reads 64 KiB of it at most."""
    logs = following(slot)
    sent = []
    for line in (b"x" * 65_535 + b"\n", b"y\n", b"z\n"):
        os.write(slot.out, line)
        batch = logs.collect(1.0 + len(sent), 1000)
        logs.stored(batch)
        sent += [subject for subject, _ in batch.messages]
    assert sent == [f"iris.log.w0.j{REF.job}.s0", *2 * [f"iris.log.w0.j{REF.job}.{REF.index}"]]


def test_a_silent_attempt_has_nothing_to_wait_for(slot: Workspace):
    logs = following(slot)
    assert logs.finish(REF)
    assert not logs.is_urgent
    assert len(logs) == 0


def test_output_in_files_that_another_attempt_has_is_not_of_the_one_before(slot: Workspace):
    logs = following(slot)
    assert not logs.finish(REF, CallResult(2, 3, "value", b"v", Cause.EXITED, 0))
    assert logs.is_silent(REF)
    logs.pass_on(REF)
    os.write(slot.out, b"of the next one")
    batch = logs.collect(1.0, 1000)
    [(_, message)] = batch.messages
    assert codec.unpack(message, CallResults).results[0].data == b"v"
    assert [tail.ref for tail in batch.ended] == [REF]


def test_the_end_waits_until_everything_is_stored(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"one\n")
    assert not logs.finish(REF)
    batch = logs.collect(0.0, 0)
    assert configured(batch) == [("stdout", 0, b"one\n", True)]
    assert [tail.ref for tail in batch.ended] == [REF]
    assert logs.is_urgent
    logs.stored(batch)
    assert not logs.is_urgent


def test_output_that_was_told_before_the_end_is_closed_by_an_empty_chunk(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"one\n")
    logs.stored(logs.collect(1.0, 0))
    logs.finish(REF)
    assert configured(logs.collect(1.0, 0)) == [("stdout", 4, b"", True)]


def test_an_attempt_has_one_message_in_a_batch_to_keep_its_order(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"one\n" * CHUNK)
    os.write(slot.err, b"oh\n" * CHUNK)
    assert len(logs.collect(1.0, 0).messages) == 1


def test_large_chunks_end_at_a_line(slot: Workspace):
    logs = following(slot)
    line = b"x" * 999 + b"\n"
    os.write(slot.out, line * 100)
    found = chunks(logs.collect(1.0, 0))
    assert [len(chunk.data) for chunk in found] == [65_000, 35_000]


def test_a_chunk_ends_with_a_whole_letter_until_the_end(slot: Workspace):
    logs = following(slot)
    letter = "漢".encode()
    os.write(slot.out, b"a" + letter[:2])
    os.write(slot.err, b"\x80\xff")
    first = logs.collect(1.0, 1000)
    logs.stored(first)
    os.write(slot.out, letter[2:] + letter[:1])
    second = logs.collect(2.0, 2000)
    logs.stored(second)
    logs.finish(REF)
    assert configured(first) == [
        ("stdout", 0, b"a", False),
        ("stderr", 0, b"\x80\xff", False),
    ]
    assert configured(second) == [("stdout", 1, letter, False)]
    assert configured(logs.collect(3.0, 3000))[0] == ("stdout", 4, letter[:1], True)


def test_output_goes_on_after_a_task_emptied_its_own_file(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"a long line before\n")
    logs.stored(logs.collect(1.0, 0))
    os.ftruncate(slot.out, 0)
    os.write(slot.out, b"after\n")
    assert configured(logs.collect(2.0, 0)) == [("stdout", 19, b"after\n", False)]
    os.ftruncate(slot.out, 0)
    os.write(slot.out, b"more than there was\n")
    logs.finish(REF)
    assert configured(logs.collect(3.0, 0)) == [("stdout", 25, b"more than there was\n", True)]


def test_output_over_the_quota_goes_on_after_a_task_emptied_its_own_file(slot: Workspace):
    logs = OutputLogs("w0", LogLimits(attempt_bytes=100_000))
    logs.follow(slot, 0.0)
    os.write(slot.out, b"line of text\n" * 40_000)
    logs.collect(1.0, 0)
    os.ftruncate(slot.out, 0)
    os.write(slot.out, b"after\n")
    for now_s in (2.0, 12.0, 22.0):
        logs.collect(now_s, 0)
    logs.finish(REF)
    assert configured(logs.collect(23.0, 0)) == [("stdout", 520_000 - 32_768, b"after\n", True)]


def test_files_of_the_largest_size_are_read_to_their_end(slot: Workspace):
    """A task may make its output as large as the file system lets it, again and again."""
    large = Workspace(REF, 0, "", "", "", os.memfd_create("out"), slot.err)
    logs = following(large, LogLimits(attempt_bytes=100_000))
    for now_s in range(1, 9, 2):
        os.ftruncate(large.out, 0)
        os.pwrite(large.out, b"hello\n", 0)
        logs.stored(logs.collect(now_s, 0))
        os.ftruncate(large.out, (1 << 63) - 1)
        logs.stored(logs.collect(now_s + 1, 0))
    logs.finish(REF)
    *_, (stream, offset, _, final) = configured(logs.collect(9.0, 0))
    assert (stream, offset < 1 << 56, final) == ("stdout", True, True)
    os.close(large.out)


def test_where_an_attempt_stands_is_noted_for_the_next_worker(slot: Workspace):
    logs = following(slot)
    os.write(slot.err, b"one\n")
    assert logs.stored(logs.collect(1.0, 0)) == [(REF, 0, 4)]
    logs.finish(REF)
    assert logs.stored(logs.collect(1.0, 0)) == []


def test_an_adopted_attempt_goes_on_where_it_stood(slot: Workspace):
    os.write(slot.out, b"old\nnew\n")
    logs = OutputLogs("w0")
    logs.follow(slot, 0.0, (4, 0))
    assert configured(logs.collect(1.0, 0)) == [("stdout", 4, b"new\n", False)]


def test_a_silent_attempt_is_looked_at_less_and_less(slot: Workspace):
    logs = following(slot)
    tail = logs._live[REF]
    waits = []
    for tick in range(20):
        logs.collect(tick * 1.0, 0)
        waits.append(tail.wait_s)
    assert waits[0] < waits[1] < waits[-1] == 0.4


def test_output_faster_than_the_rate_waits_and_is_not_dropped(slot: Workspace):
    logs = following(slot, LogLimits(bytes_per_s=CHUNK, burst_bytes=2 * CHUNK))
    os.write(slot.out, b"y\n" * (4 * CHUNK))
    first = logs.collect(0.1, 0)
    logs.stored(first)
    assert sum(len(chunk.data) for chunk in chunks(first)) <= 3 * CHUNK
    assert configured(logs.collect(0.3, 0)) == []
    later = logs.collect(10.0, 0)
    logs.stored(later)
    logs.finish(REF)
    rest = logs.collect(10.0, 0)
    found = [*chunks(first), *chunks(later), *chunks(rest)]
    assert b"".join(chunk.data for chunk in found) == b"y\n" * (4 * CHUNK)
    assert sum(chunk.dropped for chunk in found) == 0


def test_output_over_the_limit_is_dropped_where_told_but_for_its_end(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=2 * CHUNK))
    os.write(slot.out, b"y\n" * (4 * CHUNK) + b"the end\n")
    first = logs.collect(0.1, 0)
    logs.stored(first)
    os.write(slot.out, b"after the end\n")
    logs.finish(REF)
    [last] = chunks(logs.collect(1.0, 0))
    kept = sum(len(chunk.data) for chunk in chunks(first))
    assert (kept, last.final, last.limit) == (2 * CHUNK, True, "log_attempt_bytes = 131,072")
    assert last.data.endswith(b"y\nthe end\nafter the end\n")
    assert last.offset == kept + last.dropped
    assert kept + last.dropped + len(last.data) == 8 * CHUNK + len("the end\nafter the end\n")
    assert last.dropped_lines == last.dropped // 2


def test_the_last_lines_are_told_whatever_the_limit(slot: Workspace):
    logs = following(slot, LogLimits(bytes_per_s=0, burst_bytes=0, attempt_bytes=0))
    os.write(slot.out, b"y\n" * (4 * CHUNK) + b"the end\n")
    logs.finish(REF)
    batch = logs.collect(0.0, 0)
    [last] = chunks(batch)
    assert last.final
    assert last.data.endswith(b"y\nthe end\n")
    assert last.dropped + len(last.data) == 8 * CHUNK + len("the end\n")
    assert [tail.dropped for tail in batch.ended] == [last.dropped]


def test_told_output_gives_its_disk_space_back(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=1 << 30, burst_bytes=1 << 30))
    block = os.urandom(1 << 20)
    for _ in range(20):
        os.write(slot.out, block)
    for tick in range(200):
        logs.stored(logs.collect(tick * 1.0, 0))
    seen = os.fstat(slot.out)
    assert seen.st_size == 20 << 20
    assert seen.st_blocks * 512 < 6 << 20


def test_dropped_output_gives_its_disk_space_back_at_once(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=0))
    block = os.urandom(1 << 20)
    for tick in range(60):
        os.write(slot.out, block)
        assert configured(logs.collect(tick * 1.0, 0)) == []
    assert os.fstat(slot.out).st_blocks * 512 < 20 << 20


def test_dropped_output_frees_its_disk_space_while_nothing_is_stored(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=4 << 20))
    block = os.urandom(1 << 20)
    for tick in range(3):
        os.write(slot.out, block)
        logs.collect(tick * 1.0, 0)
    for _ in range(60):
        os.write(slot.out, block)
        logs.accept()
    assert os.fstat(slot.out).st_blocks * 512 < 6 << 20
    assert logs.dropped() == (63 - 4 << 20) - CHUNK // 2


def test_a_few_bytes_at_a_time_are_given_back_too(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=0))
    for _ in range(1000):
        os.write(slot.out, b"y\n" * 500)
        logs.accept()
    assert os.fstat(slot.out).st_blocks * 512 < 64 << 10


def test_a_worker_after_this_one_finds_no_zeros_where_output_was_dropped(slot: Workspace):
    logs = following(slot, LogLimits(attempt_bytes=100_000))
    os.write(slot.out, b"y\n" * 50_000)
    batch = logs.collect(1.0, 0)
    os.write(slot.out, b"y\n" * 500_000 + b"the end\n")
    logs.accept()
    [(_, *positions)] = logs.stored(batch)
    again = OutputLogs("w0", LogLimits(attempt_bytes=100_000))
    again.follow(slot, 0.0, (positions[0], positions[1]))
    os.write(slot.out, b"y\n" * 50_000)
    again.finish(REF)
    found = chunks(again.collect(2.0, 0))
    assert (
        sum(len(chunk.data) + chunk.dropped for chunk in found)
        == 1_000_000 + len("the end\n") + 100_000
    )
    assert b"\0" not in b"".join(chunk.data for chunk in found)
    assert sum(chunk.dropped for chunk in found) > 900_000


def test_output_that_is_given_up_counts_as_dropped(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"stored\n")
    logs.stored(logs.collect(1.0, 0))
    os.write(slot.out, b"not stored\n")
    logs.finish(REF)
    batch = logs.collect(1.0, 0)
    assert logs.forget(REF).dropped == len("not stored\n")
    assert logs.stored(batch) == []


pieces = st.tuples(st.sampled_from(["out", "err"]), st.binary(max_size=300))


@given(writes=st.lists(pieces, max_size=15), data=st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)
def test_whatever_is_sent_twice_readers_get_exactly_what_was_printed(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, bytes]], data: st.DataObject
):
    root = tmp_path_factory.mktemp("logs")
    slots = Workspaces(root, memory=str(root))
    slot = slots.take(REF)
    logs = following(slot)
    got: dict[str, dict[int, bytes]] = {"stdout": {}, "stderr": {}}
    now = 0.0
    finished = False
    for number in range(len(writes) + 4):
        now += 1.0
        if number < len(writes):
            os.write(slot.out if writes[number][0] == "out" else slot.err, writes[number][1])
        elif not finished:
            finished = True
            logs.finish(REF)
        batch = logs.collect(now, 0)
        for _ in range(data.draw(st.integers(1, 2))):
            for chunk in chunks(batch):
                got[chunk.stream][chunk.offset] = chunk.data
        logs.stored(batch)
    for stream, which in (("stdout", "out"), ("stderr", "err")):
        printed = b"".join(text for name, text in writes if name == which)
        assert rebuilt(got[stream]) == printed
    slots.give(slot)
    slots.close()


def rebuilt(pieces: dict[int, bytes]) -> bytes:
    """What a reader makes of chunks that may overlap."""
    whole = b""
    for offset, piece in sorted(pieces.items()):
        assert offset <= len(whole)
        whole = whole[:offset] + piece + whole[offset + len(piece) :]
    return whole


def test_the_end_of_standard_error_is_kept_for_the_record(slot: Workspace):
    os.write(slot.err, b"".join(b"line %d\n" % n for n in range(1000)))
    assert last_lines(slot.err) == "\n".join(f"line {n}" for n in range(980, 1000))


def test_one_endless_line_is_cut(slot: Workspace):
    os.write(slot.err, b"x" * 10_000)
    assert last_lines(slot.err) == "x" * 4096


def test_an_end_and_a_heartbeat_tell_what_an_attempt_takes_in_the_streams(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"x" * 70_000)
    batch = logs.collect(1.0, 1000)
    taken = sum(len(data) + subjects.STORED_MESSAGE_BYTES for _, data in batch.messages)
    assert logs.output_bytes() == {REF.job: taken}
    result = CallResult(REF.index, REF.attempt, "value", b"v" * 100, Cause.EXITED, 0)
    logs.finish(REF, result)
    assert logs.output_bytes() == {}, "the end tells it"
    [tail] = logs.collect(2.0, 2000).ended
    assert tail.output_bytes >= taken
    assert tail.result_bytes == 100 + subjects.STORED_MESSAGE_BYTES


def test_an_attempt_that_has_printed_little_is_not_told_of(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"x" * 7000)
    logs.collect(1.0, 1000)
    assert logs.output_bytes() == {}


def test_of_a_muted_job_only_the_end_of_its_output_is_stored(slot: Workspace):
    logs = following(slot)
    os.write(slot.out, b"before\n")
    assert configured(logs.collect(1.0, 1000)) == [("stdout", 0, b"before\n", False)]
    logs.muted = frozenset({REF.job})
    os.write(slot.out, b"x" * 99_999 + b"\n")
    assert logs.collect(2.0, 2000).messages == []
    logs.finish(REF)
    [last] = chunks(logs.collect(3.0, 3000))
    assert (last.dropped, len(last.data), last.final) == (100_000 - CHUNK // 2, CHUNK // 2, True)
    assert last.limit == "max_stored_today of the quota"


def test_an_attempt_that_prints_nothing_while_it_is_muted_is_not_limited(slot: Workspace):
    logs = following(slot)
    logs.muted = frozenset({REF.job})
    logs.collect(1.0, 1000)
    logs.muted = frozenset()
    os.write(slot.out, b"all of it\n")
    assert configured(logs.collect(2.0, 2000)) == [("stdout", 0, b"all of it\n", False)]
