"""Finds the attributes of this host that take a while to find out."""

from __future__ import annotations

import asyncio
import os

from iris_core.spec.jobs import NEEDS_RUNTIME, Attribute
from iris_worker.agent.instance import attributes_of
from iris_worker.attempt.images.containers import find_runtime
from iris_worker.host import accelerators, metadata
from iris_worker.settings import WorkerSettings


async def recognise(settings: WorkerSettings) -> dict[str, Attribute]:
    """The memory of GPUs, the container runtime, what the metadata says."""
    if not settings.detect:
        return {}
    asked = metadata.ask(metadata.server(settings.metadata_url))
    memory_gib, runtime, instance = await asyncio.gather(
        asyncio.to_thread(accelerators.gpu_memory_gib),
        find_runtime(settings.container_runtime),
        asked,
    )
    found: dict[str, Attribute] = {"gpu-memory-gib": memory_gib, NEEDS_RUNTIME.key: runtime}
    return {
        **{key: value for key, value in found.items() if value},
        **attributes_of(instance, os.environ),
    }
