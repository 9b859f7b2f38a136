"""The chains of one worker: open attempts of one job that run one after the other in the place of
one.

Together they hold what one of them needs, from the first that is open to the last. A chain is named
by the attempt that it began with, which may have ended. Rebuilt from the attempts, never stored.
Source: docs/design/calls.md#chains.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

ChainKey = tuple[int, int, int]
"""Job number, index and attempt number of an attempt."""

Behind = tuple[int, int] | None
"""Index and attempt that a chain began with; None: an attempt itself."""


def chain_of(key: ChainKey, behind: Behind) -> ChainKey:
    """The name of an attempt's chain; an attempt of which nothing is known to wait behind it has
    one of its own.
    """
    return key if behind is None else (key[0], *behind)


class Chains:
    """The chains of more than one attempt, of which some are open.

    ``members``: the open attempts of each; empty where nothing waits behind anything, which is
    nearly everywhere.
    """

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[ChainKey, dict[ChainKey, None]] = {}

    def join(self, key: ChainKey, behind: Behind, opened: Container[ChainKey]) -> bool:
        """An attempt is open. Whether its chain holds nothing yet; ``opened``: the other open
        attempts.
        """
        if behind is None and key not in self.members:
            return True
        name = chain_of(key, behind)
        members = self.members.get(name)
        if members is None:
            members = self.members[name] = {name: None} if name in opened else {}
        first = not members
        members[key] = None
        return first

    def leave(self, key: ChainKey, behind: Behind) -> bool:
        """An attempt has ended. Whether it was the last of its chain, which holds nothing any
        more.
        """
        name = chain_of(key, behind)
        members = self.members.get(name)
        if members is None:
            return True
        members.pop(key, None)
        if members:
            return False
        del self.members[name]
        return True

    def of(self, key: ChainKey, behind: Behind) -> Iterable[ChainKey]:
        """The open attempts of an attempt's chain; only itself where nothing waits behind it."""
        return self.members.get(chain_of(key, behind), (key,))

    def has(self, name: ChainKey) -> bool:
        """Whether an attempt of this chain is open, and waits or waited behind another."""
        return name in self.members
