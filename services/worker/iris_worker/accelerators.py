"""Finds the accelerators of this host and their device files. Out of scope: who has which (devices).

Source: docs/operating.md#accelerators, which also says what was never tested on real hardware.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from iris_worker.devices import Accelerators

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_SMI_S = 10.0


def find(root: str = "") -> Accelerators:
    """The accelerators with a device file below ``root``."""
    return _find_gpus(root) or _find_tpus(root) or Accelerators()


def gpu_memory_gib() -> int:
    """The memory of the smallest GPU, by `nvidia-smi`; 0 when that does not say. It may take seconds."""
    query = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    try:
        done = subprocess.run(
            query, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SMI_S, check=True
        )
        return round(min(int(mib) for mib in done.stdout.split()) / 1024)
    except (OSError, subprocess.SubprocessError, ValueError):
        return 0


def _find_gpus(root: str) -> Accelerators | None:
    drivers = f"{root}/proc/driver/nvidia/gpus"
    try:
        facts = [_facts(f"{drivers}/{address}/information") for address in sorted(os.listdir(drivers))]
    except OSError:
        return None
    if not facts:
        return None
    files = tuple(f"/dev/nvidia{fact.get('Device Minor', index)}" for index, fact in enumerate(facts))
    shared = tuple(path for path in _CONTROL if os.path.exists(root + path))
    return Accelerators("gpu", files, shared, _model(facts[0].get("Model", "")))


def _facts(path: str) -> dict[str, str]:
    """The lines of a file as ``name: value``; none when it cannot be read."""
    try:
        text = Path(path).read_text()
    except (OSError, ValueError):
        return {}
    parts = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def _model(text: str) -> str:
    """``NVIDIA H100 80GB HBM3`` is an ``H100``; the driver's own words where no such name is found."""
    words = text.replace("-", " ").split()
    return next((word for word in words if word[:1].isalpha() and word[1:].isdigit()), text)


def _find_tpus(root: str) -> Accelerators | None:
    """Chips are ``/dev/accel0`` and so on, or, from v5e on, groups of the VFIO driver."""
    for directory, prefix, shared in (("/dev", "accel", ()), ("/dev/vfio", "", ("/dev/vfio/vfio",))):
        try:
            names = os.listdir(root + directory)
        except OSError:
            continue
        rests = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
        numbers = sorted(int(rest) for rest in rests if rest.isdigit())
        if numbers:
            return Accelerators("tpu", tuple(f"{directory}/{prefix}{number}" for number in numbers), shared)
    return None
