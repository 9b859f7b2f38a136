"""Supervises several proxy processes that listen on one address.

The kernel assigns each connection to one of them (``SO_REUSEPORT``). Each follows the discovery and
serves its own metrics. See also: `service` is one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from iris_bus.contract import Unavailable
from iris_proxy.settings import ProxySettings
from iris_service.child import MISUSED, ChildProcess, Program
from iris_service.listening import listen, write_port
from iris_service.run import Service
from iris_service.settings import BadSetting

log = logging.getLogger(__name__)

_LOOK_S = 0.1


async def keep(service: Service[ProxySettings]) -> None:
    """Run the workers until stopped. Raises BadSetting when they cannot start, Unavailable when
    that may pass.
    """
    with (
        listen("proxy", *service.settings.address(), shared=True) as held,
        tempfile.TemporaryDirectory() as ready,
    ):
        host, port = held.getsockname()[:2]
        workers = [
            ChildProcess(program) for program in _programs(service, f"{host}:{port}", Path(ready))
        ]
        try:
            for worker in workers:
                worker.spawn(_now())
            await _until_ready(service, workers, Path(ready))
            tls = bool(service.settings.tls_cert)
            write_port(
                held, service.settings.port_file or os.environ.get("IRIS_PORT_FILE", ""), tls=tls
            )
            service.announce()
            await _look_after(service, workers)
        finally:
            await _end(workers, service.run.drain_s)


def _programs(service: Service[ProxySettings], http: str, ready: Path) -> Iterator[Program]:
    """The command line of each worker: that of this process with the worker's settings."""
    for number in range(service.settings.workers):
        given = [
            f"proxy.http={http}",
            "proxy.workers=1",
            "proxy.reuse_port=true",
            f"proxy.port_file={ready / str(number)}",
        ]
        if service.run.metrics:
            given.append(f"run.metrics={_counted(service.run.metrics, number)}")
        own = [word for setting in given for word in ("--set", setting)]
        argv = [sys.executable, "-P", "-m", "iris_proxy", *sys.argv[1:], *own]
        yield Program("proxy", f"proxy-{number}", argv, os.environ, inherits_output=True)


def _counted(address: str, number: int) -> str:
    """The metrics address of a worker: ports count up from the first; port 0 stays 0."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) and int(port) + number}"


async def _until_ready(
    service: Service[ProxySettings], workers: list[ChildProcess], ready: Path
) -> None:
    """Raises BadSetting when a worker ends for its settings instead, Unavailable when it ends
    otherwise.
    """
    while not service.stop.is_set() and not _all_ready(workers, ready):
        for worker in workers:
            code = worker.look(_now())
            if code is not None:
                ended = f"{worker.program.name} ended with {code} while it started"
                raise BadSetting(ended) if code == MISUSED else Unavailable(ended)
        await _pause(service)


def _all_ready(workers: list[ChildProcess], ready: Path) -> bool:
    return all((ready / str(number)).exists() for number in range(len(workers)))


async def _look_after(service: Service[ProxySettings], workers: list[ChildProcess]) -> None:
    """Restart workers that die, until stopped."""
    while not service.stop.is_set():
        for worker in workers:
            code = worker.look(_now())
            if code is not None:
                log.warning("%s ended with %d", worker.program.name, code)
            if worker.due is not None and worker.due <= _now():
                worker.spawn(_now())
        await _pause(service)


async def _end(workers: list[ChildProcess], within_s: float) -> None:
    """Send TERM once, because a second one ends their drain; KILL after the timeout."""
    for worker in workers:
        worker.signal(signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while any(worker.pid for worker in workers):
                await asyncio.sleep(_LOOK_S)
                for worker in workers:
                    worker.look(_now())
    for worker in workers:
        worker.kill()


async def _pause(service: Service[ProxySettings]) -> None:
    try:
        async with asyncio.timeout(_LOOK_S):
            await service.stop.wait()
    except TimeoutError:
        return


def _now() -> float:
    return asyncio.get_running_loop().time()
