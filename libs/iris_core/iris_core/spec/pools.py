"""The specification of a pool: a kind of capacity that a provider can make. Types only.

A pool is made of slices; a slice is what a provider makes and deletes at once, ``hosts`` machines of
one shape. Source: docs/design/fleet.md#pools.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from iris_core.spec.field_rules import at_least_0, at_most, between, seconds, text
from iris_core.spec.jobs import Attribute, AttributeKey
from iris_core.spec.resources import HostResources

MAX_SLICES = 10_000
MAX_HOSTS = 4096
"""Hosts of one slice."""
MAX_OPTIONS = 64
MAX_PRICE = 1_000_000.0
PROVIDERS = ("process", "exec", "tpu")

POOL_NAME = "[a-z]([a-z0-9-]{0,38}[a-z0-9])?"
PoolName = Annotated[
    str,
    text(
        POOL_NAME,
        "bad_name",
        "is not the name of a pool",
        "1 to 40 of a-z 0-9 -, starting with a letter and not ending with -",
    ),
]
CapacityKind = Literal["spot", "on_demand", "reserved"]
Audience = Literal["device", "any"]
Provider = Annotated[
    str, text("|".join(PROVIDERS), "unknown_provider", "is no provider", ", ".join(PROVIDERS))
]
SliceCount = Annotated[int, between(0, MAX_SLICES)]
RatePerMinute = Annotated[int, between(1, MAX_SLICES)]


class _PoolPart(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A part of a pool's specification; unknown fields are refused."""


class Reservation(_PoolPart, frozen=True, kw_only=True):
    """Capacity that was bought in advance; all pools that name it share its ``chips``."""

    name: PoolName
    chips: Annotated[int, between(1, 1 << 30)]


class PoolSpec(_PoolPart, frozen=True, kw_only=True):
    """What an admin asks of a pool.

    Attributes:
        options: the provider's own words.
        hosts: of one slice. resources, attributes: of each host, as its worker will report them.
        min, max: slices; ``max`` holds at every moment. buffer: idle or coming slices beyond need.
        priority: the lowest is asked first; equal ones by ``price``, per slice and hour.
        idle_s: a slice without work for longer is given up. boot_timeout_s: a slice whose hosts
            have not all registered by then is given up.
        create_rate, delete_rate: slices a minute.
        only: ``device``: work that asks for a device; empty: ``device`` where hosts have one.
        paused: it neither grows nor shrinks.
    """

    name: PoolName
    provider: Provider
    max: SliceCount
    options: Annotated[
        dict[str, str | int | float | bool],
        at_most(MAX_OPTIONS, f"at most {MAX_OPTIONS} options", of="Properties"),
    ] = {}
    hosts: Annotated[int, between(1, MAX_HOSTS)] = 1
    resources: HostResources
    attributes: dict[AttributeKey, Attribute] = {}
    capacity: CapacityKind = "on_demand"
    min: SliceCount = 0
    buffer: SliceCount = 0
    priority: Annotated[int, between(0, 1_000_000)] = 100
    price: Annotated[float, at_least_0(MAX_PRICE)] = 0.0
    idle_s: Annotated[float, seconds(0)] = 600.0
    boot_timeout_s: Annotated[float, seconds(1)] = 900.0
    create_rate: RatePerMinute = 10
    delete_rate: RatePerMinute = 10
    reservation: Reservation | None = None
    only: Audience | Literal[""] = ""
    paused: bool = False

    @property
    def chips_per_slice(self) -> int:
        return self.hosts * self.resources.chips
