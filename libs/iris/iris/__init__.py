"""The name people import: `from iris import Client`.

Nothing is loaded before it is asked for, so that `import iris` and `iris --help` stay quick. What is *not* in this
room: any code of its own. The client lives in `iris_gateway.client`. Source: interfaces.md section 5.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_gateway.client import AsyncClient, AsyncJob, Client, Job
    from iris_gateway.client.problems import (
        ClientError,
        Conflict,
        JobEnded,
        JobFailed,
        JobKilled,
        JobUnschedulable,
        JobWorkerFailed,
        NotAllowed,
        NotFound,
        Problem,
        Rejected,
        TryAgain,
        Unreachable,
        WaitTimeout,
    )

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "AsyncJob",
    "Client",
    "ClientError",
    "Conflict",
    "Job",
    "JobEnded",
    "JobFailed",
    "JobKilled",
    "JobUnschedulable",
    "JobWorkerFailed",
    "NotAllowed",
    "NotFound",
    "Problem",
    "Rejected",
    "TryAgain",
    "Unreachable",
    "WaitTimeout",
    "__version__",
]

_CLIENTS = ("AsyncClient", "AsyncJob", "Client", "Job")
_HOMES = {
    name: "iris_gateway.client" if name in _CLIENTS else "iris_gateway.client.problems"
    for name in __all__
    if name != "__version__"
}


def __getattr__(name: str) -> object:
    """Load a public name from its home on first use. Raises AttributeError for any other name."""
    if name not in _HOMES:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
