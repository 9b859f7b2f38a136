"""What the metadata of a virtual machine says of it: its place, its TPU, and that it is about to be
taken away. Pure.

Shapes are those of Compute Engine's ``instance/?recursive=true``, and of the environment of a TPU
VM on GKE.
Source: cloud.google.com/compute/docs/metadata/predefined-metadata-keys,
cloud.google.com/compute/docs/metadata/getting-live-migration-notice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from iris_core.placement.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    TPU_NAME,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    TPU_WORKER_ID,
)
from iris_core.placement.topology import topology_of
from iris_core.spec.jobs import Attribute
from iris_core.states import NoticeReason

Instance = Mapping[str, Any]
"""Keys as the metadata server has them; values are text, or such mappings."""

NOTICE_SECONDS = "iris-notice-s"
"""The attribute of an instance that says how many seconds after its notice it is taken away."""
_SECONDS = re.compile(r"\d{1,6}(\.\d{1,3})?")
_TPU_ENV = re.compile(r"^(\w+): *'(.*)'$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Notice:
    """The machine is taken away ``within_s`` after this was said, or later; tasks are told
    ``reason``.
    """

    why: str
    within_s: float
    reason: NoticeReason = NoticeReason.SPOT


_NOTICES: Mapping[tuple[str, str], Notice] = {
    ("preempted", "TRUE"): Notice("this VM is being preempted", 30.0),
    ("maintenanceEvent", "TERMINATE_ON_HOST_MAINTENANCE"): Notice(
        "this VM is stopped for maintenance of its host", 60.0, NoticeReason.DRAIN
    ),
}
"""By key and value. A VM with GPUs has up to an hour; which it is, the key does not say."""


def notice_of(instance: Instance) -> Notice | None:
    """The notice that is given now; a VM that is moved while it runs has none. An attribute may say
    how long it leaves, where that is not the time that Google leaves.
    """
    given = next(
        (notice for (key, value), notice in _NOTICES.items() if instance.get(key) == value), None
    )
    left = str(_part(instance, "attributes").get(NOTICE_SECONDS, ""))
    return replace(given, within_s=float(left)) if given and _SECONDS.fullmatch(left) else given


def attributes_of(instance: Instance, environ: Mapping[str, str]) -> dict[str, Attribute]:
    """Zone, whether it may be preempted, and which VM of which slice it is."""
    custom = _part(instance, "attributes")
    tpu_env = dict(_TPU_ENV.findall(str(custom.get("tpu-env", ""))))
    preemptible = (_part(instance, "scheduling").get("preemptible"), tpu_env.get("PREEMPTIBLE"))
    found: dict[str, Attribute] = {}
    if zone := str(instance.get("zone", "")).rpartition("/")[2] or tpu_env.get("ZONE", ""):
        found["zone"] = zone
    if "TRUE" in (str(text).upper() for text in preemptible):
        found["spot"] = "true"
    if variant := str(custom.get("accelerator-type") or environ.get("TPU_ACCELERATOR_TYPE", "")):
        found |= {DEVICE_TYPE: "tpu", DEVICE_VARIANT: variant, TPU_TOPOLOGY: variant}
        if topology := topology_of(variant):
            found[TPU_VM_COUNT] = topology.vm_count
        if name := tpu_env.get("NODE_ID") or environ.get("TPU_NAME", ""):
            found[TPU_NAME] = name
        number = str(custom.get("agent-worker-number") or environ.get("TPU_WORKER_ID", ""))
        if number.isdigit():
            found[TPU_WORKER_ID] = int(number)
    return found


def _part(instance: Instance, key: str) -> Mapping[str, Any]:
    part = instance.get(key)
    return part if isinstance(part, dict) else {}
