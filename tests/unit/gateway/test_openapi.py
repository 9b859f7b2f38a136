"""The OpenAPI document covers every endpoint and matches the answers."""

import re
from typing import Any

import msgspec
import pytest

from iris_core.spec.field_rules import BASE64
from iris_core.states import TaskState
from iris_gateway.api import ENDPOINTS
from iris_gateway.api.work.executions import ExecutionInput
from iris_gateway.dispatch.openapi import describe
from tests.support.gateway import House

DOCUMENT = describe(ENDPOINTS, "0")


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        found = {value["$ref"]} if "$ref" in value else set()
        return found.union(*(references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(references(item) for item in value))
    return set()


def test_every_reference_leads_to_a_schema():
    names = {reference.removeprefix("#/components/schemas/") for reference in references(DOCUMENT)}
    assert names <= set(DOCUMENT["components"]["schemas"])


def test_every_endpoint_is_described_with_its_path_parameters():
    for endpoint in ENDPOINTS:
        operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
        described = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", endpoint.path))
        assert operation["summary"]


def test_operations_have_names_of_their_own():
    names = [
        operation["operationId"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
    ]
    assert len(names) == len(set(names))


def test_a_submissions_body_is_described_field_by_field():
    spec = DOCUMENT["components"]["schemas"]["JobSpec"]
    assert spec["required"] == ["name", "command"]
    assert spec["additionalProperties"] is False


def test_every_promised_path_is_there():
    nominated = """
        /v1/jobs /v1/jobs:plan /v1/jobs/{job} /v1/jobs/{job}/tasks /v1/jobs/{job}/tree /v1/jobs/{job}/events
        /v1/jobs/{job}/history /v1/jobs/{job}/why /v1/jobs/{job}/logs /v1/jobs/{job}/cancel /v1/jobs/{job}/rerun
        /v1/tasks/{task} /v1/tasks/{task}/attempts /v1/tasks/{task}/logs /v1/sessions /v1/sessions/{session}
        /v1/queue /v1/workers /v1/workers/{worker} /v1/workers/{worker}/drain /v1/workers/{worker}/undrain
        /v1/workers/{worker}/mark-lost /v1/workers/{worker}/forget
        /v1/deployments /v1/deployments/{deployment} /v1/deployments/{deployment}/routes
        /v1/deployments/{deployment}/history /v1/deployments/{deployment}/why
        /v1/slices /v1/demand /v1/quotas/{user} /v1/events /v1/bundles/{sha256}
        /healthz /readyz /metrics /v1/meta /v1/openapi.json
    """
    assert set(nominated.split()) <= set(DOCUMENT["paths"])


async def test_meta_shows_every_state_with_its_wire_value_and_colour(iris: House):
    words = (await iris.http.get("/v1/meta")).json()["enums"]["task_states"]
    assert {word["name"].upper(): word["value"] for word in words} == {
        state.name: state.value for state in TaskState
    }
    preempted = next(word for word in words if word["name"] == "preempted")
    assert preempted == {
        "name": "preempted",
        "value": 10,
        "terminal": True,
        "colour": "#bc4c00",
        "css_class": "status-preempted",
    }


async def test_every_vocabulary_says_what_has_no_way_out(iris: House):
    """Session, kernel, deployment and route statuses; workers always have one."""
    enums = (await iris.http.get("/v1/meta")).json()["enums"]
    ends = {
        kind: {word["name"] for word in words if word["terminal"]} for kind, words in enums.items()
    }

    assert ends["session_statuses"] == {"terminated", "cancelled"}
    assert ends["kernel_statuses"] == {"terminated", "cancelled", "error"}
    assert (ends["deployment_lifecycles"], ends["route_statuses"]) == (
        {"destroyed"},
        {"terminated"},
    )
    assert ends["worker_states"] == set()


async def test_the_document_forbids_empty_parameters(iris: House):
    listing = DOCUMENT["paths"]["/v1/jobs"]
    lengths = {
        (verb, one["name"]): one["schema"]["minLength"]
        for verb in ("get", "post")
        for one in listing[verb]["parameters"]
        if one["in"] == "query"
        and one["schema"]["type"] == "string"
        and "enum" not in one["schema"]
    }
    assert lengths[("get", "parent")] == lengths[("post", "parent")] == 1
    assert 0 not in lengths.values()
    refused = await iris.http.get("/v1/jobs?parent=")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "?parent")


@pytest.mark.parametrize(
    "given", ["", "QQ==", "QR==", "AAA=", "AAAA", "QQ", "A===", "====", "Q Q=", "-_--"]
)
def test_the_pattern_of_bytes_is_that_of_the_decoder(given: str):
    try:
        msgspec.convert({"data": given}, ExecutionInput)
        decodes = True
    except msgspec.ValidationError:
        decodes = False
    assert (re.fullmatch(BASE64, given) is not None) == decodes
