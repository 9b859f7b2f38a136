"""The name people import: `from iris import Client`.

Nothing is loaded before it is asked for, so that `import iris` and `iris --help` stay quick. What is *not* in this
room: any code of its own. The client lives in `iris_gateway.client`. Source: interfaces.md section 5.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_gateway.client import AsyncClient, Client

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]

_HOMES = {"AsyncClient": "iris_gateway.client", "Client": "iris_gateway.client"}


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use. Raises AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
