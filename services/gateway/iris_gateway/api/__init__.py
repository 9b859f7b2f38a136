"""The HTTP API: one module per resource, and all their endpoints as one table.

Frequent ones first, because routes are matched in order.
"""

from iris_gateway.api import (
    artifacts,
    audit,
    bundles,
    cluster,
    deployments,
    discovery,
    documentation,
    events,
    executions,
    health,
    jobs,
    login_links,
    logs,
    meta,
    plans,
    quotas,
    tasks,
)
from iris_gateway.endpoint import Endpoint

_MODULES = (
    jobs,
    tasks,
    logs,
    executions,
    artifacts,
    events,
    cluster,
    plans,
    bundles,
    quotas,
    audit,
    deployments,
    discovery,
    login_links,
    meta,
    health,
)

ENDPOINTS: tuple[Endpoint, ...] = documentation.documented(
    [endpoint for module in _MODULES for endpoint in module.ENDPOINTS]
)
