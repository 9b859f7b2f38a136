"""Watches what changes on the host beside attempts: whether its configuration agrees, and its
container runtime.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping

from iris_core.spec.jobs import NEEDS_RUNTIME
from iris_worker.attempt.images.containers import Containers, find_runtime
from iris_worker.host import host, host_warnings
from iris_worker.launcher.cgroups import access, files
from iris_worker.service.reporter import Reporter
from iris_worker.settings import WorkerSettings, read_attributes

log = logging.getLogger(__name__)

_CONFIGURATION_CHECK_S = 10.0


async def warn_of_configuration(
    settings: WorkerSettings,
    reporter: Reporter,
    address: str,
    nats_url: str,
    unscoped: str,
    version: int,
    limits: Mapping[str, str],
) -> None:
    """Tell what of the configuration does not agree with the host, for ever; a gateway may be
    silent once.

    Args:
        address, unscoped: as in `host_warnings.standing`. version: of the control groups of
            attempts. limits: the warnings about limits that are not in force.
    """
    slow_moves = (
        files.slow_moves(access.get("/proc/self/mountinfo"), os.uname().release)
        if version == 1
        else ""
    )
    standing = dict(
        host_warnings.standing(
            settings,
            address,
            nats_url,
            host.machine(settings.root),
            unscoped=unscoped,
            slow_moves=slow_moves,
        )
    )
    standing |= limits
    with contextlib.suppress(OSError):  # the host reports its disk otherwise
        standing |= dict(host_warnings.of_data(settings.data))
    before = ""
    while True:
        reporter.warn(standing | ({"gateway_dead": before} if before else {}))
        await asyncio.sleep(_CONFIGURATION_CHECK_S)
        first = await asyncio.to_thread(host_warnings.silence_of, settings.gateway_url)
        await asyncio.sleep(_CONFIGURATION_CHECK_S)
        before = first and await asyncio.to_thread(host_warnings.silence_of, settings.gateway_url)


async def follow_runtime(
    settings: WorkerSettings,
    containers: Containers,
    reporter: Reporter,
    on_change: Callable[[str], None],
) -> None:
    """Use the container runtime that answers on this host, and tell of each change, unless the
    settings name one.
    """
    if not settings.detect or NEEDS_RUNTIME.key in read_attributes(settings.attributes):
        return
    while True:
        await asyncio.sleep(settings.container_runtime_interval_s)
        found = await find_runtime(settings.container_runtime, containers.proven)
        if found == containers.runtime:
            containers.confirm()
        if found == containers.runtime or not reporter.settled:
            continue
        log.warning("container runtime: %s", found or "none answers")
        containers.use(found)
        on_change(found)
