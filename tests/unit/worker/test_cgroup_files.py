"""What is written into control groups for limits, and what is read of them."""

from __future__ import annotations

import pytest

from iris_worker.launcher.cgroups.files import (
    UNIFIED,
    early_files,
    flat_keyed,
    io_bytes,
    late_files,
    own_directories,
    slow_moves,
)

EARLY, LATE = (500, 4096), (512 << 20, 1500)


def test_version_1_weighs_by_shares_and_limits_by_quota_bytes_and_pids():
    assert early_files(*EARLY, 1) | late_files(*LATE, 1) == {
        ("cpu", "cpu.shares"): "512",
        ("pids", "pids.max"): "4096",
        ("cpu", "cpu.cfs_quota_us"): "150000",
        ("memory", "memory.limit_in_bytes"): "536870912",
    }


def test_version_2_weighs_by_weight_and_limits_by_quota_bytes_and_pids():
    assert early_files(*EARLY, 2) | late_files(*LATE, 2) == {
        ("cpu", "cpu.weight"): "20",
        ("pids", "pids.max"): "4096",
        ("cpu", "cpu.max"): "150000 100000",
        ("memory", "memory.max"): "536870912",
    }


def test_what_was_not_requested_is_not_limited():
    assert (early_files(0, 0, 1), late_files(0, 0, 1)) == (
        {("cpu", "cpu.shares"): "2", ("pids", "pids.max"): "max"},
        {("cpu", "cpu.cfs_quota_us"): "-1", ("memory", "memory.limit_in_bytes"): "-1"},
    )
    assert (early_files(0, 0, 2), late_files(0, 0, 2)) == (
        {("cpu", "cpu.weight"): "1", ("pids", "pids.max"): "max"},
        {("cpu", "cpu.max"): "max 100000", ("memory", "memory.max"): "max"},
    )


@pytest.mark.parametrize(
    ("millis", "shares", "weight"), [(1, 2, 1), (1000, 1024, 39), (10_000_000, 262_144, 10_000)]
)
def test_the_weight_of_any_request_is_one_that_the_kernel_takes(
    millis: int, shares: int, weight: int
):
    assert early_files(millis, 0, 1)["cpu", "cpu.shares"] == str(shares)
    assert early_files(millis, 0, 2)["cpu", "cpu.weight"] == str(weight)


def test_a_quota_is_never_less_than_the_kernel_takes():
    assert late_files(0, 1, 1)["cpu", "cpu.cfs_quota_us"] == "1000"


def test_kills_for_memory_are_read_in_both_versions():
    assert flat_keyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")["oom_kill"] == 3
    assert (
        flat_keyed("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n")["oom_kill"] == 1
    )
    assert flat_keyed("") == {}


def test_input_and_output_of_all_devices_are_added():
    text = "8:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n253:0 rbytes=1 wbytes=2 rios=1 wios=1\n7:0\n"
    assert io_bytes(text) == (101, 22)
    assert io_bytes("") == (0, 0)


def test_a_process_of_a_host_with_version_1_is_found_in_each_hierarchy():
    mounts = (
        "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
        "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
    )
    member = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/system.slice\n0::/\n"
    assert own_directories(mounts, member) == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct/system.slice",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/system.slice",
        "memory": "/sys/fs/cgroup/memory/a/b",
        UNIFIED: "/sys/fs/cgroup/unified",
    }


def test_a_process_in_a_container_is_found_below_what_the_container_sees():
    mounts = "32 31 0:29 /docker/c1 /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw,nsdelegate\n"
    assert own_directories(mounts, "0::/docker/c1/worker\n") == {UNIFIED: "/sys/fs/cgroup/worker"}
    assert own_directories(mounts, "0::/docker/c10\n") == {}
    assert own_directories(mounts, "0::/../other\n") == {}


def test_a_mount_without_a_source_is_passed_over():
    mounts = (
        "30 20 0:26 / /mnt rw - tmpfs  rw\n31 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    )
    assert own_directories(mounts, "0::/\n") == {UNIFIED: "/sys/fs/cgroup"}


@pytest.mark.parametrize(
    ("options", "release", "found"),
    [
        ("rw", "6.8.0-45-generic", "/sys/fs/cgroup/unified"),
        ("rw,nsdelegate", "6.1", "/sys/fs/cgroup/unified"),
        ("rw,nsdelegate,favordynmods", "6.8.0", ""),
        ("rw", "5.15.0-91-generic", ""),
    ],
)
def test_moves_are_slow_where_version_2_beside_version_1_lacks_an_option(
    options: str, release: str, found: str
):
    unified = f"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 {options}\n"
    memory = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup  rw,memory\n"
    named = "36 31 0:33 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
    assert slow_moves(named + memory + unified, release) == found
    assert (
        slow_moves(named + unified, release)
        == slow_moves(memory, release)
        == slow_moves("", release)
        == ""
    )
