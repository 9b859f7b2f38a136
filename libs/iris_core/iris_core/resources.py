"""Amounts of what a host has and a task asks for: millicores, bytes, chips. Pure arithmetic, no policy.

Source: docs/design/semantics.md#constraints-and-resources.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DeviceKind = Literal["gpu", "tpu"]

AUTO = "auto"
"""A variant that any device of the kind satisfies."""

DIMENSIONS = ("cpu_millis", "memory_bytes", "disk_bytes", "chips")


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An accelerator: kind, variant (``H100``, ``v5litepod-16``, or ``auto``), and how many a task takes."""

    kind: DeviceKind
    variant: str = AUTO
    count: int = 1


class ResourceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one task holds while it is placed. 0 asks for nothing."""

    cpu_millis: int = 1000
    memory_bytes: int = 0
    disk_bytes: int = 0
    device: Device | None = None

    @property
    def amount(self) -> Amount:
        return Amount(self.cpu_millis, self.memory_bytes, self.disk_bytes, self.device.count if self.device else 0)


class Amount(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    """A vector over `DIMENSIONS`. Chips are whole devices of whatever kind the host has (a host has one kind)."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    chips: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.cpu_millis + other.cpu_millis,
            self.memory_bytes + other.memory_bytes,
            self.disk_bytes + other.disk_bytes,
            self.chips + other.chips,
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.cpu_millis - other.cpu_millis,
            self.memory_bytes - other.memory_bytes,
            self.disk_bytes - other.disk_bytes,
            self.chips - other.chips,
        )

    def fits(self, room: Amount) -> bool:
        """Whether this much can be taken from ``room``; a dimension that asks for 0 always fits."""
        return (
            (self.cpu_millis <= room.cpu_millis or not self.cpu_millis)
            and (self.memory_bytes <= room.memory_bytes or not self.memory_bytes)
            and (self.disk_bytes <= room.disk_bytes or not self.disk_bytes)
            and (self.chips <= room.chips or not self.chips)
        )


NOTHING = Amount()
