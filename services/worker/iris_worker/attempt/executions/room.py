"""Who gives way when a host has no room for another command beside a task. Pure.

One user may have all the room of a host while nobody else asks for some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple


class Running(NamedTuple):
    """A command that runs: its name, whose it is, and when it last read or printed something."""

    name: str
    user: str
    active_s: float


class NoRoom(Exception):
    """Nobody has more than a half; the text is for the user."""


def gives_way(running: Collection[Running], user: str, at_once: int, what: str = "commands") -> str:
    """The command that ends so that ``user`` can have another; empty: there is room. ``what`` they
    are. Raises NoRoom.

    It is the one that was idle for longest, of another user who has more than half of the host's.
    """
    if len(running) < at_once:
        return ""
    has = Counter(one.user for one in running)
    taken = [one for one in running if one.user != user and has[one.user] > max(1, at_once // 2)]
    if not taken:
        raise NoRoom(f"this host has {at_once} {what} already, {has[user]} of them yours")
    return min(taken, key=lambda one: (-has[one.user], one.active_s)).name
