"""The directories of a call that the next one of its job has, and those that it does not have."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris_core import codec
from iris_core.messages.gateway_worker import CallResult, CallResults
from iris_core.messages.message import AttemptRef
from iris_core.messages.state_worker import TaskTemplate
from iris_core.spec.calls import Calls, inline
from iris_core.spec.resources import ResourceRequest
from iris_core.states import Cause
from iris_worker.attempt.calls import given
from iris_worker.attempt.calls.files import CallFiles, entry, table
from iris_worker.attempt.calls.given import is_as_given
from iris_worker.attempt.calls.result import read_result
from iris_worker.attempt.output.logs import OutputLogs
from iris_worker.attempt.slots.workspaces import Workspace, Workspaces, write_given, write_token
from iris_worker.attempt.templates.preloading import leaves_directory

pytestmark = pytest.mark.needs("root")
USER = (12345, 12345)
FIRST, NEXT, OTHER = AttemptRef(7, 0, 0), AttemptRef(7, 1, 0), AttemptRef(8, 0, 0)


class Host:
    """The slots of one worker, and what calls are given there."""

    def __init__(self, root: Path) -> None:
        self.slots = Workspaces(root, memory=str(root))
        self._files = CallFiles(root / "calls")
        runner, function = (self._add(name) for name in (b"runner", b"function"))
        segment = inline(table([b"zero", b"one"]))
        self._calls = Calls(
            runner=runner, function=function, segments=(segment,), firsts=(0,), count=2
        )

    def _add(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self._files.add(digest, data)
        return digest

    def begin(self, ref: AttemptRef) -> Workspace:
        """A call that is about to start."""
        slot = self.slots.take(ref)
        slot.give_files_to(USER)
        slot.files = self._files.give(
            self._calls, ref.index, slot.workdir, slot.owner, slot.files, keeps=True
        )
        slot.give_directory()
        write_token(slot, f"token of {ref.index}")
        return slot

    def end(self, slot: Workspace) -> None:
        """A call has returned, and its slot is passed on."""
        if not self.slots.keep(slot):
            self.slots.clean(slot)
        self.slots.pass_on(slot)
        self.slots.give(slot)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def inode(slot: Workspace) -> int:
    return os.stat(slot.workdir).st_ino


def test_the_next_call_has_the_directories_of_one_that_left_nothing(host: Host):
    first = host.begin(FIRST)
    before = inode(first)
    host.end(first)
    assert not os.path.exists(first.token_file)
    following = host.begin(NEXT)
    place = Path(following.workdir, ".iris-call")

    assert (following.ref, following.number, inode(following)) == (NEXT, first.number, before)
    assert entry(str(place / "items"), 0) == b"one"
    assert Path(following.token_file).read_text() == "token of 1"
    assert (os.fstat(following.out).st_size, os.fstat(following.out).st_uid) == (0, USER[0])


def _file(slot: Workspace) -> None:
    Path(slot.workdir, "left").touch()


def _result(slot: Workspace) -> None:
    """As one of which the launcher was not told."""
    draft = Path(slot.workdir, ".iris-call/result.new")
    draft.write_bytes(b"vpickle")
    os.chown(draft, *USER)
    draft.chmod(0o600)
    draft.rename(draft.with_name("result"))


def _in_call(slot: Workspace) -> None:
    Path(slot.workdir, ".iris-call/left").touch()


def _replaced(slot: Workspace) -> None:
    for name in ("items", "function"):
        path = Path(slot.workdir, ".iris-call", name)
        path.unlink()
        path.write_bytes(b"mine")


def _exchanged(slot: Workspace) -> None:
    place = Path(slot.workdir, ".iris-call")
    (place / "run.py").unlink()
    os.link(place / "function", place / "run.py")


def _closed(slot: Workspace) -> None:
    os.chmod(slot.workdir, 0o500)


def _closed_call(slot: Workspace) -> None:
    os.chmod(f"{slot.workdir}/.iris-call", 0o777)


def _moved(slot: Workspace) -> None:
    place = Path(slot.workdir, ".iris-call")
    place.rename(f"{slot.workdir}/../elsewhere")
    place.symlink_to(f"{slot.workdir}/../elsewhere")


def _told(slot: Workspace) -> None:
    write_given(slot, "notice", "")


def settle(slot: Workspace) -> None:
    """Have its directories looked at once when the last change of them is over: within some ticks
    of the clock.
    """
    for _ in range(1_000_000):
        slot.files.put(b"x")
        assert is_as_given(slot, slot.files)
        if len(slot.files.listed) == 2:
            return
    raise AssertionError("this file system tells no times")


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize(
    "leaves",
    [_file, _result, _in_call, _replaced, _exchanged, _closed, _closed_call, _moved, _told],
    ids=lambda f: f.__name__,
)
def test_the_next_call_has_new_directories_after_one_that_left_something(
    host: Host, monkeypatch: pytest.MonkeyPatch, leaves: Callable[[Workspace], None], settled: bool
):
    first = host.begin(FIRST)
    before = inode(first)
    if settled:
        monkeypatch.setattr(given, "SETTLED_NS", 0)
        settle(first)
    leaves(first)
    host.end(first)
    following = host.begin(NEXT)

    assert inode(following) != before
    assert sorted(os.listdir(following.workdir)) == [".iris-call"]
    assert sorted(os.listdir(f"{following.workdir}/.iris-call")) == ["function", "items", "run.py"]


def test_calls_that_leave_nothing_all_have_the_directories_of_the_first(host: Host, tmp_path: Path):
    directories = set()
    for ref in (FIRST, NEXT, AttemptRef(7, 0, 1)):
        slot = host.begin(ref)
        directories.add(inode(slot))
        host.end(slot)
    assert len(directories) == 1
    assert list((tmp_path / "trash").iterdir()) == []


def test_an_attempt_of_another_job_has_new_directories(host: Host):
    first = host.begin(FIRST)
    before = inode(first)
    host.end(first)
    other = host.begin(OTHER)
    assert (other.number, inode(other) == before) == (first.number, False)
    assert os.listdir(f"{host.slots.attempts}/{other.number}") == [other.directory]


def test_a_result_in_a_file_is_found_until_its_end_is_recorded(host: Host, tmp_path: Path):
    """The next call has its slot, but was not requested when the worker was killed."""
    first = host.begin(FIRST)
    _result(first)
    host.end(first)
    following = host.begin(NEXT)
    assert read_result(following.workdir) == b""
    after = Workspaces(tmp_path, memory=str(tmp_path))
    after.begin({first.number}, {first.number})
    again = after.open(FIRST, first.number, first.directory)
    after.restore(again)
    assert read_result(again.workdir) == b"vpickle"
    after.clean(again)
    assert not os.path.exists(again.workdir)


async def test_what_no_call_has_is_taken_away(host: Host):
    first = host.begin(FIRST)
    host.end(first)
    host.slots.clean_unused()
    assert os.path.isdir(first.workdir)
    host.slots.clean_unused()
    await host.slots.trash.empty(lambda: True)

    assert not os.path.exists(first.workdir)
    assert not os.path.exists(first.given)
    assert os.listdir(f"{Path(host.slots.attempts).parent}/output/{first.number}") == []


def test_directories_that_have_not_changed_are_not_listed_again(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(given, "SETTLED_NS", 0)
    first = host.begin(FIRST)
    settle(first)
    monkeypatch.delattr(os, "scandir")
    monkeypatch.delattr(os, "listdir")
    host.end(first)
    assert first.kept


@pytest.mark.parametrize("changed_ns", [1_000_000_000, 1_000_000_001])
def test_a_change_that_could_have_the_time_of_the_last_one_is_looked_for(
    host: Host, changed_ns: int
):
    """On some file systems times are of whole seconds."""
    files = host.begin(FIRST).files
    written = os.fstat(files.items).st_mtime_ns
    for at in (changed_ns, written - given.SETTLED_NS, written):
        files.note_listed(SimpleNamespace(st_ino=at, st_ctime_ns=at))
    assert set(files.listed) == {changed_ns} - {1_000_000_000}


@pytest.mark.parametrize("place", ["", ".iris-call"])
def test_of_a_directory_full_of_files_only_the_first_are_read(
    host: Host, monkeypatch: pytest.MonkeyPatch, place: str
):
    """A task may leave millions of them, and the worker waits while they are listed."""
    first = host.begin(FIRST)
    for number in range(100):
        Path(first.workdir, place, f"left-{number}").touch()
    read = 0
    scandir, listdir = os.scandir, os.listdir

    def counted(names: Iterable[Any]) -> Iterator[Any]:
        nonlocal read
        for name in names:
            read += 1
            yield name

    @contextmanager
    def scanned(path: Any) -> Iterator[Iterator[Any]]:
        with scandir(path) as entries:
            yield counted(entries)

    monkeypatch.setattr(os, "scandir", scanned)
    monkeypatch.setattr(os, "listdir", lambda path: list(counted(listdir(path))))
    host.end(first)
    assert (first.kept, read < 10) == (False, True)


def test_a_slot_that_is_reserved_is_left_to_whoever_takes_it(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    """Between both its processes are ended, and what it keeps may not be removable at that
    moment.
    """
    host.end(host.begin(FIRST))
    host.slots.clean_unused()
    number = host.slots.numbers.reserve()

    def fails(slot: Workspace) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(host.slots, "clean", fails)
        host.slots.clean_unused()
    assert host.slots.take(NEXT, number).again


def test_output_that_comes_between_two_calls_is_of_neither(host: Host):
    first = host.begin(FIRST)
    before = inode(first)
    host.end(first)
    os.write(first.err, b"of a process that nobody has found")
    following = host.begin(NEXT)

    assert [os.fstat(file).st_size for file in (following.out, following.err)] == [0, 0]
    assert inode(following) != before


@pytest.mark.parametrize("late", [False, True])
def test_output_files_that_a_template_has_are_not_those_of_the_next_call(host: Host, late: bool):
    """Also where that is found out after its end."""
    first = host.begin(FIRST)
    before = inode(first)
    if late:
        host.end(first)
        assert first.kept
    first.leave_to_nobody()
    if not late:
        host.end(first)
    assert inode(host.begin(NEXT)) != before


def test_what_comes_after_an_attempt_takes_nothing_from_the_next(host: Host):
    first = host.begin(FIRST)
    host.end(first)
    following = host.begin(NEXT)
    write_given(first, "notice", "")
    host.end(following)
    assert following.files is not None
    following.files.put(b"x")


def test_a_slot_is_early_until_an_attempt_is_started_there(host: Host):
    """Otherwise the next worker takes the output and result of the call before for stored, and
    sends neither.
    """
    host.end(host.begin(FIRST))
    discarded = host.begin(OTHER)
    host.slots.clean(discarded)
    host.slots.give(discarded)
    assert host.slots.take(AttemptRef(9, 0, 0)).early


def test_output_of_the_next_call_is_not_stored_as_that_of_the_last(host: Host, tmp_path: Path):
    first = host.begin(FIRST)
    host.end(first)
    logs, after = (
        OutputLogs("w0"),
        Workspaces(tmp_path, memory=str(tmp_path)),
    )  # the worker is restarted
    following = after.open(NEXT, first.number, first.directory)
    os.write(following.out, b"of the next one")
    ended = after.open(FIRST, first.number, first.directory, kept=True)
    logs.follow(ended, 0.0)
    assert not logs.finish(FIRST, CallResult(0, 0, "value", b"v", Cause.EXITED, 0), silent=True)
    [(_, message)] = logs.collect(1.0, 0).messages

    assert codec.unpack(message, CallResults).results[0].index == 0
    after.give(ended)
    assert os.path.exists(f"{tmp_path}/output/{following.below}.out")


@pytest.mark.parametrize(
    ("replicas", "idle_s", "more", "leaves"),
    [
        (2, None, {}, True),
        (1, 30, {}, True),
        (1, None, {}, False),
        (2, None, {"bundle": "a bundle"}, False),
        (2, None, {"output": "out"}, False),
    ],
)
def test_a_directory_is_left_to_the_next_call_of_a_job_only(
    replicas: int, idle_s: int | None, more: dict[str, str], leaves: bool
):
    """A single call would have it looked through for nobody, and the next job would wait until it
    is taken away.
    """
    calls = Calls(
        runner="1" * 64,
        function="2" * 64,
        segments=("3" * 64,),
        firsts=(0,),
        count=1,
        idle_s=idle_s,
    )
    template = TaskTemplate(
        1, "/t", ("python",), {}, replicas, ResourceRequest(), calls=calls, **more
    )
    assert leaves_directory(template) is leaves
