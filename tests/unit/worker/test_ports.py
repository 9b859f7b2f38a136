"""Port allocation: who holds a port, and when it may be reused."""

from __future__ import annotations

import math
import socket

import pytest

from iris_core.messages.message import AttemptRef
from iris_service.settings import BadSetting
from iris_worker.attempt.slots.ports import PortUse
from iris_worker.host import host
from iris_worker.settings import WorkerSettings

PORTS = WorkerSettings().ports()
A, B = AttemptRef(1, 0, 0), AttemptRef(2, 0, 0)


def test_a_port_rests_a_minute_after_its_attempt():
    use = PortUse()
    use.hold(A, [31002])
    assert use.rest_s(31002, 0.0) == math.inf
    use.free(A, 100.0)
    assert [use.rest_s(31002, at) for at in (100.0, 130.0, 160.0)] == [60.0, 30.0, 0.0]
    assert use.rest_s(31003, 100.0) == 0.0


def test_a_port_reused_early_rests_after_its_last_attempt():
    use = PortUse()
    use.hold(A, [1])
    use.free(A, 0.0)
    use.hold(B, [1])
    assert use.rest_s(1, 61.0) == math.inf
    use.free(B, 50.0)
    assert use.rest_s(1, 61.0) == 49.0


def test_ports_that_have_rested_are_forgotten():
    use = PortUse()
    for second in range(1000):
        ref = AttemptRef(second, 0, 0)
        use.hold(ref, [second])
        use.free(ref, float(second))
    assert len(use._freed) == 60


def test_a_resting_port_is_not_given_while_there_are_others():
    rests: set[int] = set()
    for _ in range(20):
        [port] = host.free_ports(
            ("http",), PORTS, lambda port: 30.0 if port in rests else 0.0
        ).values()
        assert port not in rests
        rests.add(port)


def test_where_every_port_rests_the_longest_rested_are_given():
    seen: dict[int, float] = {}

    def rest_s(port: int) -> float:
        seen[port] = float(60 - len(seen) % 60)
        return seen[port]

    given = host.free_ports(("http", "grpc"), PORTS, rest_s)
    assert sorted(given.values(), key=seen.__getitem__) == list(given.values())
    assert max(seen[port] for port in given.values()) <= sorted(seen.values())[1]


def test_a_port_of_a_running_attempt_is_never_given():
    with pytest.raises(OSError, match="no port from 10000 to 19999 is free"):
        host.free_ports(("http",), PORTS, lambda port: math.inf)


def test_a_port_that_is_given_can_be_served_on():
    [port] = host.free_ports(("http",), PORTS).values()
    with socket.socket() as service:
        service.bind(("", port))


def test_ports_of_tasks_are_none_of_outgoing_connections():
    linux = range(32_768, 61_000)
    assert not set(host.free_ports(tuple("abcdefghij"), PORTS).values()) & set(linux)


def test_the_last_free_port_of_a_small_range_is_found(monkeypatch: pytest.MonkeyPatch):
    """Whatever others have on this machine meanwhile."""
    held = range(PORTS[0], PORTS[0] + 100)
    for port in held:
        monkeypatch.setattr(host, "_is_unused", port.__eq__)
        assert host.free_ports(("http",), held) == {"http": port}


@pytest.mark.parametrize(
    "text", ["", "20000", "20000-", "2-1", "80-90", "30000-29999", "20000-65536", "a-b"]
)
def test_a_range_of_ports_that_is_none_is_refused(text: str):
    with pytest.raises(BadSetting, match=r"task_ports: .* is not FIRST-LAST"):
        WorkerSettings(task_ports=text).check_forms()
