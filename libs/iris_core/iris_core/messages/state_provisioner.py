"""Between the state service's leader and provisioners: orders to make and delete slices, and what
providers have answered and listed.

Both are repeated: a lost order is sent again until it is answered, a lost answer or list is mended
by the next list. Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

from iris_core.messages.message import ServiceMessage
from iris_core.spec.jobs import Attribute

ProviderOptions = dict[str, str | int | float | bool]


class OrderedHost(ServiceMessage, frozen=True):
    """One host of a slice: its name, which is its worker's id, and what its worker is to report."""

    name: str
    attributes: dict[str, Attribute] = {}


class SliceOrder(ServiceMessage, frozen=True):
    """Create or delete one slice.

    Attributes:
        call: create or delete. label: the number that the provider keeps with it. number: of the
            record; 0: there is none.
        hosts, resources, attributes, capacity, boot_timeout_s: of one that is created.
    """

    call: str
    provider: str
    options: ProviderOptions
    pool: str
    slice: str
    label: int
    number: int = 0
    hosts: tuple[OrderedHost, ...] = ()
    resources: dict[str, int] = {}
    attributes: dict[str, Attribute] = {}
    capacity: str = "on_demand"
    boot_timeout_s: float = 0.0


class ListOrder(ServiceMessage, frozen=True):
    """List everything of this provider with these options. ``asked_ms``: by the leader's time."""

    provider: str
    options: ProviderOptions
    asked_ms: int


class FleetOrders(ServiceMessage, frozen=True):
    """What one provisioner is to do now.

    Attributes:
        epoch: of the leader; those of an older one are dropped. provisioner: the id of whom it is
            for.
        slots: by pool, how many slots it has and how many hosts each: whose keys are counted.
    """

    epoch: int
    provisioner: str
    orders: tuple[SliceOrder, ...] = ()
    lists: tuple[ListOrder, ...] = ()
    slots: dict[str, tuple[int, int]] = {}


class OrderAnswer(ServiceMessage, frozen=True):
    """The answer of a provider to an order: accepted, exhausted, refused or failed, and why."""

    call: str
    slice: str
    label: int
    number: int
    answer: str
    detail: str = ""
    retry_after_s: float = 0.0


class FoundSlice(ServiceMessage, frozen=True):
    """One slice as its provider lists it."""

    name: str
    label: int
    status: str = "running"
    detail: str = ""


class ListAnswer(ServiceMessage, frozen=True):
    """A whole list, or why there is none."""

    provider: str
    options: ProviderOptions
    asked_ms: int
    slices: tuple[FoundSlice, ...] = ()
    error: str = ""


class ProvisionerReport(ServiceMessage, frozen=True):
    """What a provisioner tells: that it is there, and what has come of orders of ``epoch``.

    Attributes:
        programs: the names of its programs. keyed: by pool, how many of its slots have keys, from
            the first; `MAX_SLICES` where none are needed. A pool that is not there was not counted
            yet, and nothing of it is made.
        keys: "none": hosts need none; "made": what is missing is made there; "given": an admin makes
            them; empty: unknown.
    """

    provisioner: str
    epoch: int = 0
    programs: tuple[str, ...] = ()
    keyed: dict[str, int] = {}
    answers: tuple[OrderAnswer, ...] = ()
    lists: tuple[ListAnswer, ...] = ()
    keys: str = ""
