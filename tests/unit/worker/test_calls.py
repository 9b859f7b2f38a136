"""What a call of a map is given on its host, and what is taken of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from iris_core import codec, subjects
from iris_core.admission.archive_paths import InvalidArchive
from iris_core.messages.gateway_worker import CallResult, CallResults
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import Ended
from iris_core.spec.calls import Calls, inline
from iris_core.states import Cause
from iris_worker.attempt.calls.files import CallFiles, entry, table
from iris_worker.attempt.calls.result import is_stored, read_result, result_of
from iris_worker.attempt.output.logs import OutputLogs
from iris_worker.attempt.slots.workspaces import Workspaces

REF = AttemptRef(7, 3, 1)
EXITED = Ended(Cause.EXITED, 0)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    (tmp_path / "work/.iris-call").mkdir(parents=True)
    return tmp_path / "work"


def test_a_call_is_given_its_own_arguments_and_no_others(tmp_path: Path, workdir: Path):
    first, second = table([b"zero", b"one"]), table([b"two"])
    files = CallFiles(tmp_path / "calls")
    for data in (b"runner", b"function", first, second):
        files.add(digest(data), data)
    calls = Calls(
        runner=digest(b"runner"),
        function=digest(b"function"),
        segments=(digest(first), digest(second)),
        firsts=(0, 2),
        count=3,
    )

    for index, expected in enumerate((b"zero", b"one", b"two")):
        files.give(calls, index, str(workdir))
        assert entry(str(workdir / ".iris-call/items"), 0) == expected
    assert (workdir / ".iris-call/run.py").read_bytes() == b"runner"
    with pytest.raises(InvalidArchive, match="no entry 1"):
        files.give(calls, 3, str(workdir))


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_a_bundle_may_have_anything_where_the_arguments_are(tmp_path: Path, kind: str):
    files, place = CallFiles(tmp_path / "calls"), tmp_path / "work" / ".iris-call"
    for data in (b"runner", b"function"):
        files.add(digest(data), data)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    if kind == "directory":
        (place / "run.py" / "below").mkdir(parents=True)
    elif kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.touch()
    segment = inline(table([b"zero"]))
    calls = Calls(
        runner=digest(b"runner"),
        function=digest(b"function"),
        segments=(segment,),
        firsts=(0,),
        count=1,
    )
    files.give(calls, 0, str(tmp_path / "work"))
    assert (entry(str(place / "items"), 0), list((tmp_path / "elsewhere").iterdir())) == (
        b"zero",
        [],
    )


def test_small_arguments_come_with_the_order(tmp_path: Path, workdir: Path):
    files = CallFiles(tmp_path / "calls")
    for data in (b"runner", b"function"):
        files.add(digest(data), data)
    inside = inline(table([b"zero", b"one"]))
    calls = Calls(
        runner=digest(b"runner"),
        function=digest(b"function"),
        segments=(inside,),
        firsts=(0,),
        count=2,
    )
    files.give(calls, 1, str(workdir))
    assert entry(str(workdir / ".iris-call/items"), 0) == b"one"
    with pytest.raises(InvalidArchive, match="no entry 2"):
        files.give(calls, 2, str(workdir))


def test_a_file_with_another_digest_is_refused_and_the_oldest_are_deleted(tmp_path: Path):
    files = CallFiles(tmp_path / "calls", limit=10)
    with pytest.raises(InvalidArchive, match="its digest is"):
        files.add("0" * 64, b"data")
    for data in (b"aaaa", b"bbbb"):
        files.add(digest(data), data)
    assert files.has(digest(b"aaaa"))  # now the most recently used
    files.add(digest(b"cccc"), b"cccc")

    assert [files.has(digest(data)) for data in (b"aaaa", b"bbbb", b"cccc")] == [True, False, True]
    again = CallFiles(tmp_path / "calls", limit=10)
    assert [again.has(digest(data)) for data in (b"aaaa", b"bbbb", b"cccc")] == [True, False, True]


def test_a_file_that_a_call_is_about_to_be_given_is_kept(tmp_path: Path):
    files = CallFiles(tmp_path / "calls", limit=10)
    held, other, last = b"aaaa", b"bbbbbbbb", b"cccc"
    files.add(digest(held), held)
    with files.holds.hold(digest(held)):
        files.add(digest(other), other)
        assert len(list((tmp_path / "calls").iterdir())) == 2
    files.add(digest(last), last)
    assert [path.name for path in (tmp_path / "calls").iterdir()] == [digest(last)]


def test_a_result_is_what_the_runner_wrote(workdir: Path):
    (workdir / ".iris-call/result").write_bytes(b"vpickle")
    assert result_of(REF, read_result(str(workdir)), EXITED) == CallResult(
        3, 1, "value", b"pickle", Cause.EXITED, 0
    )
    (workdir / ".iris-call/result").write_bytes(b"E")
    assert is_stored(read_result(str(workdir)))
    assert result_of(REF, read_result(str(workdir)), EXITED) == CallResult(
        3, 1, "error", b"", Cause.EXITED, 0, stored=True
    )


@pytest.mark.parametrize("content", [None, b"", b"?", b"v" + b"x" * 65_537])
def test_without_a_result_that_is_one_the_end_of_the_process_is_it(
    workdir: Path, content: bytes | None
):
    if content is not None:
        (workdir / ".iris-call/result").write_bytes(content)
    killed = Ended(Cause.EXITED, None, 9, "memory limit 1MiB reached")
    assert result_of(REF, read_result(str(workdir)), killed) == CallResult(
        *(3, 1, "died", b"", Cause.EXITED, None, 9), error="memory limit 1MiB reached"
    )


def test_no_link_of_a_task_is_followed(tmp_path: Path, workdir: Path):
    (tmp_path / "result").write_bytes(b"vsecret")
    (workdir / ".iris-call/result").symlink_to(tmp_path / "result")
    assert result_of(REF, read_result(str(workdir)), EXITED).kind == "died"
    (workdir / ".iris-call/result").unlink()
    (workdir / ".iris-call").rmdir()
    (workdir / ".iris-call").symlink_to(tmp_path)
    assert result_of(REF, read_result(str(workdir)), EXITED).kind == "died"


@pytest.mark.needs("root")
def test_a_file_of_another_user_is_no_result(workdir: Path):
    (workdir / ".iris-call/result").write_bytes(b"vsecret")
    os.chown(workdir, 12345, 12345)
    assert result_of(REF, read_result(str(workdir)), EXITED).kind == "died"


def test_results_of_many_calls_share_messages(tmp_path: Path):
    logs, slots = OutputLogs("w0"), Workspaces(tmp_path, str(tmp_path))
    sizes = [10, 10, 60_000, 60_000, 60_000, 60_000, 60_000]
    for index, size in enumerate(sizes):
        ref = AttemptRef(7, index, 0)
        logs.follow(slots.take(ref), 0.0)
        assert not logs.finish(ref, CallResult(index, 0, "value", b"x" * size, Cause.EXITED, 0))
    batch = logs.collect(0.0, 0)

    assert [subject for subject, _ in batch.messages] == [subjects.results("w0", 7)] * 2
    parts = [codec.unpack(data, CallResults) for _, data in batch.messages]
    assert [[len(result.data) for result in part.results] for part in parts] == [
        sizes[:6],
        sizes[6:],
    ]
    assert len(batch.ended) == len(sizes)
