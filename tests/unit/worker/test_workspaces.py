"""Directories of attempts: new for each, below that of a slot, which stays."""

from __future__ import annotations

import os
import shutil
import subprocess
import tracemalloc
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.slots.error_file import ERROR_FILE, read_error_file
from iris_worker.attempt.slots.workspaces import Workspaces, write_token
from iris_worker.data_directory import data_id
from tests.support.descriptors import open_descriptors

A, B = AttemptRef(1, 0, 0), AttemptRef(2, 0, 0)


def of(root: Path) -> Workspaces:
    """Those of a worker, with tokens in a place of the test's own."""
    return Workspaces(root, memory=str(root))


@pytest.fixture
def slots(tmp_path: Path) -> Workspaces:
    made = of(tmp_path)
    made.begin(set(), set())
    return made


def test_a_slot_that_was_left_clean_serves_the_next_attempt(slots: Workspaces):
    first = slots.take(A)
    slots.clean(first)
    slots.give(first)
    again = slots.take(B)
    assert (again.number, again.ref) == (first.number, B)


def test_a_new_slot_is_made_while_others_are_taken(slots: Workspaces):
    assert slots.take(A).workdir != slots.take(B).workdir


@pytest.mark.parametrize("leaves", ["nothing", "a file"])
def test_slots_have_no_higher_numbers_than_attempts_ever_ran_at_once(
    slots: Workspaces, leaves: str
):
    for _ in range(3):
        taken = [slots.take(A) for _ in range(100)]
        assert sorted(slot.number for slot in taken) == list(range(100))
        for slot in taken:
            assert os.listdir(slot.workdir) == []
            if leaves == "a file":
                Path(slot.workdir, "left").touch()
            slots.clean(slot)
            slots.give(slot)


def test_a_new_worker_uses_the_numbers_that_are_free(slots: Workspaces, tmp_path: Path):
    *_, lives = [slots.take(A) for _ in range(4)]
    again = of(tmp_path)
    again.begin({lives.number}, {1})
    assert {again.take(B).number for _ in range(3)} == {0, 2, 4}


def test_the_number_of_a_slot_that_cannot_be_emptied_is_not_reused(slots: Workspaces):
    slot = slots.take(A)
    Path(slot.workdir, "left").touch()
    slot.broken = True
    slots.give(slot)
    assert slots.take(B).number != slot.number


@pytest.mark.parametrize("round_", [0, 1, 2])
async def test_nothing_an_attempt_leaves_is_there_for_the_next(
    slots: Workspaces, tmp_path: Path, round_: int
):
    for _ in range(round_):
        slot = slots.take(A)
        slots.clean(slot)
        slots.give(slot)
    slot = slots.take(A)
    Path(slot.workdir, "left").touch()
    os.write(slot.out, b"words")
    slots.clean(slot)
    slots.give(slot)
    again = slots.take(B)
    assert os.listdir(again.workdir) == []
    assert os.pread(again.out, 10, 0) == b""
    await slots.trash.empty(lambda: True)
    assert os.listdir(tmp_path / "trash") == []


def test_only_the_directory_of_its_slot_is_used_again_after_an_attempt(slots: Workspaces):
    slot = slots.take(A)
    write_token(slot, "old")
    kept = [os.dup(fd) for fd in (slot.out, slot.err)]
    kept += [os.open(path, os.O_RDONLY) for path in (slot.workdir, slot.given)]
    above = [os.stat(os.path.dirname(path)).st_ino for path in (slot.workdir, slot.given)]
    slots.clean(slot)
    slots.give(slot)
    again = slots.take(B)
    write_token(again, "new")
    os.write(again.out, b"private")
    assert [os.stat(os.path.dirname(path)).st_ino for path in (again.workdir, again.given)] == above
    now = [os.fstat(again.out), os.fstat(again.err), os.stat(again.workdir), os.stat(again.given)]
    for fd, present in zip(kept, now, strict=True):
        assert not os.path.samestat(os.fstat(fd), present)
        os.close(fd)


def test_nobody_else_lists_or_changes_the_parents_of_an_attempt_directory(slots: Workspaces):
    slot = slots.take(A)
    above = [os.stat(os.path.dirname(path)) for path in (slot.workdir, slot.given)]
    assert [(found.st_mode & 0o777, found.st_uid) for found in above] == [(0o711, os.geteuid())] * 2
    assert os.stat(slot.workdir).st_mode & 0o777 == 0o700


