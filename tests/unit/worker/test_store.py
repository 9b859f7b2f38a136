"""The process store: what a restarted worker finds of its predecessor."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_core import codec
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended, Stage
from iris_core.spec.jobs import Probe
from iris_core.states import Cause, KernelStatus
from iris_worker.launcher.records.frames import frame
from iris_worker.launcher.records.process_table import StoredProcess
from iris_worker.launcher.records.records import (
    Boot,
    Exit,
    Exited,
    Gone,
    Over,
    Read,
    Spawned,
    Started,
    StoredProbe,
)
from iris_worker.launcher.records.store import ProcessStore

A, B, C = AttemptRef(1, 0, 0), AttemptRef(1, 1, 0), AttemptRef(1, 2, 0)


def started(ref: AttemptRef, slot: int = 0) -> Started:
    return Started(ref, 4711, slot, 10.0, 10.1, 99, None)


def over(ref: AttemptRef) -> Over:
    return Over(Stage(ref, KernelStatus.TERMINATED, 100, Ended(Cause.EXITED, 3)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "processes"


def opened(path: Path, boot: str = "boot") -> tuple[ProcessStore, dict[AttemptRef, StoredProcess]]:
    store = ProcessStore(path, boot)
    store.recover()
    return store, store.table.entries


def test_the_next_worker_finds_what_was_flushed(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.add(Read(A, 5, 7))
    store.add(started(B, slot=1))
    store.add(over(B))
    store.flush()
    store.close()
    _, found = opened(path)
    assert found == {
        A: StoredProcess(started(A), (5, 7)),
        B: StoredProcess(started(B, slot=1), over=over(B).stage),
    }


def test_the_next_worker_finds_where_an_attempt_serves_and_its_probe(path: Path):
    store, _ = opened(path)
    probe = StoredProbe(
        Probe(kind="command", command=("true",)), "http", {"A": "b"}, ((9, 1 << 30),)
    )
    serves = Started(A, 4711, 0, 10.0, 10.1, 99, None, {"http": 31002}, probe)
    store.add(serves)
    store.flush()
    store.close()
    assert opened(path)[1] == {A: StoredProcess(serves)}
    assert opened(path)[1] == {A: StoredProcess(serves)}


def test_the_next_launcher_finds_starting_running_and_ended_processes(path: Path):
    store, _ = opened(path)
    for number, ref in enumerate((A, B, C)):
        store.add(Started(ref, 0, number, 9.0, 0.0, 98, 5000))
    for ref in (B, C):
        store.add(Spawned(ref, 4711, 10.0, 10.1, 99))
    store.add(Exited(C, Exit(7)))
    store.flush()
    runs = [Started(ref, 4711, slot, 10.0, 10.1, 99, 5000) for slot, ref in ((1, B), (2, C))]
    expected = [
        StoredProcess(Started(A, 0, 0, 9.0, 0.0, 98, 5000)),
        StoredProcess(runs[0]),
        StoredProcess(runs[1]),
    ]
    expected[2].exit = Exit(7)
    for _ in range(2):
        assert list(opened(path)[1].values()) == expected


def test_a_store_of_a_worker_that_knew_no_probes_is_read(path: Path):
    old = codec.pack(("started", A, 4711, 0, 10.0, 10.1, 99, None))
    path.write_bytes(frame(Boot("boot")) + len(old).to_bytes(4, "big") + old)
    assert opened(path)[1] == {A: StoredProcess(started(A))}


def test_what_is_acknowledged_is_forgotten(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.add(over(A))
    store.add(Gone((A,)))
    store.flush()
    assert opened(path)[1] == {}


def test_it_survives_any_number_of_restarts(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.flush()
    for _ in range(3):
        _, found = opened(path)
        assert found == {A: StoredProcess(started(A))}


def test_a_torn_last_record_is_what_was_not_written(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.flush()
    whole = path.read_bytes()
    store.add(over(A))
    store.flush()
    longer = path.read_bytes()
    for length in range(len(whole), len(longer)):
        path.write_bytes(longer[:length])
        assert opened(path)[1] == {A: StoredProcess(started(A))}


def test_after_a_reboot_nothing_lives_and_ends_are_still_told(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.add(started(B, slot=1))
    store.add(over(B))
    store.add(started(C, slot=2))
    store.add(Exited(C, Exit(7)))
    store.flush()
    for _ in range(2):
        assert list(opened(path, boot="another")[1]) == [B, C]


def test_output_of_a_slot_that_was_given_on_is_not_read_again(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.add(over(A))
    store.add(started(B))
    store.flush()
    _, found = opened(path)
    assert {ref: entry.reused for ref, entry in found.items()} == {A: True, B: False}


def test_it_does_not_grow_with_what_is_gone(path: Path):
    store, _ = opened(path)
    store.add(started(B, slot=1))
    for number in range(60_000):
        ref = AttemptRef(2, number, 0)
        store.add(started(ref))
        store.add(over(ref))
        store.add(Gone((ref,)))
        if number % 100 == 0:
            store.flush()
    assert path.stat().st_size < 5 << 20
    assert next(iter(opened(path)[1])) == B


def test_what_a_full_disk_refused_is_written_later_without_torn_records(path: Path):
    store, _ = opened(path)
    store.add(started(A))
    store.flush()
    store.add(started(B, slot=1))
    room = path.stat().st_size + 10
    with limited_files(room), pytest.raises(OSError, match=r"File too large|No space"):
        store.flush()
    assert path.stat().st_size == room - 10
    store.flush()
    assert list(opened(path)[1]) == [A, B]


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Writes of this process fail past ``size``, as they do on a full disk."""
    before, handler = (
        resource.getrlimit(resource.RLIMIT_FSIZE),
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
