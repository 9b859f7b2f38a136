"""docs/http.md: every endpoint and every object of the API, from the OpenAPI document that the
gateway serves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from drawings.docstrings import code, prose
from drawings.fields import Schema, field_table, limits_of, type_of
from drawings.markdown import document
from iris_gateway.api import ENDPOINTS
from iris_gateway.dispatch.endpoint import JSON, Endpoint
from iris_gateway.dispatch.openapi import describe, problem_codes
from iris_gateway.http.problem_types import PROBLEM_TYPES

EXPLAINED = """\
The gateway serves the OpenAPI 3.1 document of this page at `/v1/openapi.json`. In paths, names are percent-encoded with
their slashes: `/v1/jobs/%2Ftrain`. A name is looked up among the caller's jobs, then among all; `Iris-Note` says whose was
found there, and a name of several others is a [`conflict`](problems.md#conflict). `%2Ftrain@ann` or `?user=ann` is ann's.
A page of a listing is `{items, next_cursor}`; it may be empty and
still have a cursor. [Authentication](access.md#tokens-and-roles) is by bearer token. A change takes an
`Idempotency-Key`: the same key twice is one effect. Answers to changes carry `Iris-Position`; a read that sends it back
is answered at or after that position. Times are RFC 3339 in UTC."""

REFUSALS = """\
A refusal is a problem document of one of the [problem types](problems.md). Those that every endpoint with
authentication may answer are not repeated below: """

COMMON = [
    code
    for code in PROBLEM_TYPES
    if all(code in problem_codes(one) for one in ENDPOINTS if not one.public)
]
"""The problems of every endpoint with authentication."""


def links(codes: Sequence[str]) -> str:
    """Codes of problems, each with a link to its section."""
    return ", ".join(f"[`{code}`](problems.md#{code})" for code in codes)


def group_of(endpoint: Endpoint) -> str:
    """What an endpoint is about: the first segment of its path below the version."""
    segment = re.split(r"[/:]", endpoint.path.removeprefix("/v1").lstrip("/"))[0]
    return segment.removesuffix(".json") if endpoint.path.startswith("/v1") else "service"


def parameter_rows(operation: Schema) -> Iterator[str]:
    """One bullet for each parameter: where it is, its type and limits, what it does."""
    for parameter in operation["parameters"]:
        schema = parameter["schema"]
        facts = [f"in {parameter['in']}", type_of(schema), limits_of(schema)]
        if "default" in schema:
            facts.append(f"default `{schema['default']}`")
        yield f"* `{parameter['name']}` ({', '.join(filter(None, facts))}): {code(parameter['description'])}"


def answer_rows(operation: Schema) -> Iterator[str]:
    """One bullet for each answer that is no refusal."""
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            content = answer.get("content", {})
            bodies = [
                type_of(body["schema"]) if kind == JSON else f"`{kind}`"
                for kind, body in content.items()
            ]
            headers = "".join(f" Header `{name}`." for name in answer.get("headers", ()))
            yield f"* {status} {' or '.join(bodies)}: {answer['description']}{headers}"


def endpoint_section(endpoint: Endpoint, operation: Schema) -> Iterator[str]:
    """What one endpoint takes and answers."""
    yield f"### {endpoint.method} {endpoint.path}"
    roles = (
        " Without authentication." if endpoint.public else " For admins." if endpoint.admin else ""
    )
    yield f"{operation['summary']}.{roles}"
    if rows := list(parameter_rows(operation)):
        yield "\n".join(rows)
    if "requestBody" in operation:
        [(kind, body)] = operation["requestBody"]["content"].items()
        yield f"Body: {type_of(body['schema']) if kind == JSON else f'`{kind}`'}"
    yield "Answers:"
    yield "\n".join(answer_rows(operation))
    if own := [name for name in problem_codes(endpoint) if name not in COMMON]:
        yield f"Problems: {links(own)}."


def object_section(name: str, schema: Schema) -> Iterator[str]:
    """The fields of one object, or the values of an enumeration."""
    yield f"### {name}"
    yield from prose(schema.get("description"))
    yield field_table(schema) if "properties" in schema else f"{type_of(schema).capitalize()}."


def http_document() -> str:
    """The endpoints by what they are about, then the objects by name."""
    described: dict[str, Any] = describe(ENDPOINTS, "")
    groups: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        groups.setdefault(group_of(endpoint), []).append(endpoint)
    parts: list[str] = []
    for group, endpoints in groups.items():
        parts.append(f"## {group.capitalize()}")
        for endpoint in endpoints:
            parts += endpoint_section(
                endpoint, described["paths"][endpoint.path][endpoint.method.lower()]
            )
    parts.append("## Objects")
    for name, schema in sorted(described["components"]["schemas"].items()):
        parts += object_section(name, schema)
    refusals = f"{REFUSALS}{links(COMMON)}."
    return document(
        "HTTP API", "the endpoints and structs of the gateway", EXPLAINED, refusals, *parts
    )