async def test_what_a_task_left_is_deleted_however_deep_and_without_rights(
    slots: Workspaces, tmp_path: Path
):
    slot = slots.take(A)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    os.symlink(outside, f"{slot.workdir}/link")
    at = os.open(slot.workdir, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deeper", dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    os.chmod(f"{slot.workdir}/deeper", 0)
    os.chmod(slot.workdir, 0)
    slots.clean(slot)
    await slots.trash.empty(lambda: True)
    assert (os.listdir(tmp_path / "trash"), (outside / "kept").read_text()) == ([], "kept")


async def test_only_what_was_left_before_its_end_was_recorded_is_deleted(
    slots: Workspaces, tmp_path: Path
):
    first, second = slots.take(A), slots.take(B)
    slots.clean(first)

    def record() -> bool:
        slots.clean(second)
        return True

    def left() -> list[bool]:
        """Whether the directory of the first, and of the second, is in the trash."""
        return [any((tmp_path / "trash").glob(f"*.{slot.name}")) for slot in (first, second)]

    await slots.trash.empty(lambda: False)
    assert (left(), slots.trash.waits) == ([True, False], True)
    await slots.trash.empty(record)
    assert (left(), slots.trash.waits) == ([False, True], True)


async def test_a_directory_of_many_files_is_deleted_in_little_memory(slots: Workspaces):
    slot = slots.take(A)
    for number in range(20_000):
        os.mknod(f"{slot.workdir}/{number:0200}")
    slots.clean(slot)
    tracemalloc.start()
    await slots.trash.empty(lambda: True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (slots.trash.waits, most < 1 << 20) == (False, True)


def test_a_directory_that_was_deleted_is_made_again(slots: Workspaces):
    slot = slots.take(A)
    os.rmdir(slot.workdir)
    slots.clean(slot)
    slots.give(slot)
    assert os.path.isdir(slots.take(B).workdir)


def test_a_new_worker_keeps_the_living_and_untold_and_removes_the_rest(
    slots: Workspaces, tmp_path: Path
):
    taken = [slots.take(AttemptRef(1, n, 0)) for n in range(3)]
    again = of(tmp_path)
    again.begin({taken[0].number}, {taken[1].number})
    assert os.listdir(tmp_path / "attempts") == ["0"]
    assert sorted(os.listdir(tmp_path / "output")) == ["0", "1"]
    assert again.take(B).number == 2


def test_the_error_file_is_read_as_one_short_line(slots: Workspaces):
    slot = slots.take(A)
    Path(slot.workdir, ERROR_FILE).write_text("no\n  luck " + "x" * 5000)
    assert read_error_file(slot.workdir).startswith("no luck xxx")
    assert len(read_error_file(slot.workdir)) <= 2000


@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/etc/passwd", path)]
)
def test_an_error_file_that_is_no_file_says_nothing(slots: Workspaces, make):
    slot = slots.take(A)
    make(f"{slot.workdir}/{ERROR_FILE}")
    assert read_error_file(slot.workdir) == ""


@pytest.mark.parametrize("leaves", ["nothing", "a file"])
def test_the_slot_of_an_adopted_attempt_serves_the_next_one(
    slots: Workspaces, tmp_path: Path, leaves: str
):
    adopted = slots.take(A)
    if leaves == "a file":
        Path(adopted.workdir, "left").touch()
    after = of(tmp_path)
    after.begin({adopted.number}, set())
    slot = after.open(A, adopted.number, adopted.directory)
    after.clean(slot)
    after.give(slot)
    again = after.take(B)
    assert (again.number, os.listdir(again.workdir)) == (adopted.number, [])


def test_a_slot_whose_directory_cannot_be_made_leaves_no_open_file(slots: Workspaces):
    os.rmdir(slots.attempts)
    Path(slots.attempts).touch()
    before = open_descriptors()
    with pytest.raises(NotADirectoryError):
        slots.take(A)
    assert open_descriptors() == before
    os.unlink(slots.attempts)
    assert slots.take(B).number == 0


def test_a_token_is_for_its_user_alone(slots: Workspaces):
    slot = slots.take(A)
    for token in ("first", "second"):
        write_token(slot, token)
        assert Path(slot.token_file).read_text() == token
        assert os.stat(slot.token_file).st_mode & 0o777 == 0o400


def test_a_token_is_outside_the_unchanged_directory_of_its_attempt(slots: Workspaces):
    slot = slots.take(A)
    before = os.stat(slot.workdir).st_ctime_ns
    for token in ("first", "second"):
        write_token(slot, token)
    assert (os.listdir(slot.workdir), os.stat(slot.workdir).st_ctime_ns) == ([], before)


def test_a_token_goes_with_its_attempt_and_stays_with_one_that_is_adopted(
    slots: Workspaces, tmp_path: Path
):
    ended, lost, adopted = slots.take(A), slots.take(B), slots.take(AttemptRef(3, 0, 0))
    for slot in (ended, lost, adopted):
        write_token(slot, "t")
    slots.clean(ended)
    assert not Path(ended.token_file).exists()
    after = of(tmp_path)
    after.begin({adopted.number}, set())
    assert os.listdir(after.tokens) == [str(adopted.number)]
    again = after.open(adopted.ref, adopted.number, adopted.directory)
    assert Path(again.token_file).read_text() == "t"
    write_token(again, "renewed")
    assert Path(adopted.token_file).read_text() == "renewed"


def test_a_stopping_worker_leaves_only_the_tokens_of_what_runs_on(slots: Workspaces):
    idle, ended, runs = slots.take(A), slots.take(B), slots.take(AttemptRef(3, 0, 0))
    for slot in (idle, ended, runs):
        write_token(slot, "t")
    for slot in (idle, ended):
        slots.clean(slot)
    slots.give(idle)
    slots.close({runs.below})
    assert os.listdir(slots.tokens) == [str(runs.number)]
    assert Path(runs.token_file).read_text() == "t"
    slots.clean(runs)
    slots.close()
    assert not os.path.exists(slots.tokens)


def test_no_token_of_an_ended_attempt_is_left_in_a_kept_directory(
    slots: Workspaces,
):
    """As that of a call, which the next call of its map may have."""
    slot = slots.take(A)
    write_token(slot, "t")
    slots.close()
    assert not os.path.exists(slots.tokens)


@pytest.mark.parametrize("umask", [0, 0o077])
def test_users_pass_the_directories_of_tokens_and_change_nothing_there(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        slots = of(tmp_path)
        slot = slots.take(A)
    finally:
        os.umask(before)
    assert [os.stat(path).st_mode & 0o777 for path in (slots.tokens, slot.given)] == [0o711, 0o711]


def test_a_slot_whose_directory_of_tokens_was_deleted_serves_on(slots: Workspaces):
    slot = slots.take(A)
    shutil.rmtree(slots.tokens)
    write_token(slot, "t")
    assert Path(slot.token_file).read_text() == "t"


@pytest.mark.needs("mounts")
def test_it_is_told_when_the_memory_of_tokens_is_full(tmp_path: Path):
    memory = tmp_path / "memory"
    memory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", memory]
    subprocess.run(mount, check=True)
    try:
        slots = Workspaces(tmp_path, memory=str(memory))
        write_token(slots.take(A), "t")
        assert slots.trouble == ""
        with pytest.raises(OSError, match="No space"):
            (memory / "filler").write_bytes(bytes(64 << 10))
        assert slots.trouble == f"tokens: {memory} is full"
        with pytest.raises(OSError, match="No space"):
            write_token(slots.take(B), "t")
    finally:
        subprocess.run(["umount", memory], check=True)


@pytest.mark.needs("root")
@pytest.mark.parametrize(
    "take",
    [
        lambda path: os.symlink("/tmp", path),
        lambda path: Path(path).touch(),
        lambda path: (os.mkdir(path), os.chown(path, 4321, 4321)),
        lambda path: (os.mkdir(path), os.chmod(path, 0o777)),
    ],
)
def test_tokens_are_on_disk_where_their_place_in_memory_is_taken(tmp_path: Path, take):
    place = of(tmp_path).tokens
    assert place == f"{tmp_path}/iris-{data_id(tmp_path)}"
    os.rmdir(place)
    take(place)
    assert of(tmp_path).tokens == f"{tmp_path}/tokens"


def test_tokens_are_on_disk_without_memory_and_for_an_ordinary_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert Workspaces(tmp_path, memory=f"{tmp_path}/none").tokens == f"{tmp_path}/tokens"
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert of(tmp_path).tokens == f"{tmp_path}/tokens"
    assert not list(tmp_path.glob("iris-*"))
