"""What decisions about slices read beside their records: hosts, waiting work, settings. Types only.

Source: docs/design/fleet.md#decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from iris_core.states import WorkerState


class HostFacts(NamedTuple):
    """One registered host.

    Attributes:
        since_ms: when it entered its state. open: attempts that hold something there.
        nominated: pending work was promised room there. last_end_ms: of an attempt there.
        differs: how it falls short of its pool, in words.
        notice_ms: when its provider will take it away, as far as it was told; 0: not told.
    """

    state: WorkerState
    since_ms: int = 0
    open: int = 0
    nominated: bool = False
    last_end_ms: int = 0
    differs: tuple[str, ...] = ()
    notice_ms: int = 0

    @property
    def is_lost(self) -> bool:
        return self.state is WorkerState.LOST

    @property
    def has_work(self) -> bool:
        return self.open > 0 or self.nominated


HostTable = Mapping[str, HostFacts]
"""Registered hosts by the id of their worker."""
