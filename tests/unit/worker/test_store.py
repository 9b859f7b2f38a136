"""The process store: what a restarted worker finds of its predecessor."""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_core import codec
from iris_core.messages import AttemptRef, Ended, Stage
from iris_core.spec import Probe
from iris_core.states import Cause, KernelStatus
from iris_worker.process.store import Boot, ProcessStore, Started, StoredProbe, StoredProcess, frame

A, B = AttemptRef(1, 0, 0), AttemptRef(1, 1, 0)


def started(ref: AttemptRef, slot: int = 0) -> Started:
    return Started(ref, 4711, slot, 10.0, 10.1, 99, None)


def ended(ref: AttemptRef) -> Stage:
    return Stage(ref, KernelStatus.TERMINATED, 100, Ended(Cause.EXITED, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "processes"


def opened(path: Path, boot: str = "boot") -> tuple[ProcessStore, dict[AttemptRef, StoredProcess]]:
    store = ProcessStore(path, boot)
    return store, store.recover()


def test_the_next_worker_finds_what_was_flushed(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.read_up_to([(A, 5, 7)])
    store.started(started(B, slot=1))
    store.over(ended(B))
    store.flush()
    store.close()
    _, found = opened(path)
    assert found == {A: StoredProcess(started(A), (5, 7)), B: StoredProcess(started(B, slot=1), over=ended(B))}


def test_the_next_worker_finds_where_an_attempt_serves_and_how_it_is_probed(path: Path):
    store, _ = opened(path)
    probe = StoredProbe(Probe(kind="command", command=("true",)), "http", {"A": "b"}, ((9, 1 << 30),))
    serves = Started(A, 4711, 0, 10.0, 10.1, 99, None, {"http": 31002}, probe)
    store.started(serves)
    store.flush()
    store.close()
    assert opened(path)[1] == {A: StoredProcess(serves)}
    assert opened(path)[1] == {A: StoredProcess(serves)}


def test_a_store_of_a_worker_that_knew_no_probes_is_read(path: Path):
    old = codec.pack(("started", A, 4711, 0, 10.0, 10.1, 99, None))
    path.write_bytes(frame(Boot("boot")) + len(old).to_bytes(4, "big") + old)
    assert opened(path)[1] == {A: StoredProcess(started(A))}


def test_what_is_acknowledged_is_forgotten(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.over(ended(A))
    store.gone([A])
    store.flush()
    assert opened(path)[1] == {}


def test_it_survives_any_number_of_restarts(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.flush()
    for _ in range(3):
        _, found = opened(path)
        assert found == {A: StoredProcess(started(A))}


def test_a_torn_last_record_is_what_was_not_written(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.flush()
    whole = path.read_bytes()
    store.over(ended(A))
    store.flush()
    longer = path.read_bytes()
    for length in range(len(whole), len(longer)):
        path.write_bytes(longer[:length])
        assert opened(path)[1] == {A: StoredProcess(started(A))}


def test_after_a_new_start_of_the_host_nothing_lives_but_ends_are_still_told(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.started(started(B, slot=1))
    store.over(ended(B))
    store.flush()
    _, found = opened(path, boot="another")
    assert list(found) == [B]


def test_output_of_a_slot_that_was_given_on_is_not_read_again(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.over(ended(A))
    store.started(started(B))
    store.flush()
    _, found = opened(path)
    assert {ref: entry.reused for ref, entry in found.items()} == {A: True, B: False}


def test_it_does_not_grow_with_what_is_gone(path: Path):
    store, _ = opened(path)
    store.started(started(B, slot=1))
    for number in range(60_000):
        ref = AttemptRef(2, number, 0)
        store.started(started(ref))
        store.over(ended(ref))
        store.gone([ref])
        if number % 100 == 0:
            store.flush()
    assert path.stat().st_size < 5 << 20
    assert next(iter(opened(path)[1])) == B


def test_what_a_full_disk_refused_is_written_later_and_leaves_no_torn_record(path: Path):
    store, _ = opened(path)
    store.started(started(A))
    store.flush()
    store.started(started(B, slot=1))
    room = path.stat().st_size + 10
    with limited_files(room), pytest.raises(OSError, match=r"File too large|No space"):
        store.flush()
    assert path.stat().st_size == room - 10
    store.flush()
    assert list(opened(path)[1]) == [A, B]


@contextlib.contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Writes of this process fail past ``size``, as they do on a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
