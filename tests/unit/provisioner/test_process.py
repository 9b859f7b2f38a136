"""The provider `process`: processes that are made once, found again, and end with their slice."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iris_core.codec import Undecodable
from iris_core.messages.state_provisioner import OrderedHost, SliceOrder
from iris_provisioner.providers.process import ProcessProvider, SliceRecord
from iris_provisioner.providers.provider import ListFailed
from iris_provisioner.providers.slot_keys import SlotKeys
from iris_service.slice_processes import RECORD, HostProcess, running_hosts, signal_hosts

HOSTS = (OrderedHost("cpu-0-0"), OrderedHost("cpu-0-1"))


def order(call: str = "create", label: int = 1, **options: Any) -> SliceOrder:
    return SliceOrder(call, "process", options, "cpu", "cpu-0", label, hosts=HOSTS)


class Sleepers(ProcessProvider):
    """Hosts that do nothing.

    Attributes:
        program: runs as the hosts of slices with number 1.
    """

    program = "sleep"

    def _argv(self, record: SliceRecord, host: HostProcess, place: Path) -> Sequence[str]:
        return [self.program if record.label == 1 else "sleep", "600"]


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[Sleepers]:
    provider = Sleepers(tmp_path, SlotKeys(""), {})
    yield provider
    signal_hosts(running_hosts(tmp_path), signal.SIGKILL)
    for process in provider._started.values():
        process.kill()
        process.wait(10)


def pids(provider: ProcessProvider) -> list[int]:
    return [host.pid for record in provider._records() for host in record.hosts]


async def statuses(provider: ProcessProvider, **options: Any) -> list[tuple[str, int, str]]:
    return [(one.name, one.label, one.status) for one in await provider.listed(options)]


async def test_a_slice_is_made_once_however_often_it_is_ordered(sleepers: Sleepers) -> None:
    assert (await sleepers.create(order())).answer == "accepted"
    first = pids(sleepers)
    assert (await sleepers.create(order())).answer == "accepted"
    assert (pids(sleepers), len(first)) == (first, 2)
    assert await statuses(sleepers) == [("cpu-0", 1, "running")]


async def test_the_next_provisioner_finds_what_runs(sleepers: Sleepers, tmp_path: Path) -> None:
    await sleepers.create(order())
    other = Sleepers(tmp_path, SlotKeys(""), {})
    assert await statuses(other) == [("cpu-0", 1, "running")]
    assert (await other.create(order())).answer == "accepted"
    assert pids(other) == pids(sleepers)


async def test_a_deleted_slice_leaves_nothing(sleepers: Sleepers, tmp_path: Path) -> None:
    await sleepers.create(order())
    [record] = sleepers._records()
    assert (await sleepers.delete(order("delete"))).answer == "accepted"
    assert not any(host.runs for host in record.hosts)
    assert await statuses(sleepers) == []
    assert list(tmp_path.iterdir()) == []
    assert (await sleepers.delete(order("delete"))).answer == "accepted"


async def test_another_slice_of_that_name_is_not_touched(sleepers: Sleepers) -> None:
    await sleepers.create(order())
    before = pids(sleepers)
    assert (await sleepers.delete(order("delete", label=2))).answer == "accepted"
    assert (await sleepers.create(order(label=2))).answer == "failed"
    assert (pids(sleepers), await statuses(sleepers)) == (before, [("cpu-0", 1, "running")])


async def test_a_slice_of_which_a_worker_has_ended_has_failed(sleepers: Sleepers) -> None:
    await sleepers.create(order())
    os.killpg(pids(sleepers)[1], signal.SIGKILL)
    sleepers._started[pids(sleepers)[1]].wait(10)
    [found] = await sleepers.listed({})
    assert (found.status, found.detail) == ("failed", "the worker of cpu-0-1 has ended")


def test_a_process_with_the_number_of_an_ended_worker_is_not_taken_for_it() -> None:
    mine = HostProcess("cpu-0-0", pid=os.getpid(), began=1)
    assert not mine.runs
    signal_hosts([mine], signal.SIGKILL)  # this process goes on


async def test_chances_are_the_same_for_the_same_slice(sleepers: Sleepers) -> None:
    assert (await sleepers.create(order(refusal_chance=1))).answer == "exhausted"
    assert await statuses(sleepers, refusal_chance=1) == []
    await sleepers.create(order(boot_failure_chance=1))
    assert await statuses(sleepers, boot_failure_chance=1) == [("cpu-0", 1, "failed")]
    assert pids(sleepers) == [0, 0]


async def test_a_slice_is_taken_away_by_chance(sleepers: Sleepers) -> None:
    options = {"preemption_chance": 1, "preemption_after_s": 0}
    await sleepers.create(order(**options))
    [record] = sleepers._records()
    assert await statuses(sleepers, **options) == [("cpu-0", 1, "preempted")]
    for host in record.hosts:
        sleepers._started[host.pid].wait(10)


async def test_hosts_are_told_before_their_slice_is_taken_away(
    sleepers: Sleepers, tmp_path: Path
) -> None:
    options = {"preemption_chance": 1, "preemption_after_s": 0, "preemption_notice_s": 600}
    await sleepers.create(order(**options))
    assert await statuses(sleepers, **options) == [("cpu-0", 1, "running")]
    told = json.loads((tmp_path / "cpu-0" / "metadata.json").read_text())
    left_s = float(told["attributes"]["iris-notice-s"])
    assert (told["preempted"], 0 < left_s <= 600) == ("TRUE", True)
    [record] = sleepers._records()
    assert all(host.runs for host in record.hosts)
    for host in record.hosts:
        os.killpg(host.pid, signal.SIGKILL)
        sleepers._started[host.pid].wait(10)
    assert await statuses(sleepers, **options) == [("cpu-0", 1, "preempted")]


async def test_a_slice_that_boots_has_no_process_yet(sleepers: Sleepers) -> None:
    await sleepers.create(order(boot_s=600))
    assert await statuses(sleepers, boot_s=600) == [("cpu-0", 1, "creating")]
    assert pids(sleepers) == [0, 0]


async def test_a_slice_that_cannot_be_started_holds_up_no_other(sleepers: Sleepers) -> None:
    sleepers.program = "/nowhere/sleep"
    assert (await sleepers.create(order())).answer == "accepted"
    other = SliceOrder("create", "process", {}, "cpu", "cpu-1", 2, hosts=(OrderedHost("cpu-1-0"),))
    assert (await sleepers.create(other)).answer == "accepted"
    assert await statuses(sleepers) == [("cpu-0", 1, "creating"), ("cpu-1", 2, "running")]
    sleepers.program = "sleep"
    assert await statuses(sleepers) == [("cpu-0", 1, "running"), ("cpu-1", 2, "running")]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open("/dev/null", os.O_RDONLY)
    os.close(first)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_descriptors_no_slice_is_lost(sleepers: Sleepers) -> None:
    await sleepers.create(order())
    [record] = sleepers._records()
    with no_descriptors():
        sleepers.advance()
        with pytest.raises(OSError, match="Too many open files"):
            _ = record.hosts[0].runs  # not: it has ended
        with pytest.raises(ListFailed, match="Too many open files"):
            await sleepers.listed({})
    assert await statuses(sleepers) == [("cpu-0", 1, "running")]


async def test_a_record_that_cannot_be_read_is_no_slice_that_is_gone(
    sleepers: Sleepers, tmp_path: Path
) -> None:
    await sleepers.create(order())
    other = SliceOrder("create", "process", {}, "cpu", "cpu-1", 2, hosts=(OrderedHost("cpu-1-0"),))
    await sleepers.create(other)
    [*hosts] = pids(sleepers)
    record = tmp_path / "cpu-0" / RECORD
    whole = record.read_bytes()
    record.write_bytes(whole[:20])
    with pytest.raises(ListFailed, match="cpu-0"):
        await sleepers.listed({})
    for call in (sleepers.create, sleepers.delete):
        with pytest.raises(Undecodable, match="cpu-0"):
            await call(order())
    os.killpg(hosts[2], signal.SIGKILL)
    sleepers._started[hosts[2]].wait(10)
    sleepers.advance()  # the other one goes on
    record.write_bytes(whole)
    assert await statuses(sleepers) == [("cpu-0", 1, "running"), ("cpu-1", 2, "failed")]
