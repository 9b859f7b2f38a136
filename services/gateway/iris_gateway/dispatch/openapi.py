"""Makes the OpenAPI 3.1 document from the route table and the msgspec types.

Pure. A field, its type and its description come from the struct that is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from iris_gateway.dispatch.endpoint import (
    EVENT_STREAM,
    JSON,
    MAX_KEY,
    Answers,
    Endpoint,
    needs_body,
)
from iris_gateway.http import problem
from iris_gateway.http.parameters import OF_USERS, OWNER, names_a_record, query_parameters
from iris_gateway.http.problem import ProblemDocument
from iris_gateway.http.problem_types import PROBLEM_TYPES

TEMPLATE = "#/components/schemas/{name}"

_SEGMENTS = {
    "job": (
        "A job's name, percent-encoded, also with its owner, `%2Ftrain@ann`; or its id.",
        {"type": "string", "examples": ["%2Ftrain", "j7"]},
    ),
    "task": (
        "A task's name, percent-encoded, also with its owner, `%2Ftrain%2F0@ann`; or its id.",
        {"type": "string", "examples": ["%2Ftrain%2F0", "j7%2F0"]},
    ),
    "sha256": ("The SHA-256 of the bytes.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
}
_PLACEHOLDER = re.compile(r"\{([a-z0-9]+)\}")
_OF_USER = {
    "name": OWNER.name,
    "in": "query",
    "description": OWNER.description,
    "schema": dict(OWNER.schema),
}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Reusing a key returns the first answer instead of repeating the request.",
    "schema": {"type": "string", "maxLength": MAX_KEY, "pattern": "^[ -~]*$"},
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "description": "The `ETag` this is a change of; refused when it has been changed since.",
    "schema": {
        "type": "string",
        "anyOf": [{"const": "*"}, {"pattern": '^"[0-9]{1,15}"$'}],
        "examples": ['"7"'],
    },
}


def describe(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    kinds = _kinds(endpoints)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=TEMPLATE)
    known = dict(zip(map(repr, kinds), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Iris",
            "version": version,
            "description": "A job scheduler for clusters.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _kinds(endpoints: Sequence[Endpoint]) -> list[Any]:
    found: dict[str, Any] = {repr(ProblemDocument): ProblemDocument}
    for endpoint in endpoints:
        for kind in _kinds_of(endpoint):
            found[repr(kind)] = kind
    return list(found.values())


def _kinds_of(endpoint: Endpoint) -> Iterator[Any]:
    if endpoint.body is not None and not isinstance(endpoint.body, str):
        yield endpoint.body
    for answers in endpoint.answers.values():
        if answers.kind is not None:
            yield answers.kind


def _operation(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "parameters": list(_parameters(endpoint)),
        "responses": {
            str(status): _answer(answers, known) for status, answers in endpoint.answers.items()
        },
    }
    operation["responses"] |= _problems(endpoint, known)
    if endpoint.body is not None:
        operation["requestBody"] = _body(endpoint, known)
    if endpoint.public:
        operation["security"] = []
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"[A-Za-z0-9]+", endpoint.path.removeprefix("/v1"))
    return "_".join([endpoint.method.lower(), *words])


def _parameters(endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for name in _PLACEHOLDER.findall(endpoint.path):
        description, schema = _SEGMENTS.get(
            name, (f"The {name}.", {"type": "string", "minLength": 1})
        )
        yield {
            "name": name,
            "in": "path",
            "required": True,
            "description": description,
            "schema": schema,
        }
    if _names_work(endpoint):
        yield _OF_USER
    for parameter in (
        query_parameters(endpoint.parameters) if endpoint.parameters is not None else ()
    ):
        schema = dict(parameter.schema)
        yield {
            "name": parameter.name,
            "in": "query",
            "description": parameter.description,
            "schema": schema,
        }
    if endpoint.takes_key:
        yield _IDEMPOTENCY
    if "precondition_failed" in endpoint.problems:
        yield _IF_MATCH


def _body(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    body = endpoint.body
    if isinstance(body, str):
        return {
            "required": True,
            "content": {body: {"schema": {"type": "string", "format": "binary"}}},
        }
    return {
        "required": needs_body(endpoint.method, body),
        "content": {JSON: {"schema": known[repr(body)]}},
    }


def _answer(answers: Answers, known: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": answers.description}
    if answers.media_types:
        described["content"] = {
            kind: {"schema": _schema(answers, kind, known)} for kind in answers.media_types
        }
    if answers.headers:
        described["headers"] = {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in answers.headers.items()
        }
    return described


def _schema(answers: Answers, media_type: str, known: dict[str, Any]) -> dict[str, Any]:
    if media_type == JSON:
        schema: dict[str, Any] = known[repr(answers.kind)]
        return schema
    return {} if media_type == EVENT_STREAM else {"type": "string"}


def _names_work(endpoint: Endpoint) -> bool:
    """Whether the path names a job or a task, whose name may be that of several users."""
    return bool(OF_USERS.keys() & set(_PLACEHOLDER.findall(endpoint.path)))


def problem_codes(endpoint: Endpoint) -> list[str]:
    """The codes of the refusals an endpoint may give, in the order of the table."""
    codes = {"malformed", "timeout", "head_too_large", "internal", *endpoint.problems}
    codes |= set() if endpoint.public else {"unauthenticated", "forbidden", "too_many_requests"}
    codes |= {"not_found"} if "{" in endpoint.path or names_a_record(endpoint.parameters) else set()
    codes |= {"conflict"} if _names_work(endpoint) else set()
    codes |= {"invalid"} if endpoint.path.startswith("/v1") else set()
    codes |= {"unavailable"} if endpoint.path != "/healthz" else set()
    codes |= {"too_large", "unsupported_media_type"} if endpoint.body is not None else set()
    codes |= {"conflict", "over_quota"} if endpoint.method == "POST" else set()
    return [code for code in PROBLEM_TYPES if code in codes]


def _problems(endpoint: Endpoint, known: dict[str, Any]) -> dict[str, Any]:
    """The refusals an endpoint may give, by status."""
    content = {problem.MEDIA_TYPE: {"schema": known[repr(ProblemDocument)]}}
    by_status: dict[str, list[str]] = {}
    for code in problem_codes(endpoint):
        kind = PROBLEM_TYPES[code]
        by_status.setdefault(str(kind.status), []).append(f"{kind.title} (`{code}`)")
    return {
        status: {"description": ", ".join(named), "content": content}
        for status, named in by_status.items()
    }
