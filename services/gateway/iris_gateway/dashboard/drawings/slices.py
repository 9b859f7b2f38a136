"""Slices as shapes: the hosts of each in the grid of its topology, and who holds them. Pure.

Source: docs/design/page.md#components, the table of TPU topologies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from iris_core.placement.topology import topology_of, vm_grid
from iris_core.units import counted
from iris_gateway.dashboard.drawings.bars import segment

Host = Mapping[str, Any]
_WIDTHS = (1, 2, 4, 8)
"""Hosts in a row: of every topology, and of a slice whose topology is not known."""
_DRAWN = 8
"""Chips of a host that are drawn; of more, as large a part is filled as is held."""

_PLACES = 64
"""Places of a slice that are drawn though most hosts have not registered: a page has a bounded
size.
"""


class SliceHolder(NamedTuple):
    """A job that holds hosts of a slice."""

    name: str
    id: str


class SliceShape(NamedTuple):
    """A slice as it is drawn.

    Attributes:
        width: hosts in a row. planes: rows one after the other, as markup, a plane for each layer
            of a cuboid.
        words: what is free, lost or missing. holders: the jobs that hold hosts of it, by name.
    """

    name: str
    topology: str
    width: int
    planes: list[Markup]
    words: str
    holders: list[SliceHolder]


def shape_of(slice_: Mapping[str, Any]) -> SliceShape:
    """The shape of a slice as the state service shows it. A host that never registered has an empty
    place.
    """
    hosts: Sequence[Host] = slice_["workers"]
    topology = topology_of(str(slice_["topology"]))
    if topology is not None and len(hosts) <= topology.vm_count <= max(_PLACES, 2 * len(hosts)):
        width, high, _ = vm_grid(topology)
        places = _placed(hosts, topology.vm_count)
    else:
        width = next((width for width in _WIDTHS if width * width >= len(hosts)), _WIDTHS[-1])
        high = len(hosts)
        places = list(hosts)
    planes = [places[start : start + width * high] for start in range(0, len(places), width * high)]
    return SliceShape(
        slice_["name"],
        slice_["topology"] or "",
        width,
        [Markup("".join(map(_host, plane))) for plane in planes],
        words=_words(places, slice_["free_workers"]),
        holders=sorted(
            {holder for one in hosts for holder in map(_holder, one["tasks"], one["task_ids"])}
        ),
    )


def _holder(task: str, task_id: str) -> SliceHolder:
    return SliceHolder(task.rpartition("/")[0], task_id.partition("/")[0])


def _placed(hosts: Sequence[Host], count: int) -> list[Host | None]:
    """The hosts in the places that their numbers in the slice name; in their order when these are
    not its places.
    """
    numbers = [one["attributes"].get("tpu-worker-id") for one in hosts]
    by_number = dict(zip(numbers, hosts, strict=True))
    if len(by_number) < len(hosts) or not by_number.keys() <= set(range(count)):
        by_number = dict(enumerate(hosts))
    return [by_number.get(number) for number in range(count)]


def _words(places: Sequence[Host | None], free: int) -> str:
    if free == len(places):
        return "free"
    states = Counter("missing" if one is None else one["state"] for one in places)
    found = [
        f"{states[state]} {state}"
        for state in ("lost", "missing", "degraded", "draining")
        if states[state]
    ]
    return ", ".join(
        [f"{free} of {counted(len(places), 'host')} free" if free else "none free", *found]
    )


def _host(one: Host | None) -> str:
    """The markup of one host: its chips, filled as they are held, in a frame that tells its
    state.
    """
    if one is None:
        return '<i class="host missing" title="has not registered"></i>'
    total = one["total"]["chips"]
    held = one["committed"]["chips"]
    drawn = min(total, _DRAWN)
    filled = -(-held * drawn // total) if total else 0
    state = one["state"]
    name = escape(one["id"])
    off = "" if state == "healthy" else f" off {state}"
    tasks = counted(one["task_count"], "task")
    return (  # written out, for there are thousands of them; numbers and states need no escape
        f'<a class="host of-{drawn} on-{filled}{off}" href="/workers/{segment(one["id"])}"'
        f' title="{name}: {state}, {tasks}, {held} of {counted(total, "chip")} held"></a>'
    )
