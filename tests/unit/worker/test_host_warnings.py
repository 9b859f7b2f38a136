"""What a worker finds misconfigured about itself."""

import shutil
import socket

import pytest

from iris_core.spec.resources import Amount
from iris_worker.host import host, host_warnings
from iris_worker.settings import WorkerSettings

THERE = Amount(cpu_millis=2000, memory_bytes=24 << 30, disk_bytes=1 << 40)
NATS = "nats://10.0.0.1:4222"


@pytest.mark.parametrize(
    ("declared", "address", "nats", "codes"),
    [
        ({}, "10.0.0.2", NATS, set()),
        ({"cpu_millis": 3000}, "10.0.0.2", NATS, set()),
        ({"cpu_millis": 1_000_000}, "10.0.0.2", NATS, {"overdeclared"}),
        ({"memory_bytes": 8 << 40}, "10.0.0.2", NATS, {"overdeclared"}),
        ({}, "127.0.0.1", NATS, {"loopback_address"}),
        ({}, "localhost", "tls://n0:4222,tls://n1:4222", {"loopback_address"}),
        ({}, "127.0.0.1", "nats://127.0.0.1:4222", {"loopback_beside_nats"}),
        ({}, "127.0.0.1", "localhost", {"loopback_beside_nats"}),
        ({}, "10.0.0.2", "localhost", set()),
        ({"disk_bytes": THERE.disk_bytes + 1}, "10.0.0.2", NATS, {"overdeclared"}),
    ],
)
def test_what_does_not_agree_with_the_host_is_told(declared, address, nats, codes):
    assert (
        set(dict(host_warnings.standing(WorkerSettings(**declared), address, nats, THERE, "", "")))
        == codes
    )


def test_sockets_that_the_kernel_does_not_scope_are_told():
    found = host_warnings.standing(
        WorkerSettings(), "10.0.0.2", NATS, THERE, "this kernel has no Landlock", ""
    )
    assert dict(found) == {
        "unscoped_sockets": "its tasks reach each other's abstract sockets: this kernel has no Landlock"
    }


def test_a_mount_that_makes_moves_between_groups_slow_is_told():
    found = host_warnings.standing(
        WorkerSettings(), "10.0.0.2", NATS, THERE, "", "/sys/fs/cgroup/unified"
    )
    assert dict(found) == {
        "slow_group_moves": "/sys/fs/cgroup/unified is mounted without favordynmods"
    }


def test_the_machine_is_looked_at_whatever_the_settings_say(tmp_path):
    there = host.machine(tmp_path)
    assert there.cpu_millis >= 1
    assert there.memory_bytes > 1 << 20
    assert there.disk_bytes == shutil.disk_usage(tmp_path).total


def test_a_disk_that_is_declared_larger_than_it_is_is_overdeclared():
    there = Amount(cpu_millis=8000, memory_bytes=1 << 34, disk_bytes=1 << 34)
    settings = WorkerSettings(disk_bytes=(1 << 34) + 1)
    found = dict(host_warnings.standing(settings, "10.0.0.1", "nats://10.0.0.2", there, "", ""))
    assert found == {"overdeclared": f"disk_bytes is {(1 << 34) + 1}, the machine has {1 << 34}"}


def test_a_gateway_address_is_dead_when_nothing_listens_there():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert host_warnings.silence_of(url) == ""
    assert host_warnings.silence_of(url).startswith(
        f"{url}, the gateway_url of its tasks, does not answer there: "
    )
    assert host_warnings.silence_of("not an address") != ""
