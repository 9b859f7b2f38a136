"""Which users of a host the tasks of each of its workers have."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_service.settings import BadSetting
from iris_worker.attempt.slots import task_users
from iris_worker.attempt.slots.task_users import TaskUsers, UserPool, take_users
from iris_worker.launcher.rescue import MODULE

pytestmark = pytest.mark.needs("root")
POOL = UserPool(range(5_000, 5_040), share=10)


class Host:
    """Workers with data directories of their own on one host."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._locks: set[int] = set()

    def root(self, worker: str) -> Path:
        root = self._place / worker
        root.mkdir(exist_ok=True)
        return root

    async def take(self, worker: str, pool: UserPool = POOL) -> TaskUsers:
        taken = await take_users(pool, self.root(worker), self._place / "run")
        self._locks.add(taken.lock)
        return taken

    def end(self, taken: TaskUsers) -> None:
        """As the end of the worker that has taken them."""
        self._locks.remove(taken.lock)
        os.close(taken.lock)

    def end_all(self) -> None:
        for lock in self._locks - {-1}:
            os.close(lock)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.end_all()


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_users, "_WAIT_S", 0.0)


async def test_no_two_workers_of_a_host_have_a_user_in_common(host: Host):
    found = [await host.take(f"w{number}") for number in range(4)]
    assert {user for one in found for user in one.users} == set(POOL.users)


async def test_a_worker_for_whom_no_users_are_left_is_refused(host: Host):
    for number in range(4):
        await host.take(f"w{number}")
    with pytest.raises(BadSetting, match=r"no users are left on this host .* 5000 to 5039"):
        await host.take("w4")


async def test_pools_of_two_settings_that_overlap_are_not_both_given(host: Host):
    await host.take("a", UserPool(range(5_000, 5_010), share=10))
    with pytest.raises(BadSetting, match="5009 to 5012"):
        await host.take("b", UserPool(range(5_009, 5_013), share=4))
    await host.take("c", UserPool(range(5_010, 5_013), share=3))


async def test_a_worker_has_the_users_of_its_last_start_when_they_are_free(host: Host):
    wanted = await host.take("a")
    host.end(wanted)
    other = await host.take("b", UserPool(wanted.users, share=10))
    before = await host.take("a")
    host.end(other)
    host.end(before)
    assert (await host.take("a")).users == before.users != wanted.users


async def test_a_worker_whose_users_another_has_taken_gets_others(host: Host):
    before = await host.take("a", UserPool(POOL.users[:10], share=10))
    host.end(before)
    await host.take("b", UserPool(before.users, share=10))
    assert not set((await host.take("a")).users) & set(before.users)


async def test_a_worker_has_the_users_that_its_launcher_holds(host: Host):
    before = await host.take("a")
    words = ("-c", "import sys; print(flush=True); sys.stdin.read()", MODULE, str(host.root("a")))
    with subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[before.lock],
    ) as launcher:
        assert launcher.stdout is not None
        launcher.stdout.readline()
        host.end(before)
        assert await host.take("a") == TaskUsers(before.users)
        found = [await host.take(f"w{number}") for number in range(3)]
        assert not {user for one in found for user in one.users} & set(before.users)
        launcher.communicate()


async def test_a_directory_that_others_may_write_to_is_refused(host: Host, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(BadSetting, match="that only root may write to"):
        await host.take("a")


async def test_a_directory_that_cannot_be_made_is_refused(host: Host, tmp_path: Path):
    (tmp_path / "run").write_text("")
    with pytest.raises(BadSetting, match="where the workers of a host lock the users"):
        await host.take("a")


_READ_ONLY = """
import asyncio, sys
from pathlib import Path
from iris_worker.attempt.slots.task_users import UserPool, take_users

pool = UserPool(range(5_000, 5_040), share=10)
asyncio.run(take_users(pool, Path(sys.argv[1]), Path(sys.argv[2], "run", "iris")))
"""


@pytest.mark.needs("mounts")
def test_a_read_only_root_is_refused_with_its_remedy(tmp_path: Path):
    mount = f"mount -t tmpfs -o ro none '{tmp_path}/root' && exec \"$@\""
    for place in ("root", "data"):
        (tmp_path / place).mkdir()
    taking = [sys.executable, "-c", _READ_ONLY, tmp_path / "data", tmp_path / "root"]
    words = ["unshare", "--mount", "sh", "-c", mount, "sh", *taking]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert f"mount a tmpfs at {tmp_path}/root/run, the same for all" in refused.stderr
