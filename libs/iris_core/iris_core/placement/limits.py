"""The attributes by which a worker tells how it holds tasks to what they request, and what of a
request is not in force on a host. Pure.

Out of scope: how a limit is set (`iris_worker`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from iris_core.spec.jobs import Attribute
from iris_core.spec.resources import ResourceRequest

LIMIT_MEMORY = "limit-memory"
LIMIT_CPU = "limit-cpu"
LIMIT_PIDS = "limit-pids"
LIMIT_DEVICES = "limit-devices"
FRESH_CALLS = "fresh-calls"
"""What the calls of maps do not share there: "memory", or "process" and why not only that."""
_WORDS = {
    "none": "is not limited",
    "sampled": "is limited by samples once a second",
    "rlimit": "is limited by the address space of each process",
}


def not_in_force(ask: ResourceRequest, attributes: Mapping[str, Attribute]) -> Iterator[str]:
    """What a task asks for that nothing holds it to on a host with these attributes, or not as
    strictly as control groups do; nothing of a host that does not tell.
    """
    memory = attributes.get(LIMIT_MEMORY)
    cpu = attributes.get(LIMIT_CPU)
    if ask.memory_bytes and memory in _WORDS:
        yield f"memory {_WORDS[str(memory)]}"
    if ask.cpu_limit_millis and cpu in _WORDS:
        yield f"use of processors {_WORDS[str(cpu)]}"
    if ask.device is not None and attributes.get(LIMIT_DEVICES) == "none":
        yield "its devices are told to it, and others are not hidden"
