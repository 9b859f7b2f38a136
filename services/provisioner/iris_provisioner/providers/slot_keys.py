"""The keys of slots: which there are, and the seed of a host.

A seed is given to the provider with the slice, and is nowhere else: in no log and in no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from iris_bus.connection.keys import Keys
from iris_core.access.roles import login
from iris_core.placement.pools import host_name


class NoKey(Exception):
    """A host has no key; the text names it."""


class SlotKeys:
    """The keys in a directory; empty: hosts need none."""

    def __init__(self, directory: str) -> None:
        self._keys = Keys(Path(directory)) if directory else None

    def path(self, host: str) -> Path | None:
        """The file with the seed of a host; None: it needs none. Raises NoKey."""
        if self._keys is None:
            return None
        path = self._keys.path(login("worker", host).label)
        if not path.exists():
            raise NoKey(f"host {host} has no key: see `iris admin nats-config --pools`")
        return path

    def seed(self, host: str) -> str:
        """The seed of a host; empty: it needs none. Raises NoKey, OSError."""
        path = self.path(host)
        return path.read_text().strip() if path is not None else ""

    def lacking(self, slots: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """The hosts that need a key and have none. ``slots``: by pool, how many slots of how many
        hosts.
        """
        if self._keys is None:
            return
        for pool, (count, hosts) in slots.items():
            for slot in range(count):
                for index in range(hosts):
                    name = host_name(pool, slot, index)
                    if not self._keys.path(login("worker", name).label).exists():
                        yield name

    @property
    def are_needed(self) -> bool:
        """Whether hosts need keys at all."""
        return self._keys is not None

    def keyed(self, pool: str, slots: int, hosts: int) -> int | None:
        """How many slots of a pool have the keys of all their hosts, from the first; None: they
        need none.
        """
        if self._keys is None:
            return None
        for slot in range(slots):
            names = (host_name(pool, slot, index) for index in range(hosts))
            labels = (login("worker", name).label for name in names)
            if not all(self._keys.path(label).exists() for label in labels):
                return slot
        return slots
