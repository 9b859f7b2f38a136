"""The building window of a host: how many tasks may prepare there at a time, and of one user.

A free place is for anyone. Beyond a full window a user may have an equal share of it: the window
divided by the users who prepare there, but one place at least. So no user keeps another from
starting by what is prepared, and all together stay below `WINDOWS` windows. Which attempts count is
out of scope. Source: docs/adr/0147-a-full-building-window-keeps-a-share-for-each-user.md.
"""

from __future__ import annotations

WINDOWS = 3
"""On a host at most so many times its window prepares."""


def share_of(window: int, users: int) -> int:
    """How many tasks each of so many users who prepare on a host may have there beyond its
    window.
    """
    return max(1, window // users)


def places_beyond(window: int, preparing: int, own: int, users: int) -> int:
    """How many more tasks of a user may begin to prepare on a host whose window is full.

    Args:
        window: how many tasks may prepare there while any user fills it. preparing: how many do.
        own: how many of these are the user's. users: how many users they belong to, this user
            counted in any case.
    """
    return max(0, min(share_of(window, users) - own, WINDOWS * window - preparing))
