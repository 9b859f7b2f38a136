"""Finds the accelerators of this host and their device files. Out of scope: who has which
(devices).

Source: docs/hosts.md#accelerators, which also says what was never tested on real hardware.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from iris_worker.host.devices import Accelerators

_SMI_S = 10.0


def find(root: str = "") -> Accelerators:
    """The accelerators with a device file below ``root``."""
    return _find_gpus(root) or _find_tpus(root) or Accelerators()


def gpu_memory_gib() -> int:
    """The memory of the smallest GPU, by `nvidia-smi`; 0 when that does not say. It may take
    seconds.
    """
    query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            query,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SMI_S,
            check=True,
        )
        return round(min(int(mib) for mib in done.stdout.split()) / 1024)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def _find_gpus(root: str) -> Accelerators | None:
    """What the driver lists; in a container that hides the list, what has a device file."""
    drivers = f"{root}/proc/driver/nvidia/gpus"
    facts = [_facts(f"{drivers}/{address}/information") for address in sorted(_names(drivers))]
    rests = [
        name.removeprefix("nvidia") for name in _names(f"{root}/dev") if name.startswith("nvidia")
    ]
    minors = sorted(int(rest) for rest in rests if rest.isdigit())
    if facts:
        minors = [int(fact.get("Device Minor", index)) for index, fact in enumerate(facts)]
    if not minors:
        return None
    shared = tuple(f"/dev/nvidia{rest}" for rest in sorted(rests) if not rest.isdigit())
    model = _model(facts[0].get("Model", "")) if facts else ""
    return Accelerators("gpu", tuple(f"/dev/nvidia{minor}" for minor in minors), shared, model)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _facts(path: str) -> dict[str, str]:
    """The lines of a file as ``name: value``; none when it cannot be read."""
    try:
        text = Path(path).read_text()
    except (OSError, ValueError):
        return {}
    parts = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def _model(text: str) -> str:
    """``NVIDIA H100 80GB HBM3`` is an ``H100``; the driver's own words where no such name is
    found.
    """
    words = text.replace("-", " ").split()
    return next((word for word in words if word[:1].isalpha() and word[1:].isdigit()), text)


def _find_tpus(root: str) -> Accelerators | None:
    """Chips are ``/dev/accel0`` and so on, or, from v5e on, groups of the VFIO driver."""
    for directory, prefix, shared in (
        ("/dev", "accel", ()),
        ("/dev/vfio", "", ("/dev/vfio/vfio",)),
    ):
        rests = (
            name.removeprefix(prefix)
            for name in _names(root + directory)
            if name.startswith(prefix)
        )
        if numbers := sorted(int(rest) for rest in rests if rest.isdigit()):
            return Accelerators(
                "tpu", tuple(f"{directory}/{prefix}{number}" for number in numbers), shared
            )
    return None
