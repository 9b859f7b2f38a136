"""The keywords of the SDK's listings are the parameters of the views that they ask."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

from iris import Client
from iris.client.jobs import Job
from iris_core.views import queries as q
from iris_gateway.http.parameters import query_parameters

LISTINGS = (
    (Client.jobs, q.JobsQuery),
    (Client.workers, q.WorkersQuery),
    (Client.audit, q.AuditQuery),
    (Client.deployments, q.DeploymentsQuery),
    (Client.fleet_slices, q.FleetSlicesQuery),
    (Job.tasks, q.TasksQuery),
)
TYPES = {"string": (str | None, str), "boolean": (bool,)}


@pytest.mark.parametrize(("method", "view"), LISTINGS, ids=lambda one: one.__name__)
def test_a_listing_takes_the_parameters_of_its_view(
    method: Callable[..., Any], view: type[q.ViewQuery]
):
    wanted = {
        one.name: one.schema
        for one in query_parameters(view)
        if one.field not in q.PageQuery.__struct_fields__
    }
    hints = get_type_hints(method)
    keywords = {
        one.name: one for one in inspect.signature(method).parameters.values() if one.name != "self"
    }
    assert sorted(keywords) == sorted(wanted)
    for name, schema in wanted.items():
        assert keywords[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert hints[name] in TYPES[schema.get("type", "string")]
        assert (keywords[name].default or None) == (schema.get("default") or None)
