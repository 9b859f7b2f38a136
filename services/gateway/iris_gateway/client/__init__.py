"""The Python SDK: `Client`, `AsyncClient`, and the errors they raise.

Loaded when used, so that `import iris` stays quick. Not in this room: the command line (`iris_gateway.cli`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_gateway.client.aio import AsyncClient, AsyncJob
    from iris_gateway.client.client import Client
    from iris_gateway.client.jobs import Job

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job"]

_HOMES = {"AsyncClient": "aio", "AsyncJob": "aio", "Client": "client", "Job": "jobs"}


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use. Raises AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
