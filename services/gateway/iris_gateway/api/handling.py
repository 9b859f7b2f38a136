"""Common handling of endpoints: views, pages, JSON bodies, idempotency keys."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from iris_core.access.request_ids import keyed_request
from iris_core.errors import Mistake
from iris_core.views.queries import PageQuery, ViewQuery
from iris_gateway.api.work.admission import decoded
from iris_gateway.api.work.validation import shape_mistakes
from iris_gateway.dispatch.endpoint import JSON, Answers, Call, Endpoint, needs_body, passed_on
from iris_gateway.http.bodies import BODY, check_media_type, read_body
from iris_gateway.http.problem import ProblemResponse

S = TypeVar("S", bound=msgspec.Struct)

TAG = {"ETag": "The version, for `If-Match`."}

_ETAG = re.compile(r'"([0-9]{1,15})"\Z')


class _Versioned(msgspec.Struct):
    version: int


def tagged(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An object of the state service with its version as the ``ETag``."""
    version = msgspec.json.decode(body, type=_Versioned).version
    return passed_on(body, status, {**(headers or {}), "etag": f'"{version}"'})


def view(path: str, kind: type[ViewQuery], summary: str, answer: Answers) -> Endpoint:
    """An endpoint that answers with one view of the state service. A token of a task reaches what
    its path names.
    """

    async def show(call: Call) -> Response:
        body = await call.read(call.asked(kind))
        return tagged(body) if answer.headers == TAG else passed_on(body)

    return Endpoint(
        "GET",
        path,
        show,
        summary,
        answers={200: answer},
        parameters=kind,
        task=kind.for_tasks and "{" in path,
    )


def listing(path: str, kind: type[PageQuery], summary: str, answer: Any) -> Endpoint:
    """An endpoint that answers with one page of type ``answer``."""
    return view(path, kind, summary, Answers("One page.", answer))


async def json_body(
    call: Call, kind: type[S], explain: Callable[[Mistake], Mistake] = lambda mistake: mistake
) -> S:
    """The request's body as a ``kind``; its defaults when there is none. Raises ProblemResponse
    with every mistake, each as ``explain`` words it.
    """
    body = await read_body(call.request, call.gateway.settings.body_bytes)
    if not body and not needs_body(call.request.method, kind):
        return kind()
    check_media_type(call.request, JSON)
    return decoded(
        body, kind, lambda value: [explain(mistake) for mistake in shape_mistakes(value, kind)]
    )


def request_key(call: Call, form_key: str = "") -> str:
    """The request id for the state service, for commands without an idempotency key in their
    record.

    ``form_key``: the key in a form, which cannot send the header. Call it after the body was read:
    the id digests what was sent, so that a key that is used for something else is refused.
    """
    key = form_key or call.idempotency_key
    request = call.request
    if not key:
        return ""
    parts = (call.caller.user, request.method, request.scope["path"], key)
    sent = (
        request.scope["query_string"],
        request.headers.get("if-match", "").encode(),
        request.scope.get(BODY, b""),
    )
    return keyed_request(
        "k" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40], b"\0".join(sent)
    )


def expected_version(call: Call) -> int:
    """The version of ``If-Match``; 0 without one. Raises ProblemResponse malformed."""
    given = call.request.headers.get("if-match", "*").strip()
    match = _ETAG.match(given)
    if match is None and given != "*":
        raise ProblemResponse("malformed", "If-Match is the ETag of an earlier answer, as it came")
    return int(match[1]) if match else 0


@cache
def page_of(kind: type[Any]) -> Any:
    """``{items, next_cursor}`` with items of ``kind``."""
    name = f"{kind.__name__.removesuffix('View')}Page"
    items = list[kind]  # type: ignore[valid-type]
    fields = [("items", items), ("next_cursor", str | None)]
    return msgspec.defstruct(name, fields, module=__name__)
