"""Which environments stay on disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.attempt.builds.store import EnvironmentStore
from iris_worker.limits import EnvironmentLimits

A, B = AttemptRef(1, 0, 0), AttemptRef(2, 0, 0)


def opened(root: Path, count: int = 2, size: int = 1 << 30) -> EnvironmentStore:
    return EnvironmentStore(root, EnvironmentLimits(count, size), shutil.rmtree)


def built(
    store: EnvironmentStore, key: str, at_s: int = 0, size: int = 10, user: str = "ada"
) -> str:
    """Publish an environment of one file, last used at a time."""
    directory = store.new()
    Path(store.path(directory), "file").write_bytes(b"x" * size)
    store.publish(key, directory, store.seal(directory), user)
    os.utime(Path(store.path("")) / f"{key}.json", (at_s, at_s))
    return directory


def test_published_builds_are_found_later_and_unpublished_ones_deleted(tmp_path: Path):
    store = opened(tmp_path)
    kept, unfinished = built(store, "a"), store.new()
    again = opened(tmp_path)
    again.begin([])
    assert (again.find("a"), again.find("b")) == (kept, None)
    assert not Path(again.path(unfinished)).exists()


def test_a_build_still_running_for_the_last_worker_is_not_deleted(tmp_path: Path):
    directory = opened(tmp_path).new()
    store = opened(tmp_path)
    store.begin([(A, directory)])
    assert Path(store.path(directory)).exists()
    assert store.used_by(A) == directory


def test_the_least_recently_used_is_deleted_first(tmp_path: Path):
    store = opened(tmp_path)
    first, second = built(store, "a", 1), built(store, "b", 2)
    assert store.find("a") == first  # used now
    third = built(store, "c", 3)
    assert [store.find(key) for key in "abc"] == [first, None, third]
    assert not Path(store.path(second)).exists()


def test_what_an_attempt_uses_is_kept_until_it_has_ended(tmp_path: Path):
    store = opened(tmp_path, count=1)
    first = built(store, "a", 1)
    store.use(A, first)
    store.use(B, first)
    store.release(B)
    built(store, "b", 2)
    assert store.find("a") == first
    store.release(A)
    last = built(store, "c", 4_000_000_000)
    assert [store.find(key) for key in "abc"] == [None, None, last]


@pytest.mark.parametrize(("size", "left"), [(25, "bc"), (15, "c"), (5, "c")])
def test_the_bytes_of_all_are_limited_and_the_newest_is_kept_in_any_case(
    tmp_path: Path, size: int, left: str
):
    store = opened(tmp_path, count=9, size=size)
    for at_s, key in enumerate("abc"):
        built(store, key, at_s)
    assert "".join(key for key in "abc" if store.find(key)) == left


def test_a_key_whose_directory_is_gone_is_built_again(tmp_path: Path):
    store = opened(tmp_path)
    shutil.rmtree(store.path(built(store, "a")))
    assert store.find("a") is None


def test_a_finished_build_is_readable_by_all_and_changeable_by_none(tmp_path: Path):
    store = opened(tmp_path / "environments")
    place = Path(store.path(store.new()))
    (place / "private").mkdir(mode=0o700)
    (place / "private" / "file").write_text("12345")
    (place / "program").write_text("123")
    (place / "link").symlink_to("/etc/passwd")
    (tmp_path / "elsewhere").write_text("1")
    os.link(tmp_path / "elsewhere", place / "named")
    for path, mode in {"private/file": 0o600, "program": 0o6777, "named": 0o666}.items():
        (place / path).chmod(mode)
    before = Path("/etc/passwd").stat().st_mode

    assert store.seal(place.name) == 5 + 3 + 1 + len("/etc/passwd")
    modes = {
        path: (place / path).lstat().st_mode & 0o7777
        for path in ("private", "private/file", "program", "named")
    }
    assert modes == {"private": 0o755, "private/file": 0o644, "program": 0o755, "named": 0o666}
    assert Path("/etc/passwd").stat().st_mode == before


@pytest.mark.needs("root")
def test_linked_files_of_the_builder_are_taken_from_it(tmp_path: Path):
    """A later task may run as the same user of the pool, for somebody else."""
    store = opened(tmp_path / "environments")
    place, builder, other = Path(store.path(directory := store.new())), 54321, 54322
    for name, owner in {"cached": builder, "foreign": other, "own": 0}.items():
        (tmp_path / name).touch(0o666)
        (tmp_path / name).chmod(0o666)
        os.chown(tmp_path / name, owner, owner)
        os.link(tmp_path / name, place / name)
    os.chown(place, builder, builder)

    store.seal(directory)
    found = {name: (place / name).stat() for name in ("cached", "foreign", "own")}
    assert {name: (one.st_uid, one.st_mode & 0o777) for name, one in found.items()} == {
        "cached": (0, 0o644),
        "foreign": (other, 0o666),
        "own": (0, 0o666),
    }


def test_a_build_may_have_directories_of_any_depth(tmp_path: Path):
    store = opened(tmp_path)
    here = place = Path(store.path(directory := store.new()))
    for _ in range(1500):
        here /= "d"
        here.mkdir()
    (here / "file").write_text("12345")
    try:
        assert store.seal(directory) == 5
    finally:  # no recursive removal could take them away
        (here / "file").unlink()
        while here != place:
            here.rmdir()
            here = here.parent
