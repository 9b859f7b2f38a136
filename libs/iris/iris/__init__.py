"""The public package: `from iris import Client`.

Public names are loaded on first use (PEP 562), so that `import iris` and `iris --help` take
milliseconds.
"""

from importlib import import_module

from iris_core import __version__

# importing `typing` takes as long as the start of Python, and Ctrl-C would print a traceback
TYPE_CHECKING = False
if TYPE_CHECKING:
    from iris.client.async_base import AsyncMapped
    from iris.client.async_client import AsyncClient, AsyncDeployment, AsyncJob
    from iris.client.client import Client
    from iris.client.deployments import Deployment
    from iris.client.executions import RemoteCommand, RemoteTerminal, TerminalSize
    from iris.client.jobs import Job
    from iris.client.maps.executor import Executor
    from iris.client.maps.mapping import Mapped
    from iris.client.problems import (
        ClientError,
        Conflict,
        DeploymentFailed,
        ExecutionLost,
        InvalidOption,
        JobEnded,
        JobFailed,
        JobKilled,
        JobUnschedulable,
        JobWorkerFailed,
        NoGateway,
        NotAllowed,
        NotFound,
        Problem,
        Rejected,
        RemoteError,
        TryAgain,
        Unreachable,
        WaitTimeout,
    )
    from iris.client.tunnels import PortForward
    from iris_core.views.jobs import JobView

__all__ = [
    "AsyncClient",
    "AsyncDeployment",
    "AsyncJob",
    "AsyncMapped",
    "Client",
    "ClientError",
    "Conflict",
    "Deployment",
    "DeploymentFailed",
    "ExecutionLost",
    "Executor",
    "InvalidOption",
    "Job",
    "JobEnded",
    "JobFailed",
    "JobKilled",
    "JobUnschedulable",
    "JobView",
    "JobWorkerFailed",
    "Mapped",
    "NoGateway",
    "NotAllowed",
    "NotFound",
    "PortForward",
    "Problem",
    "Rejected",
    "RemoteCommand",
    "RemoteError",
    "RemoteTerminal",
    "TerminalSize",
    "TryAgain",
    "Unreachable",
    "WaitTimeout",
    "__version__",
]

_HOMES = {
    "AsyncClient": "iris.client.async_client",
    "AsyncDeployment": "iris.client.async_client",
    "AsyncJob": "iris.client.async_client",
    "AsyncMapped": "iris.client.async_base",
    "Client": "iris.client.client",
    "Deployment": "iris.client.deployments",
    "Executor": "iris.client.maps.executor",
    "Job": "iris.client.jobs",
    "JobView": "iris_core.views.jobs",
    "Mapped": "iris.client.maps.mapping",
    "PortForward": "iris.client.tunnels",
    "RemoteCommand": "iris.client.executions",
    "RemoteTerminal": "iris.client.executions",
    "TerminalSize": "iris.client.executions",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use. Raises AttributeError for any other name."""
    if name not in __all__:
        raise AttributeError(f"module 'iris' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "iris.client.problems")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
