"""What an executor keeps of the attempts that it starts, and of those it takes over."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path

from iris_core.messages import AttemptRef, Stage, TaskTemplate
from iris_core.resources import ResourceRequest
from iris_core.states import KernelStatus
from iris_worker.agent import Agent, LocalAttempt
from iris_worker.clock import HostClock
from iris_worker.executor import Executor
from iris_worker.metrics import WorkerMetrics
from iris_worker.probes.prober import Prober
from iris_worker.settings import WorkerSettings

A = AttemptRef(1, 0, 0)
CLOCK = HostClock()


def opened(data: Path) -> Executor:
    settings, agent = WorkerSettings(id="w0", data=str(data)), Agent("me")
    prober = Prober("127.0.0.1", CLOCK, WorkerMetrics(agent.running), lambda: None)
    loop = asyncio.get_running_loop()
    made = Executor(settings, agent, CLOCK, loop, prober, lambda s: None, lambda ref, s: None, lambda: None)
    made.recover()
    return made


def launched(executor: Executor, *command: str) -> int:
    """Start an attempt with one port, and return that."""
    template = TaskTemplate(1, "/t", command, {}, 1, ResourceRequest(), ports=("http",))
    executor.launch(LocalAttempt(A, template, Stage(A, KernelStatus.PREPARING, 1)))
    executor.flush()
    [port] = executor._ports._held[A]
    return port


def rest_s(executor: Executor, port: int) -> float:
    return executor._ports.rest_s(port, CLOCK.steady_s())


def end(executor: Executor) -> None:
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    executor.reap()


async def test_the_port_of_an_attempt_is_its_own_until_it_ends_and_rests_then(tmp_path: Path):
    executor = opened(tmp_path)
    port = launched(executor, "true")
    assert rest_s(executor, port) == math.inf
    end(executor)
    assert 0 < rest_s(executor, port) <= 60
    executor.close()


async def test_the_ports_of_an_adopted_attempt_are_its_own(tmp_path: Path):
    before = opened(tmp_path)
    port = launched(before, "sleep", "1000")
    after = opened(tmp_path)
    assert rest_s(after, port) == math.inf
    before.kill_all()
    end(before)
    before.close()
    last = opened(tmp_path)
    assert 0 < rest_s(last, port) <= 60
    for executor in (after, last):
        executor.close()
