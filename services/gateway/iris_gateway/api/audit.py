"""The endpoint of the audit: who did what. The state service decides which entries a caller
reads.
"""

from iris_core.views.jobs import AuditView
from iris_core.views.queries import AuditQuery
from iris_gateway.api.handling import listing, page_of

ENDPOINTS = (listing("/v1/audit", AuditQuery, "Audit log, newest first", page_of(AuditView)),)
