"""The HTTP API: one module per resource, and all their endpoints as one table.

Frequent ones first, because routes are matched in order.
"""

from iris_gateway.api import (
    audit,
    cluster,
    deployments,
    discovery,
    documentation,
    events,
    health,
    login_links,
    meta,
    notify,
    pools,
    projects,
    queue_holds,
    quotas,
)
from iris_gateway.api.work import (
    artifacts,
    bundles,
    executions,
    growth,
    jobs,
    logs,
    plans,
    results,
    tasks,
)
from iris_gateway.dispatch.endpoint import Endpoint

_MODULES = (
    jobs,
    tasks,
    logs,
    results,
    growth,
    executions,
    artifacts,
    events,
    cluster,
    plans,
    bundles,
    queue_holds,
    quotas,
    audit,
    deployments,
    discovery,
    pools,
    projects,
    notify,
    login_links,
    meta,
    health,
)

ENDPOINTS: tuple[Endpoint, ...] = documentation.documented(
    [endpoint for module in _MODULES for endpoint in module.ENDPOINTS]
)
