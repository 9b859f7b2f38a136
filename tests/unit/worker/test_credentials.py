"""A thread takes another user, and no other thread of its process does."""

from __future__ import annotations

import os
import threading

import pytest

from iris_worker.launcher.kernel import credentials
from iris_worker.launcher.kernel.namespaces import in_thread

pytestmark = pytest.mark.needs("root")
Found = tuple[tuple[int, int, int], tuple[int, int, int], list[int]]


def own() -> Found:
    return os.getresuid(), os.getresgid(), os.getgroups()


def users_of(thread: int) -> list[str]:
    with open(f"/proc/self/task/{thread}/status", encoding="ascii") as lines:
        return [line.split(":")[1].strip() for line in lines if line.startswith(("Uid:", "Gid:"))]


def test_only_the_calling_thread_has_another_user():
    before, others = own(), users_of(threading.get_native_id())

    def other() -> tuple[Found, list[str], Found]:
        groups = os.getgroups()
        credentials.set_further_groups((1003, 1004))
        credentials.set_groups(1001, 1001, 0)
        credentials.set_users(1000, 1000, 0)
        taken, meanwhile = own(), users_of(os.getpid())
        credentials.set_users(0, 0, 0)
        credentials.set_groups(0, 0, 0)
        credentials.set_further_groups(groups)
        return taken, meanwhile, own()

    taken = (1000, 1000, 0), (1001, 1001, 0), [1003, 1004]
    assert in_thread(other, enters=False) == (taken, others, before)
    assert own() == before


def test_what_the_kernel_refuses_is_an_error():
    def other() -> None:
        credentials.set_users(1000, 1000, 1000)
        for change in (credentials.set_users, credentials.set_groups):
            with pytest.raises(PermissionError):
                change(1001, 1001, 1001)
        with pytest.raises(PermissionError):
            credentials.set_further_groups((0,))

    before = own()
    in_thread(other, enters=False)
    assert own() == before


def test_unknown_machines_change_all_threads(monkeypatch: pytest.MonkeyPatch):
    called: list[tuple[int, ...]] = []
    monkeypatch.setattr(credentials, "_numbers", None)
    for name in ("setresuid", "setresgid"):
        monkeypatch.setattr(os, name, lambda *ids: called.append(ids))
    monkeypatch.setattr(os, "setgroups", lambda groups: called.append(tuple(groups)))
    credentials.set_users(1, 2, 3)
    credentials.set_groups(4, 5, 6)
    credentials.set_further_groups((7,))
    assert called == [(1, 2, 3), (4, 5, 6), (7,)]
