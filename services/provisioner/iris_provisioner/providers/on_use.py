"""A provider whose libraries come with an extra: it is imported when a pool uses it.

Out of scope: what it does then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from iris_core.messages.state_provisioner import FoundSlice, ProviderOptions, SliceOrder
from iris_provisioner.providers.provider import CallAnswer, ListFailed, SliceProvider


class ClosableProvider(SliceProvider, Protocol):
    """A provider that holds connections."""

    async def close(self) -> None:
        """End its connections."""


class ProviderOnUse:
    """Stands for a provider until, and after, it is made.

    Args:
        name: what pools call it. extra: of the distribution. make: imports and makes it.
    """

    def __init__(self, name: str, extra: str, make: Callable[[], ClosableProvider]) -> None:
        self._name = name
        self._extra = extra
        self._make = make
        self._made: ClosableProvider | None = None

    async def create(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        try:
            provider = self._provider()
        except ListFailed as missing:
            return CallAnswer("refused", str(missing))
        return await provider.create(order, epoch)

    async def delete(self, order: SliceOrder, epoch: int = 0) -> CallAnswer:
        try:
            provider = self._provider()
        except ListFailed as missing:
            return CallAnswer("refused", str(missing))
        return await provider.delete(order, epoch)

    async def listed(self, options: ProviderOptions) -> tuple[FoundSlice, ...]:
        return await self._provider().listed(options)

    async def close(self) -> None:
        """End the connections of the provider, if it was used."""
        if self._made is not None:
            await self._made.close()

    def _provider(self) -> ClosableProvider:
        """Raises ListFailed where its libraries are not installed."""
        if self._made is None:
            try:
                self._made = self._make()
            except ModuleNotFoundError as error:
                raise ListFailed(
                    f"the provider {self._name} needs {error.name}: install"
                    f" iris-control-plane[{self._extra}] where the provisioner runs"
                ) from None
        return self._made
