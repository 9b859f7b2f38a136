"""Pools, slices and what happened to them in words, for people. Pure.

A change names its status and its cause; here is what each says. Causes:
docs/design/fleet.md#causes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from iris_core.placement.pools import is_for_devices_only
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import RESOURCES
from iris_core.units import counted

_SPECIFIED = tuple(field.name for field in msgspec.structs.fields(PoolSpec))

ENTERED: Mapping[str, str] = {
    "requested": "was requested",
    "creating": "boots",
    "ready": "is ready",
    "draining": "drains",
    "deleting": "is being deleted",
    "deleted": "is gone",
    "failed": "was not made",
}
"""What a slice did that entered a status."""

CAUSES: Mapping[str, str] = {
    "need": "for work that waits",
    "min": "for the minimum of its pool",
    "buffer": "for the reserve of its pool",
    "idle": "it had no work",
    "operator": "an admin gave it back",
    "over_max": "its pool has more than its maximum",
    "removed": "its pool is being removed",
    "accepted": "its provider has begun to make it",
    "exhausted": "its provider has no capacity",
    "refused": "its provider refuses",
    "create_failed": "its creation failed",
    "no_answer": "its provider did not answer",
    "registered": "all of its hosts have registered",
    "boot_failed": "its boot failed",
    "boot_timeout": "its hosts did not register in time",
    "host_lost": "a host of it was lost",
    "host_degraded": "a host of it failed its checks for too long",
    "preempted": "its provider took it back",
    "spot_notice": "its provider is about to take it back",
    "gone": "its provider does not have it any more",
    "drained": "nothing runs there any more",
    "deadline": "its deadline has passed",
    "demand_back": "work that fits it came back",
    "not_listed": "its provider does not list it any more",
    "delete_overdue": "its deletion takes too long",
    "adopted": "its provider had it, and no record was kept",
    "orphan": "its provider had it, and nothing wanted it",
}
"""Why a slice entered a status."""

HAPPENED: Mapping[str, str] = {
    "set": "was set",
    "removed": "was removed",
    "paused": "was paused",
    "resumed": "was resumed",
    "exhausted": "was put off",
    "recovered": "is well again",
    "stopped": "replaces no more slices",
}
"""What happened to a pool, by the last word of its event."""

STANDS: Mapping[str, str] = {
    "ok": "ok",
    "paused": "paused",
    "exhausted": "put off",
    "stopped": "stopped",
}
"""The states of a pool."""


def said(change: Mapping[str, Any]) -> str:
    """``drains: it had no work``: what a change of a slice says, or its present status; a word of a
    newer state service as it is.
    """
    status = change.get("to") or change["status"]
    words = because(change)
    between = " " if words.startswith("for ") else ": " if words else ""
    return f"{ENTERED.get(status, status)}{between}{words}"


def because(change: Mapping[str, Any]) -> str:
    """``it had no work: idle for 10 min``: the cause of a change, and what the provider said."""
    cause = change.get("cause") or ""
    words = CAUSES.get(cause, cause.replace("_", " "))
    return ": ".join(filter(None, [words, change.get("detail") or ""]))


def happened(event: Mapping[str, Any]) -> str:
    """``was put off: its provider has no capacity: STOCKOUT``: what an event of a pool says."""
    words = HAPPENED.get(event["state"], event["state"])
    return ": ".join(filter(None, [words, because(event)]))


def stands(pool: Mapping[str, Any]) -> str:
    """The state of a pool in words."""
    return STANDS.get(pool["state"], pool["state"])


def shape(pool: Mapping[str, Any]) -> str:
    """``4 hosts of v5litepod-16, cpu 112, memory 180GiB``: a slice of a pool."""
    variant = pool["attributes"].get("device-variant")
    amounts = [
        f"{resource.words} {resource.unit.show(amount)}"
        for resource in RESOURCES
        if (amount := pool["resources"].get(resource.name))
    ]
    hosts = counted(pool["hosts"], "host")
    return ", ".join([f"{hosts} of {variant}" if variant else hosts, *amounts])


def for_devices(pool: Mapping[str, Any]) -> bool:
    """Whether a pool is for work that asks for a device only."""
    spec = {name: pool[name] for name in _SPECIFIED if pool.get(name) is not None}
    return is_for_devices_only(msgspec.convert(spec, PoolSpec))


def host_states(one: Mapping[str, Any]) -> str:
    """``2 healthy, 1 missing``: the hosts of a slice."""
    states = Counter(host["state"] for host in one["hosts"])
    return ", ".join(f"{count} {state}" for state, count in states.items())


def cost(amount: float) -> str:
    """``0``, ``0.004``, ``62.40``, ``1,200.50``: an amount of money, in no currency."""
    if not amount:
        return "0"
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.2g}"
