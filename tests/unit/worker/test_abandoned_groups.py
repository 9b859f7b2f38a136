"""Directories of control groups whose launcher has ended, here directories of a file system."""

import fcntl
import os
import threading
from contextlib import contextmanager
from math import inf
from pathlib import Path

from iris_worker.launcher.cgroups.abandoned import (
    AT_ONCE,
    find,
    hold,
    hold_again,
    remove,
    remove_tokens,
)


def test_groups_are_removed_unless_their_launcher_lives(tmp_path: Path):
    held = hold(f"{tmp_path}/iris-1-a", inf)
    for name in ("iris-1-a/0", "iris-1-b/0", "iris-1-b/1"):
        (tmp_path / name).mkdir(parents=True)
    for path in find([str(tmp_path)]):
        remove(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iris-1-a"]
    assert (tmp_path / "iris-1-a/0").exists()
    os.close(held)
    remove(f"{tmp_path}/iris-1-a")
    assert list(tmp_path.iterdir()) == []


def test_a_group_with_a_process_stays_without_its_launcher(tmp_path: Path):
    for name in ("0", "1"):
        (tmp_path / "iris-1-a" / name).mkdir(parents=True)
    (tmp_path / "iris-1-a/1/process").touch()
    remove(f"{tmp_path}/iris-1-a")
    assert [path.name for path in (tmp_path / "iris-1-a").iterdir()] == ["1"]


def test_a_launcher_gets_its_lock_between_two_steps_of_another(tmp_path: Path):
    path = f"{tmp_path}/iris-1-a"
    for number in range(2 * AT_ONCE):
        (tmp_path / "iris-1-a" / str(number)).mkdir(parents=True)
    assert remove(path)
    held = hold(path, until_s=0.0)
    assert not remove(path)
    assert len(os.listdir(path)) == AT_ONCE
    os.close(held)
    assert remove(path)
    assert not remove(path)
    assert not os.path.exists(path)


def test_a_lock_that_was_not_free_is_taken_later(tmp_path: Path):
    path = tmp_path / "iris-1-a"
    path.mkdir()
    other = os.open(path, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    held = hold(str(path), until_s=0.0)
    os.close(other)
    hold_again([held])
    assert not remove(str(path))
    assert path.exists()
    os.close(held)


def test_only_directories_of_launchers_are_found(tmp_path: Path):
    for name in (
        "iris-fe00-1a",
        "iris-test",
        "iris-fe00-1a.scope",
        "iris-1-",
        "init",
        "docker-1-2",
    ):
        (tmp_path / name).mkdir()
    assert find([str(tmp_path)]) == [f"{tmp_path}/iris-fe00-1a"]


@contextmanager
def removed_all_the_time(path: str):
    stop = threading.Event()

    def remove_always() -> None:
        while not stop.is_set():
            remove(path)

    remover = threading.Thread(target=remove_always)
    remover.start()
    try:
        yield
    finally:
        stop.set()
        remover.join()


def test_launchers_hold_what_others_remove_at_the_same_time(tmp_path: Path):
    path = f"{tmp_path}/iris-1-a"
    with removed_all_the_time(path):
        for _ in range(20):
            held = hold(path, inf)
            assert os.path.samestat(os.stat(path), os.fstat(held))
            os.makedirs(f"{path}/0", exist_ok=True)
            os.close(held)


def test_locks_that_are_no_launchers_are_waited_for_only_once(tmp_path: Path):
    names = ("iris-1-a", "iris-1-b")
    others = []
    for name in names:
        (tmp_path / name).mkdir()
        others.append(os.open(tmp_path / name, os.O_RDONLY))
        fcntl.flock(others[-1], fcntl.LOCK_EX)
    held = [hold(f"{tmp_path}/{name}", until_s=0.0) for name in names]
    assert all(map(os.path.samestat, map(os.fstat, held), map(os.fstat, others)))
    for fd in (*held, *others):
        os.close(fd)


def test_a_directory_that_is_removed_after_the_wait_is_made_again(tmp_path: Path):
    path = f"{tmp_path}/iris-1-a"
    with removed_all_the_time(path):
        for _ in range(20):
            os.close(hold(path, until_s=0.0))


def test_what_cannot_be_read_or_removed_stays_for_the_next_launcher(tmp_path: Path):
    (tmp_path / "iris-1-a").mkdir()
    (tmp_path / "iris-1-b").touch()  # not a directory, so it cannot be opened as one
    for path in find([f"{tmp_path}/gone", str(tmp_path)]):
        remove(path)
    assert [path.name for path in tmp_path.iterdir()] == ["iris-1-b"]


def test_tokens_are_removed_with_the_groups_of_their_worker(tmp_path: Path):
    groups, memory = tmp_path / "groups", tmp_path / "memory"
    for name in ("iris-1-a/0", "iris-1-b/0", "iris-1-c/0"):
        (groups / name).mkdir(parents=True)
        (memory / name).mkdir(parents=True)
        (memory / name / "token").touch()
    (groups / "iris-1-b/0/process").touch()
    held = hold(f"{memory}/iris-1-c", inf)  # as a worker does whose launcher is not there
    for path in find([str(groups)]):
        remove(path, str(memory))
    assert sorted(path.name for path in groups.iterdir()) == ["iris-1-b"]
    assert sorted(path.name for path in memory.iterdir()) == ["iris-1-b", "iris-1-c"]
    os.close(held)
    remove_tokens(f"{memory}/iris-1-c")
    assert [path.name for path in memory.iterdir()] == ["iris-1-b"]


def test_only_what_a_worker_has_made_is_removed_as_tokens(tmp_path: Path):
    (tmp_path / "other").mkdir()
    (tmp_path / "iris-1-a").symlink_to(tmp_path / "other")
    for name in ("iris-1-a", "iris-1-b"):
        remove_tokens(f"{tmp_path}/{name}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iris-1-a", "other"]
