"""Chooses which of the things that a host keeps for later tasks are deleted. Pure.

Out of scope: what they are (bundles, environments), and which are in use (holds).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Kept(NamedTuple):
    """One thing that is kept: its name, whose it is, its bytes, and when it was used last.

    ``in_use``: it stays in any case.
    """

    name: str
    user: str
    bytes: int
    used_ns: int
    in_use: bool = False


def surplus(kept: Iterable[Kept], count: int, size: int = 0) -> list[str]:
    """What is deleted so that at most ``count`` things of ``size`` bytes are kept; 0: of any size.

    It is what is unused for longest, of the user who has most of what there is too much of. Who has
    no more than an equal share of that loses nothing, whatever others have in use.
    """
    left = sorted(kept, key=lambda one: one.used_ns)
    gone: list[str] = []
    while (one := _next(left, Counter(one.user for one in left), count)) is not None:
        left.remove(one)
        gone.append(one.name)
    while size and (one := _next(left, _bytes_of_users(left), size)) is not None:
        left.remove(one)
        gone.append(one.name)
    return gone


def _bytes_of_users(kept: Iterable[Kept]) -> Counter[str]:
    held = Counter[str]()
    for one in kept:
        held[one.user] += one.bytes
    return held


def _next(left: list[Kept], held: Counter[str], limit: int) -> Kept | None:
    """The thing that goes next; None: there is not too much, or nothing of who has too much may
    go.
    """
    if held.total() <= limit:
        return None
    greedy = [one for one in left if not one.in_use and held[one.user] * len(held) > limit]
    return max(greedy, key=lambda one: held[one.user], default=None)
