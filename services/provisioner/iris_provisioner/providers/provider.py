"""What a provider is: three calls, each the same however often it is repeated. Types only.

Source: docs/design/fleet.md#orders-and-lists.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from iris_core.messages.state_provisioner import FoundSlice, ProviderOptions, SliceOrder

ProviderResult = Literal["accepted", "exhausted", "refused", "failed"]


class CallAnswer(NamedTuple):
    """The answer to an order. ``retry_after_s``: what a refusal for capacity asks for."""

    answer: ProviderResult
    detail: str = ""
    retry_after_s: float = 0.0


class ListFailed(Exception):
    """There is no list; the text says why. It says nothing of what there is."""


class SliceProvider(Protocol):
    """One provider. ``epoch``: of the leader that has given an order."""

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        """Make a slice; nothing when it is there."""

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        """Delete a slice; nothing when it is not there, or another one has its name."""

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        """All that there is of this cluster. Raises ListFailed."""
