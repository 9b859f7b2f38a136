"""Names the extra to install when a command needs packages that the client alone does not bring.

Pure. Out of scope: looking for them (`installed`).
"""

from __future__ import annotations

from iris.client.problems import ClientError
from iris_core import DISTRIBUTION

SERVER_MODULES = frozenset(
    {
        "aiohttp",
        "cryptography",
        "httptools",
        "jinja2",
        "jwt",
        "markupsafe",
        "aiosmtplib",
        "multidict",
        "nats",
        "nkeys",
        "numpy",
        "opentelemetry",
        "prometheus_client",
        "sortedcontainers",
        "starlette",
        "uvicorn",
    }
)
"""What the extra ``server`` brings, and so ``local``, by the names with which it is imported."""


class MissingExtra(ClientError):
    """A command needs an extra that is not installed."""


def remedy(extra: str, what: str, missing: str) -> str:
    """``what``: what needs it."""
    return (
        f"{what} needs the extra {extra!r} ({missing} is not installed here): "
        f"pip install '{DISTRIBUTION}[{extra}]'"
    )


def missing_of(error: BaseException) -> str:
    """The module of an extra that could not be imported; empty for another error."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return name if name in SERVER_MODULES else ""
