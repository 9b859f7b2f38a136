"""The columns of `iris pool`: pools, slices and their changes, as the gateway's answers have
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from iris.cli.output.tables import Column, Row, state_word
from iris.cli.output.times import age, show_moment, show_span
from iris.client.options.pools import specified
from iris_core.codec import from_builtins
from iris_core.placement.pools import is_for_devices_only
from iris_core.spec.pools import PoolSpec
from iris_core.spec.resources import RESOURCES
from iris_core.units import counted
from iris_core.views.fleet import PoolPlanView

_COMING = ("requested", "creating")
_LEAVING = ("draining", "deleting")


def count_of(row: Row, *statuses: str) -> str:
    """Slices in some statuses."""
    return str(sum(row["slices"][status] for status in statuses))


def until(row: Row) -> str:
    """``no capacity, until 12:04``: why a pool is not ok; empty when it is."""
    removing = ["it is being removed"] if row["removing"] else []
    again = [f"it tries again {show_moment(row['until'])}"] if row["until"] else []
    return "; ".join([*removing, *filter(None, [row["reason"]]), *again, *row["warnings"]])


def show_boot(row: Row) -> str:
    """The time in which half of the slices come; empty before three have."""
    return "" if row["boot_p50_s"] is None else show_span(row["boot_p50_s"])


def show_host(row: Row) -> str:
    """``4 x cpu 8, memory 16GiB``: the hosts of a slice."""
    amounts = [
        f"{resource.words} {resource.unit.show(amount)}"
        for resource in RESOURCES
        if (amount := row["resources"].get(resource.name))
    ]
    return f"{row['hosts']} x {', '.join(amounts)}"


def show_pairs(pairs: Row) -> str:
    """``zone=eu-1 rack=7``."""
    return " ".join(f"{key}={value}" for key, value in pairs.items())


POOLS = (
    Column("NAME", lambda row: row["name"]),
    Column("STATE", lambda row: state_word(row["state"])),
    Column("READY", lambda row: count_of(row, "ready"), right=True),
    Column("COMING", lambda row: count_of(row, *_COMING), right=True),
    Column("LEAVING", lambda row: count_of(row, *_LEAVING), right=True, gives=4),
    Column("IDLE", lambda row: str(row["idle"]), right=True, gives=3),
    Column("MIN", lambda row: str(row["min"]), right=True, gives=2),
    Column("MAX", lambda row: str(row["max"]), right=True),
    Column("NEED", lambda row: str(row["need"]), right=True),
    Column("COST/H", lambda row: f"{row['cost_per_hour']:g}", right=True, gives=1),
    Column("BOOT", show_boot, right=True, gives=1),
    Column("PROVIDER", lambda row: row["provider"], gives=5),
    Column("CAPACITY", lambda row: row["capacity"], wide=True),
    Column("PRIORITY", lambda row: str(row["priority"]), wide=True, right=True),
    Column("BUFFER", lambda row: str(row["buffer"]), wide=True, right=True),
    Column("SLICE", show_host, wide=True),
    Column("ATTRIBUTES", lambda row: show_pairs(row["attributes"]), wide=True, wraps=True),
    Column("DETAIL", until, wraps=True),
)
"""COMING is asked for or boots, LEAVING drains or is deleted, NEED would still be made."""


def host_states(row: Row) -> str:
    """``2 healthy, 1 missing``."""
    states = [host["state"] for host in row["hosts"]]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def slice_words(row: Row) -> str:
    """Why a slice is as it is, and what is odd about it."""
    differs = [
        f"{host['name']} has {', '.join(host['differs'])}"
        for host in row["hosts"]
        if host["differs"]
    ]
    odd = [word for word in ("outdated", "overdue") if row[word]]
    deadline = [f"deleted {show_moment(row['deadline_at'])}"] if row["deadline_at"] else []
    words = [row["cause"], *filter(None, [row["detail"]]), *differs, *odd, *deadline]
    return "; ".join(words)


SLICES = (
    Column("SLICE", lambda row: row["name"]),
    Column("ID", lambda row: row["id"], gives=3),
    Column("STATUS", lambda row: state_word(row["status"])),
    Column("SINCE", lambda row: age(row["since"]), right=True),
    Column("HOSTS", host_states),
    Column("IDLE", lambda row: age(row["idle_since"]), right=True, gives=1),
    Column("COST", lambda row: f"{row['cost']:.4g}", right=True, gives=2),
    Column("CAUSE", slice_words, wraps=True),
)


def change_cause(row: Row) -> str:
    """The cause of a change, what the provider said, and who asked for it."""
    by = row.get("by")
    who = [f"by {by['name']}"] if by else []
    return "; ".join([row["cause"], *filter(None, [row["detail"]]), *who])


CHANGES = (
    Column("AT", lambda row: show_moment(row["at"])),
    Column("SLICE", lambda row: row["slice"]),
    Column("ID", lambda row: row["id"], gives=1),
    Column("FROM", lambda row: row["from"] or "", gives=2),
    Column("TO", lambda row: state_word(row["to"])),
    Column("CAUSE", change_cause, wraps=True),
)


def pool_facts(row: Row) -> Iterator[tuple[str, str]]:
    """The fields of a pool for people."""
    yield "pool", f"{row['name']} ({row['provider']}, {row['capacity']}), version {row['version']}"
    yield "state", row["state"] + (f": {words}" if (words := until(row)) else "")
    statuses = ", ".join(f"{count} {status}" for status, count in row["slices"].items() if count)
    yield (
        "slices",
        f"{statuses or 'none'}; {row['min']} to {row['max']}, {row['buffer']} in reserve",
    )
    yield "idle", counted(row["idle"], "slice") if row["idle"] else ""
    yield "need", f"{counted(row['need'], 'more slice')}" if row["need"] else ""
    yield "hosts", show_host(row)
    yield "attributes", show_pairs(row["attributes"])
    yield "options", show_pairs(row["options"])
    is_for_devices = is_for_devices_only(from_builtins(specified(row), PoolSpec))
    yield "for", "work that asks for a device" if is_for_devices else "any work"
    yield "priority", f"{row['priority']}, price {row['price']:g} an hour for a slice"
    if row["reservation"]:
        chips = counted(row["reservation"]["chips"], "chip")
        yield "reservation", f"{row['reservation']['name']}, {chips}"
    yield "cost", f"{row['cost_per_hour']:g} an hour" if row["cost_per_hour"] else ""
    yield "gives back", f"after {show_span(row['idle_s'])} without work"
    yield "boots", _boots(row)
    yield "rates", f"{row['create_rate']} made and {row['delete_rate']} given back in a minute"
    yield "set by", row["by"]["name"] if row["by"] else ""


def _boots(row: Row) -> str:
    limit = f"at most {show_span(row['boot_timeout_s'])}"
    if row["boot_p50_s"] is None:
        return limit
    most = "" if row["boot_p90_s"] is None else f", {show_span(row['boot_p90_s'])} (p90)"
    return f"{show_span(row['boot_p50_s'])} (p50){most}; {limit}"


def plan_words(found: PoolPlanView) -> str:
    """What a pool would do, as the end of a sentence."""
    tasks = f"for {counted(found.tasks, 'waiting task')}" if found.tasks else "for no waiting task"
    left = f"; {counted(found.left, 'task')} would be left over" if found.left else ""
    return (
        f"would make {counted(found.create, 'slice')} {tasks}"
        f" and give back {counted(found.delete, 'slice')}{left}"
    )
