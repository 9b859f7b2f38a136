"""Which of the things that a host keeps are in use, so that they stay. Part of the shell: threads
share it.

Out of scope: which of the others are deleted (kept).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class Holds:
    """The names of things that are in use. Things are held by an event loop, and deleted by
    threads.

    Attributes:
        lock: a thread has it while it looks whether a thing is held and takes it away.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._held: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._held

    @contextlib.contextmanager
    def hold(self, *names: str) -> Iterator[None]:
        """These stay meanwhile, whether they are here already or come."""
        with self.lock:
            for name in names:
                self._held[name] = self._held.get(name, 0) + 1
        try:
            yield
        finally:
            with self.lock:
                for name in names:
                    self._held[name] -= 1
                    if not self._held[name]:
                        del self._held[name]
