"""Port allocation: who holds a port, and when it may be reused."""

from __future__ import annotations

import math
import socket

import pytest

from iris_core.messages.message import AttemptRef
from iris_worker.agent.host import host
from iris_worker.attempt.slots.ports import PortUse

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
        [port] = host.free_ports(("http",), lambda port: 30.0 if port in rests else 0.0).values()
        assert port not in rests
        rests.add(port)


def test_where_every_port_rests_the_longest_rested_are_given():
    seen: dict[int, float] = {}

    def rest_s(port: int) -> float:
        seen[port] = float(60 - len(seen) % 60)
        return seen[port]

    given = host.free_ports(("http", "grpc"), rest_s)
    assert sorted(given.values(), key=seen.__getitem__) == list(given.values())
    assert max(seen[port] for port in given.values()) <= sorted(seen.values())[1]


def test_a_port_of_a_running_attempt_is_never_given():
    with pytest.raises(OSError, match="no port is free"):
        host.free_ports(("http",), lambda port: math.inf)


def test_a_port_that_is_given_can_be_served_on():
    [port] = host.free_ports(("http",)).values()
    with socket.socket() as service:
        service.bind(("", port))
